//! What a run told of the secrets that went into it.
//!
//! A hook that watches Secrets has their contents in its snapshots, and nothing in what comes out of the run says that
//! these texts are secret. So they are looked for while the input is at hand, and those that turn up are kept with the
//! record: whoever shows it masks them, even when the input made room for others.
//!
//! Nothing is looked at unless the run said something, and a text is searched for only if its first bytes occur there.

use std::collections::BTreeSet;

use barbless_domain::hook::{HookDeclaration, Trigger};
use barbless_domain::operation::Action;
use barbless_domain::run::{RunEnd, RunInput, RunOutcome, SnapshotItem, SnapshotState};
use serde_json::Value;

use super::{CUT, LEARNT_BYTES_MIN, LEARNT_MAX, Place, forms, places};

/// Texts that are searched for in one run. A hook that wants to hide a secret from us can, in any number of ways; what
/// it may not do is make the host search for ever.
const SEARCHES_MAX: usize = 20_000;

/// Every text that came out of a run.
#[derive(Debug, Default)]
pub(crate) struct Said(String);

impl Said {
    /// Of what came out of the sandbox.
    #[must_use]
    pub(crate) fn of(outcome: &RunOutcome) -> Self {
        let mut said = Self::default();
        for line in &outcome.log {
            said.add(&line.message);
            for (name, value) in &line.fields {
                said.add(name);
                said.add(value);
            }
        }
        said.end(&outcome.end);
        for operation in &outcome.operations {
            match &operation.action {
                Action::Create { object }
                | Action::CreateIfNotExists { object }
                | Action::CreateOrUpdate { object }
                | Action::Apply { object } => said.document(object),
                Action::MergePatch { patch } | Action::JsonPatch { patch } => said.document(patch),
                Action::JqPatch { program } => said.add(program),
                Action::Delete { .. } => {}
            }
        }
        for change in &outcome.values {
            change.value.iter().for_each(|value| said.document(value));
        }
        for metric in &outcome.metrics {
            metric.labels.iter().for_each(|(_, value)| said.add(value));
        }
        said
    }

    /// A further text: what the host or the API server made of it.
    pub(crate) fn add(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push_str(text);
            self.0.push('\0');
        }
    }

    /// How it ended.
    pub(crate) fn end(&mut self, end: &RunEnd) {
        if end.is_ok() {
            return;
        }
        self.add(&end.to_string());
        if let RunEnd::HookError(error) = end {
            error.hint.iter().for_each(|hint| self.add(hint));
        }
    }

    fn document(&mut self, value: &Value) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                self.add(key);
                self.document(value);
            }),
            Value::Array(items) => items.iter().for_each(|item| self.document(item)),
            Value::String(text) => self.add(text),
            _ => {}
        }
    }
}

/// The secret texts of an input that turn up in what the run said.
#[must_use]
pub(crate) fn told(input: &RunInput, hook: Option<&HookDeclaration>, said: &Said) -> Vec<String> {
    if said.0.len() < LEARNT_BYTES_MIN {
        return Vec::new();
    }
    let mut search = Search { said: &said.0, heads: Heads::of(&said.0), found: BTreeSet::new(), left: SEARCHES_MAX };
    for document in [&*input.values, &*input.settings] {
        Place::SecretNames.read(document, &mut |text| search.offer(text));
    }
    let mut names = vec![input.instance.name.as_str()];
    let on_secrets = |binding: &str| {
        hook.into_iter().flat_map(HookDeclaration::kubernetes).any(|it| it.name == binding && it.kind == "Secret")
    };
    for (binding, state) in &input.snapshots {
        let SnapshotState::Ready(snapshot) = state else { continue };
        let secret = on_secrets(binding);
        for item in &snapshot.items {
            search.item(item, secret);
            names.extend(secret.then_some(item.name.as_str()));
        }
    }
    if let Trigger::Events(changes) = &input.trigger {
        for change in changes {
            let secret = on_secrets(&change.binding);
            change.last.iter().for_each(|item| search.item(item, secret));
            names.extend(secret.then_some(change.name.as_str()));
        }
    }
    // As in a plan: a user is often called as its Secret is.
    search.found.retain(|text| !names.iter().any(|name| name.contains(text.as_str())));
    search.found.into_iter().take(LEARNT_MAX).collect()
}

struct Search<'a> {
    said: &'a str,
    heads: Heads,
    found: BTreeSet<String>,
    left: usize,
}

impl Search<'_> {
    fn offer(&mut self, text: &str) {
        let Self { said, heads, found, left } = self;
        forms(text, &mut |form| {
            if *left == 0 || !heads.may_have(form) || found.contains(form) {
                return;
            }
            *left -= 1;
            if occurs(said, form) {
                found.insert(form.to_owned());
            }
        });
    }

    fn item(&mut self, item: &SnapshotItem, of_secret: bool) {
        let is_object = |value: &Value| value.get("kind").is_some() && value.get("metadata").is_some();
        let whole = item.object.as_ref().or_else(|| Some(&item.projection).filter(|it| is_object(it)));
        // Annotations can make any object secret. Most have none, and there may be many objects.
        let says = |whole: &&Value| of_secret || whole.pointer("/metadata/annotations").is_some();
        let places = whole.filter(says).map(places).unwrap_or_default();
        if let Some(whole) = whole {
            places.iter().for_each(|place| place.read(whole, &mut |text| self.offer(text)));
        }
        // Who filters a Secret may give its contents any shape, so everything in it counts. Whole objects say themselves
        // what in them is secret.
        let filtered = !whole.is_some_and(|whole| std::ptr::eq(whole, &item.projection));
        if of_secret && filtered && (whole.is_none() || !places.is_empty()) {
            self.leaves(&item.projection);
        }
    }

    fn leaves(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let contents =
                    map.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "type" | "/type"));
                contents.for_each(|(_, value)| self.leaves(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.leaves(item)),
            Value::String(text) => self.offer(text),
            _ => {}
        }
    }
}

/// Whether a text stands in another, or its beginning does where that was cut.
fn occurs(said: &str, text: &str) -> bool {
    said.contains(text)
        || said.match_indices(CUT).any(|(at, _)| beginning(said.get(..at).unwrap_or(""), text).is_some())
}

/// Where the beginning of a secret stands at the end of a text.
pub(super) fn beginning(text: &str, secret: &str) -> Option<usize> {
    let head = secret.as_bytes().get(..LEARNT_BYTES_MIN)?;
    let from = text.len().saturating_sub(secret.len());
    let tail = text.as_bytes().get(from..)?;
    let at = tail.windows(LEARNT_BYTES_MIN).enumerate().find(|(at, window)| {
        *window == head && tail.get(*at..).is_some_and(|rest| secret.as_bytes().starts_with(rest))
    });
    at.map(|(at, _)| from + at)
}

/// Which beginnings of texts there are: never says no wrongly, and seldom yes.
struct Heads {
    bits: Vec<u64>,
    shift: u32,
}

impl Heads {
    fn of(text: &str) -> Self {
        // Eight bits for each window keep one in eight set.
        let size = text.len().saturating_mul(8).next_power_of_two().max(64);
        let mut heads = Self { bits: vec![0; size / 64], shift: 64 - size.trailing_zeros() };
        for window in text.as_bytes().windows(LEARNT_BYTES_MIN) {
            let (word, bit) = heads.place(window);
            if let Some(word) = heads.bits.get_mut(word) {
                *word |= 1 << bit;
            }
        }
        heads
    }

    fn may_have(&self, text: &str) -> bool {
        let Some(head) = text.as_bytes().get(..LEARNT_BYTES_MIN) else { return false };
        let (word, bit) = self.place(head);
        self.bits.get(word).is_some_and(|word| word & (1 << bit) != 0)
    }

    fn place(&self, head: &[u8]) -> (usize, u32) {
        let number = head.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (usize::try_from(hash / 64).unwrap_or(0), u32::try_from(hash % 64).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
