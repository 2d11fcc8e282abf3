//! YAML as Kubernetes tools read and write it: the 1.1 resolution of plain scalars, one JSON-like value per document, and
//! the layout of go-yaml.

mod read;
mod scalar;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::read;
pub(crate) use write::{pretty, write};
