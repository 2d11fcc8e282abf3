//! The state of one render: what was used of the budget, and what the host passed in.

use std::{
    collections::HashMap,
    rc::{Rc, Weak},
};

use rand_chacha::{ChaCha12Rng, rand_core::SeedableRng};
use regex::Regex;
use serde_json::Value as Json;

use crate::{
    exec::Fault,
    limits::{Limit, Limits},
    render::Lookup,
    value::{Map, Value},
};

/// How often the caller's deadline is asked, in steps: often enough to stop within a millisecond.
const DEADLINE_EVERY: u64 = 1024;

type Steps = u64;

/// An answer of the cluster, and its bytes.
type LookedUp = (Result<Rc<Json>, String>, usize);

/// However large the limit is set: the stack of a render is sized for no more.
pub(crate) const DEPTH_MAX: u32 = 20_000;

pub(crate) struct Run<'r> {
    pub(crate) limits: &'r Limits,
    lookup: &'r dyn Lookup,
    /// What was looked up, by API version, kind, namespace and name, with the size of the answer.
    looked_up: HashMap<[String; 4], LookedUp>,
    looked_up_bytes: usize,
    pub(crate) deadline: &'r dyn Fn() -> bool,
    pub(crate) now_unix_ms: i64,
    pub(crate) rng: ChaCha12Rng,
    /// Nested `include`s by name; Helm allows a thousand.
    pub(crate) included: HashMap<Rc<str>, u32>,
    pub(crate) regexes: HashMap<String, Regex>,
    steps: Steps,
    deadline_at: Steps,
    allocated: u64,
    written: usize,
    depth: u32,
    /// Maps that `set` and its family changed: only these can be part of a cycle, and cycles are cut when the run ends.
    changed: Vec<Weak<Map>>,
}

impl<'r> Run<'r> {
    pub(crate) fn new(
        limits: &'r Limits,
        lookup: &'r dyn Lookup,
        deadline: &'r dyn Fn() -> bool,
        now_unix_ms: i64,
        seed: [u8; 32],
    ) -> Self {
        Self {
            limits,
            lookup,
            looked_up: HashMap::new(),
            looked_up_bytes: 0,
            deadline,
            now_unix_ms,
            rng: ChaCha12Rng::from_seed(seed),
            included: HashMap::new(),
            regexes: HashMap::new(),
            steps: 0,
            deadline_at: 0,
            allocated: 0,
            written: 0,
            depth: 0,
            changed: Vec::new(),
        }
    }

    /// An object of the cluster, or a list when the name is empty. The same question has the same answer for the whole
    /// render, whatever happens in the cluster meanwhile.
    pub(crate) fn look_up(&mut self, question: [&str; 4]) -> Result<Rc<Json>, Fault> {
        const STEPS: u64 = 100;
        self.charge(STEPS)?;
        let key = question.map(str::to_owned);
        if !self.looked_up.contains_key(&key) {
            if self.looked_up.len() >= self.limits.lookups as usize {
                return Err(Limit::Lookups.into());
            }
            let [api_version, kind, namespace, name] = question;
            let answer = match self.lookup.lookup(api_version, kind, namespace, name) {
                Ok(Json::Null) => Ok(Json::Object(serde_json::Map::new())),
                Ok(object @ Json::Object(_)) => Ok(object),
                Ok(other) => Err(format!("the answer is of type {}, not an object", crate::json::kind(&other))),
                Err(message) => Err(message),
            };
            let bytes = answer.as_ref().map_or(0, json_bytes);
            self.looked_up_bytes = self.looked_up_bytes.saturating_add(bytes);
            if self.looked_up_bytes > self.limits.lookup_bytes {
                return Err(Limit::LookupSize.into());
            }
            self.looked_up.insert(key.clone(), (answer.map(Rc::new), bytes));
        }
        let Some((answer, bytes)) = self.looked_up.get(&key) else {
            return Err(Fault::message("the answer of the cluster was lost"));
        };
        let (answer, bytes) = (answer.clone(), *bytes);
        self.charge(bytes as u64 / 64)?;
        self.allocate(bytes)?;
        answer.map_err(Fault::Message)
    }

    pub(crate) fn step(&mut self) -> Result<(), Limit> {
        self.charge(1)
    }

    /// Accounts for work that costs as much as so many steps.
    pub(crate) fn charge(&mut self, steps: Steps) -> Result<(), Limit> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.steps {
            return Err(Limit::Steps);
        }
        if self.steps >= self.deadline_at {
            self.deadline_at = self.steps + DEADLINE_EVERY;
            if (self.deadline)() {
                return Err(Limit::Deadline);
            }
        }
        Ok(())
    }

    pub(crate) fn enter(&mut self) -> Result<(), Limit> {
        self.depth += 1;
        if self.depth > self.limits.depth.min(DEPTH_MAX) { Err(Limit::Depth) } else { Ok(()) }
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Accounts for text that a template writes.
    pub(crate) fn output(&mut self, bytes: usize) -> Result<(), Limit> {
        self.allocate(bytes)?;
        self.written = self.written.saturating_add(bytes);
        // Text inside `include` is written again by whoever prints it: only the innermost writing is new text, so the
        // bound on the rendered files themselves is checked again where a file ends.
        if self.written > self.limits.output_bytes.saturating_mul(16) { Err(Limit::Output) } else { Ok(()) }
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), Limit> {
        self.allocated = self.allocated.saturating_add(bytes as u64);
        if self.allocated > self.limits.memory_bytes { Err(Limit::Memory) } else { Ok(()) }
    }

    /// Accounts for a string before it is made.
    pub(crate) fn string(&mut self, bytes: usize) -> Result<(), Limit> {
        if bytes > self.limits.string_bytes {
            return Err(Limit::StringSize);
        }
        self.allocate(bytes)
    }

    /// Accounts for a collection before it is made.
    pub(crate) fn items(&mut self, count: usize) -> Result<(), Limit> {
        if count > self.limits.collection_items {
            return Err(Limit::Collection);
        }
        self.charge(count as u64 / 16)?;
        self.allocate(count.saturating_mul(size_of::<Value>() + 16))
    }

    pub(crate) fn changed(&mut self, map: &Rc<Map>) {
        self.changed.push(Rc::downgrade(map));
    }
}

/// About as many bytes as the value has as JSON.
fn json_bytes(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) => 4,
        Json::Number(_) => 8,
        Json::String(text) => text.len() + 2,
        Json::Array(items) => 2 + items.iter().map(|item| json_bytes(item) + 1).sum::<usize>(),
        Json::Object(entries) => 2 + entries.iter().map(|(key, item)| key.len() + 4 + json_bytes(item)).sum::<usize>(),
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for map in self.changed.drain(..) {
            if let Some(map) = map.upgrade() {
                let entries = std::mem::take(&mut *map.entries.borrow_mut());
                drop(entries);
            }
        }
    }
}
