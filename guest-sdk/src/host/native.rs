//! Outside of a component: the state of the test that is running on this thread.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bindings::hooks::barbless::hooks::snapshots::SnapshotError;
use crate::bindings::hooks::barbless::hooks::values::ValuesError;
use crate::context::Identity;
use crate::log::Level;
use crate::testing::state::State;

pub(crate) use crate::testing::state::{Collector, ItemHandle, SnapshotHandle};

thread_local! {
    static CURRENT: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// Makes a state the one of this thread while the guard lives; the one before comes back afterwards.
pub(crate) fn enter(state: Rc<RefCell<State>>) -> Guard {
    Guard { before: CURRENT.replace(Some(state)) }
}

/// See [`enter`].
pub(crate) struct Guard {
    before: Option<Rc<RefCell<State>>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

fn with<R>(act: impl FnOnce(&mut State) -> R) -> R {
    let state = CURRENT.with_borrow(Clone::clone);
    let state = state.expect("outside of a component, hooks run in `TestContext::run`, which sets the state");
    act(&mut state.borrow_mut())
}

pub(crate) fn instance() -> Identity {
    with(|state| state.instance.clone())
}

pub(crate) fn values_get(pointer: &str) -> Option<String> {
    with(|state| state.values_get(pointer))
}

pub(crate) fn values_set(pointer: &str, json: &str) -> Result<(), ValuesError> {
    with(|state| state.values_set(pointer, json))
}

pub(crate) fn values_remove(pointer: &str) -> Result<(), ValuesError> {
    with(|state| state.values_remove(pointer))
}

pub(crate) fn settings_get(pointer: &str) -> Option<String> {
    with(|state| state.settings_get(pointer))
}

pub(crate) fn snapshot_open(binding: &str) -> Result<SnapshotHandle, SnapshotError> {
    with(|state| state.snapshot_open(binding))
}

pub(crate) fn changed() -> SnapshotHandle {
    with(|state| state.changed())
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    with(|state| state.log(level, message, fields));
}

pub(crate) fn counter_add(name: &str, value: f64, labels: &[(String, String)]) {
    with(|state| state.counter_add(name, value, labels));
}

pub(crate) fn gauge_set(name: &str, value: f64, labels: &[(String, String)]) {
    with(|state| state.gauge_set(name, value, labels));
}

pub(crate) fn histogram_observe(name: &str, value: f64, labels: &[(String, String)]) {
    with(|state| state.histogram_observe(name, value, labels));
}

pub(crate) fn now_unix_ms() -> u64 {
    with(|state| state.now_unix_ms)
}

pub(crate) fn next_u64() -> u64 {
    with(|state| state.next_u64())
}

pub(crate) fn random_bytes(len: u32) -> Vec<u8> {
    with(|state| state.random_bytes(len))
}
