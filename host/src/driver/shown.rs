//! The state of an application, for those who look at it from outside.
//!
//! It is where the loop keeps it; nobody makes a copy at each event. Whoever looks holds the lock for a moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barbless_domain::pipeline::App;
use tokio::sync::watch;

/// The state of an application, and word of each change. A clone is cheap and shows the same.
#[derive(Debug, Clone)]
pub struct State {
    app: Arc<Mutex<App>>,
    changes: watch::Receiver<()>,
}

impl State {
    /// A state, and what tells of its changes; they are over when that is dropped.
    pub(crate) fn new(app: App) -> (Self, Changes) {
        let (told, changes) = watch::channel(());
        let app = Arc::new(Mutex::new(app));
        (Self { app: Arc::clone(&app), changes }, Changes { app, told })
    }

    fn lock(&self) -> MutexGuard<'_, App> {
        locked(&self.app)
    }

    /// What this makes of the state now. It should take but a moment: the application waits.
    pub fn read<T>(&self, look: impl FnOnce(&App) -> T) -> T {
        look(&self.lock())
    }

    /// A copy of the state now.
    #[must_use]
    pub fn copy(&self) -> Arc<App> {
        Arc::new(self.lock().clone())
    }

    /// Waits until it satisfies this. Nothing if the application is gone before. States that follow each other within a
    /// moment may be seen as one.
    pub async fn wait_for(&self, mut holds: impl FnMut(&App) -> bool) -> Option<Arc<App>> {
        let mut changes = self.changes.clone();
        loop {
            // Before the look, so that no change after it is missed.
            changes.borrow_and_update();
            {
                let app = self.lock();
                if holds(&app) {
                    return Some(Arc::new(app.clone()));
                }
            }
            if changes.changed().await.is_err() {
                // The last change may have come with the end.
                let app = self.lock();
                return holds(&app).then(|| Arc::new(app.clone()));
            }
        }
    }
}

/// The hand of the loop in the state.
pub(crate) struct Changes {
    app: Arc<Mutex<App>>,
    told: watch::Sender<()>,
}

impl Changes {
    /// Looks at the state.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&App) -> T) -> T {
        look(&locked(&self.app))
    }

    /// Makes another state of it.
    pub(crate) fn step<T>(&self, next: impl FnOnce(App) -> (App, T)) -> T {
        let given = {
            let mut app = locked(&self.app);
            // An application of which nothing is known takes its place for the moment, under the lock.
            let placeholder = App::new(app.id().clone());
            let (next, given) = next(std::mem::replace(&mut *app, placeholder));
            *app = next;
            given
        };
        self.told.send_replace(());
        given
    }
}

/// A step that panicked ends the loop; what is left is still an application.
fn locked(app: &Mutex<App>) -> MutexGuard<'_, App> {
    app.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use barbless_domain::event::{Desired, Event};
    use barbless_domain::identity::ApplicationId;
    use barbless_domain::pipeline;
    use barbless_domain::queue::Time;

    use super::*;

    fn observe(changes: &Changes, generation: i64) {
        let desired = Desired { generation, version: "1.0.0".to_owned(), ..Desired::default() };
        changes.step(|app| pipeline::step(app, Event::Observed(desired), Time(1)));
    }

    fn generation(app: &App) -> i64 {
        app.status().observed_generation
    }

    #[tokio::test]
    async fn a_change_wakes_who_waits_for_it_and_the_end_does_too() {
        let (state, changes) = State::new(App::new(ApplicationId::new("demo", "shop").expect("a valid name")));
        assert_eq!(state.read(generation), 0);
        let waiting = tokio::spawn({
            let state = state.clone();
            async move { state.wait_for(|app| generation(app) == 2).await.map(|app| generation(&app)) }
        });
        let in_vain = tokio::spawn({
            let state = state.clone();
            async move { state.wait_for(|app| generation(app) == 9).await.is_none() }
        });
        tokio::task::yield_now().await;
        observe(&changes, 1);
        tokio::task::yield_now().await;
        observe(&changes, 2);
        assert_eq!(waiting.await.expect("no panic"), Some(2));
        observe(&changes, 3);
        drop(changes);
        assert!(in_vain.await.expect("no panic"));
        // The last state can still be looked at.
        assert_eq!(state.copy().status().observed_generation, 3);
        assert!(state.wait_for(|app| generation(app) == 3).await.is_some());
    }
}
