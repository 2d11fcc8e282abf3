//! Fair permits: each application has a lane of its own to the permits of the machine.
//!
//! Permits are given in order of asking. Were all calls of an application to ask at once, a package with hundreds of
//! hooks that use up their time would have hundreds of places before everybody else. So a call first passes the lane of
//! its application, which is half as wide as the machine: an application never has more calls asking or running than
//! that, whatever its package wants, and one application alone never has all permits.
//!
//! *Guarantee*: with `n` other applications that are never content, a call waits for at most `n` times the width of a
//! lane calls of theirs, beside those of its own application.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barbless_domain::identity::ApplicationId;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls of one application that may ask for a permit or have one, on a machine with so many permits.
pub(crate) fn width(permits: usize) -> usize {
    permits.div_ceil(2).max(1)
}

/// The lane of one application. It goes with the last component that is linked for the application.
pub(crate) struct Lane {
    application: ApplicationId,
    gate: Semaphore,
    lanes: Arc<Lanes>,
}

impl Lane {
    /// Waits for a place. It must be had before a permit of the machine is asked for, and kept as long as that.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        self.gate.acquire().await.ok()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        // Another may have been made since the last hold on this one was given up.
        if lanes.get(&self.application).is_some_and(|lane| lane.strong_count() == 0) {
            lanes.remove(&self.application);
        }
    }
}

/// All lanes that are in use.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<HashMap<ApplicationId, Weak<Lane>>>);

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<ApplicationId, Weak<Lane>>> {
        // The map is whole whatever happens while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane of an application on a machine with so many permits: the same for all of its components, of every
    /// version that is still loaded.
    pub(crate) fn of(self: &Arc<Self>, application: &ApplicationId, permits: usize) -> Arc<Lane> {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.get(application).and_then(Weak::upgrade) {
            return lane;
        }
        let gate = Semaphore::new(width(permits));
        let lane = Arc::new(Lane { application: application.clone(), gate, lanes: Arc::clone(self) });
        lanes.insert(application.clone(), Arc::downgrade(&lane));
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(name: &str) -> ApplicationId {
        ApplicationId::new("demo", name).expect("a valid name")
    }

    #[test]
    fn a_lane_is_half_as_wide_as_the_machine() {
        assert_eq!([1, 2, 3, 4, 8].map(width), [1, 1, 2, 2, 4]);
    }

    #[test]
    fn an_application_has_one_lane_as_long_as_it_is_used() {
        let lanes = Arc::new(Lanes::default());
        let first = lanes.of(&application("one"), 2);
        let again = lanes.of(&application("one"), 2);
        let other = lanes.of(&application("two"), 2);
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        drop(first);
        assert_eq!(lanes.lock().len(), 2);
        drop(again);
        assert_eq!(lanes.lock().len(), 1, "a lane goes with its last user");
        drop(other);
        assert!(lanes.lock().is_empty());
    }
}
