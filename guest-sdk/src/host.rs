//! The other side of the contract, as the rest of the crate sees it: the imports of the component in a guest, the
//! state of a [`crate::testing::TestContext`] everywhere else. Both have the same functions.

#[cfg(target_arch = "wasm32")]
mod guest;
#[cfg(not(target_arch = "wasm32"))]
mod native;

#[cfg(target_arch = "wasm32")]
pub(crate) use guest::*;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;
