//! What the tests run against: a development cluster of their own, or a namespace of a real control plane.
//!
//! `BARBLESS_TARGET=real` chooses the real one. Without it the tests run on development clusters, and `targets` runs them
//! again on the other. So a test that takes its cluster from here runs on both.
//!
//! A real server is asked through a [`Relay`], which gives it the journal and the faults of the development cluster.
//!
//! With `BARBLESS_FAULTS=7` and a chosen target (`devcluster` or `real`) there is bad weather of seed 7 between the program and
//! the API: requests are delayed, refused and cut off, and answers are lost. What a test asks for itself comes through. At the end of a test every write that was not
//! heard of must have been made once.

#[path = "envtest.rs"]
pub(crate) mod envtest;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use barbless_devcluster::{Config, DevCluster, Fault, Odds, Relay, Request, Weather};
use envtest::{Alone, ControlPlane};

/// The variable that chooses the target.
pub(crate) const TARGET: &str = "BARBLESS_TARGET";
/// The variable with the seed of the weather.
pub(crate) const FAULTS: &str = "BARBLESS_FAULTS";
/// Set in the process of the second pass: it ends when its input does, so that it does not outlive the first.
pub(crate) const SECOND_PASS: &str = "BARBLESS_SECOND_PASS";
/// A real server takes at most 3 MiB.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The API that a test runs against. Cheap to clone; what is made for the test goes with the last clone.
#[derive(Clone)]
pub(crate) struct Target {
    front: Front,
    scenario: Arc<Scenario>,
}

#[derive(Clone)]
enum Front {
    Dev(DevCluster),
    Real(Relay),
}

impl Target {
    /// A place of its own for a test. The configuration is for a development cluster; a real one is as it is.
    pub(crate) async fn start(config: Config) -> Self {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        end_with_the_first_pass();
        if std::env::var(TARGET).is_ok_and(|it| it == "real") {
            let plane = envtest::control_plane().await;
            let namespace = plane.make_namespace().await;
            let front = Front::Real(relay(plane.config()));
            return Self { front, scenario: Scenario::begin(name, namespace, Some(plane)) };
        }
        let front = Front::Dev(DevCluster::start(config).await.unwrap());
        Self { front, scenario: Scenario::begin(name, "default".to_owned(), None) }
    }

    /// Whether this is a real control plane.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.front, Front::Real(_))
    }

    /// The namespace of the test.
    pub(crate) fn namespace(&self) -> &str {
        &self.scenario.namespace
    }

    /// Waits until no other test of a real control plane has objects that are in no namespace, since their names are the
    /// same in all tests. What such objects this one makes goes with it.
    pub(crate) async fn alone(&self) {
        if let Some(plane) = self.scenario.plane {
            let alone = plane.alone().await;
            *self.scenario.alone.lock().unwrap() = Some(alone);
        }
    }

    /// The API as a tower service.
    pub(crate) fn router(&self) -> axum::Router {
        match &self.front {
            Front::Dev(devcluster) => devcluster.router(),
            Front::Real(relay) => relay.router(),
        }
    }

    /// An API as the program sees it: through the weather, if there is any.
    pub(crate) fn seen_by_the_program(&self, router: axum::Router) -> axum::Router {
        match &self.scenario.weather {
            Some(weather) => weather.over(router),
            None => router,
        }
    }

    /// Whether there is bad weather.
    pub(crate) fn has_faults(&self) -> bool {
        self.scenario.weather.is_some()
    }

    /// A client whose namespace is that of the test.
    pub(crate) fn client(&self) -> kube::Client {
        barbless::app::client_by(self.router(), self.namespace())
    }

    /// What was asked, oldest first. What was answered and not heard is left out: it was asked again.
    pub(crate) fn journal(&self) -> Vec<Request> {
        let mut journal = match &self.front {
            Front::Dev(devcluster) => devcluster.journal(),
            Front::Real(relay) => relay.journal(),
        };
        journal.retain(|request| !request.lost);
        journal
    }

    /// What was asked that meant to change something.
    pub(crate) fn writes(&self) -> Vec<Request> {
        self.journal().into_iter().filter(Request::is_write).collect()
    }

    /// Forgets what was asked.
    pub(crate) fn clear_journal(&self) {
        match &self.front {
            Front::Dev(devcluster) => devcluster.clear_journal(),
            Front::Real(relay) => relay.clear_journal(),
        }
    }

    /// How much was asked.
    pub(crate) fn request_count(&self) -> u64 {
        match &self.front {
            Front::Dev(devcluster) => devcluster.request_count(),
            Front::Real(relay) => relay.request_count(),
        }
    }

    /// Makes something go wrong.
    pub(crate) fn inject(&self, fault: Fault) {
        match &self.front {
            Front::Dev(devcluster) => devcluster.inject(fault),
            Front::Real(relay) => relay.inject(fault),
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        match &self.front {
            Front::Dev(devcluster) => devcluster.heal(),
            Front::Real(relay) => relay.heal(),
        }
    }
}

/// The way to a server, for the runtime that this is called in.
fn relay(config: kube::Config) -> Relay {
    let client = kube::Client::try_from(config).unwrap();
    Relay::new(move |request| {
        let client = client.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(bytes) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
                return StatusCode::PAYLOAD_TOO_LARGE.into_response();
            };
            let request = axum::http::Request::from_parts(parts, kube::client::Body::from(bytes));
            match client.send(request).await {
                Ok(response) => response.map(axum::body::Body::new),
                Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
            }
        })
    })
}

/// A test that has a target. A test may have several, one after the other.
struct Scenario {
    name: String,
    namespace: String,
    plane: Option<&'static ControlPlane>,
    alone: Mutex<Option<Alone>>,
    weather: Option<Weather>,
}

/// What is known of the tests of this process.
struct Known {
    /// Whether each has panicked.
    panicked: BTreeMap<String, bool>,
    /// Writes that were made twice, with the tests in which they were.
    twice: Vec<String>,
    /// Targets that are in use.
    open: usize,
    /// When that last changed.
    changed: Option<Instant>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { panicked: BTreeMap::new(), twice: Vec::new(), open: 0, changed: None });

impl Scenario {
    fn begin(name: String, namespace: String, plane: Option<&'static ControlPlane>) -> Arc<Self> {
        let mut known = KNOWN.lock().unwrap();
        known.panicked.entry(name.clone()).or_default();
        (known.open, known.changed) = (known.open + 1, Some(Instant::now()));
        let is_chosen = std::env::var_os(TARGET).is_some();
        let weather = seed().filter(|_| is_chosen).map(|seed| Weather::new(seed ^ number_of(&name), Odds::default()));
        Arc::new(Self { name, namespace, plane, alone: Mutex::default(), weather })
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        // A poisoned lock: a test has panicked while it held it, and is counted by the harness.
        let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (known.open, known.changed) = (known.open.saturating_sub(1), Some(Instant::now()));
        if std::thread::panicking() {
            known.panicked.insert(self.name.clone(), true);
        }
        if let (Some(weather), Some(seed)) = (&self.weather, seed()) {
            known
                .twice
                .extend(weather.made_twice().into_iter().map(|line| format!("{} (seed {seed}): {line}", self.name)));
            if std::thread::panicking() {
                let struck = weather.struck().iter().map(|struck| format!("  {struck}\n")).collect::<String>();
                let said = format!("{FAULTS}={seed} went before, with these faults:\n{struck}");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes());
            }
        }
        drop(known);
        if let Some(plane) = self.plane {
            let alone = self.alone.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            plane.drop_namespace(self.namespace.clone(), alone);
        }
    }
}

/// The seed of the weather, if one is given.
pub(crate) fn seed() -> Option<u64> {
    let seed = std::env::var(FAULTS).ok()?;
    Some(seed.parse().unwrap_or_else(|_| panic!("{FAULTS} is no number: {seed:?}")))
}

/// A number for a test, so that each has weather of its own, which is the same when it runs alone.
fn number_of(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Ends this process when its input ends, if it is the second pass.
fn end_with_the_first_pass() {
    static WATCHING: std::sync::Once = std::sync::Once::new();
    if std::env::var_os(SECOND_PASS).is_none() {
        return;
    }
    WATCHING.call_once(|| {
        std::thread::spawn(|| {
            let mut byte = [0];
            while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
            std::process::exit(1);
        });
    });
}

/// Writes that were made twice in the tests of this process, once the last of those that have begun has ended.
pub(crate) fn made_twice() -> Vec<String> {
    scenarios();
    KNOWN.lock().unwrap().twice.clone()
}

/// The tests that have had a target, and whether they panicked, once the last of those that have begun has ended.
pub(crate) fn scenarios() -> BTreeMap<String, bool> {
    loop {
        let known = KNOWN.lock().unwrap();
        let quiet = known.changed.is_none_or(|changed| changed.elapsed() > Duration::from_secs(3));
        if known.open == 0 && quiet {
            return known.panicked.clone();
        }
        drop(known);
        std::thread::sleep(Duration::from_millis(100));
    }
}
