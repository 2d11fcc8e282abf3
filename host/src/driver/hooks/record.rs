//! What a run record keeps of the input of its run: a digest always, the whole of it while it is small.
//!
//! This is on the way of every run, and snapshots may be large: nothing is written out that is not kept, and the digest
//! of what has not changed since the last run is not worked out again.

use barbless_domain::run::{RunInput, SnapshotState, Sum};
use serde::Serialize;
use serde_json::{Value, json};

/// Digests of the values and of the settings, known since they were computed.
pub(super) struct Documents {
    pub(super) values: String,
    pub(super) settings: String,
}

/// `sha256:…` of the input: of its small parts, and of the digests of its large ones.
pub(super) fn digest(input: &RunInput, documents: &Documents) -> String {
    let RunInput { hook, trigger, attempt, dry_run, instance, values: _, settings: _, snapshots, now_unix_ms, seed } =
        input;
    let snapshots: serde_json::Map<String, Value> = snapshots
        .iter()
        .map(|(binding, state)| {
            let value = match state {
                SnapshotState::Ready(snapshot) => json!({ "sha256": hex(&snapshot.sum().digest) }),
                SnapshotState::NotSynchronised(reason) => json!({ "notSynchronised": reason }),
            };
            (binding.clone(), value)
        })
        .collect();
    let parts = json!({
        "hook": hook,
        "trigger": trigger,
        "attempt": attempt,
        "dryRun": dry_run,
        "instance": instance,
        "values": documents.values,
        "settings": documents.settings,
        "snapshots": snapshots,
        "nowUnixMs": now_unix_ms,
        "seed": hex(seed),
    });
    format!("sha256:{}", hex(&Sum::of(&parts).digest))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Everything that went into a run as a document, unless it is larger than so many bytes of JSON text.
pub(super) fn document(input: &RunInput, bytes_max: usize) -> Option<Value> {
    let sizes = input.snapshots.values().map(|state| match state {
        SnapshotState::Ready(snapshot) => snapshot.sum().bytes,
        SnapshotState::NotSynchronised(reason) => reason.len(),
    });
    let snapshots = sizes.fold(0, usize::saturating_add);
    let left = bytes_max.checked_sub(snapshots)?;
    let left = left.checked_sub(bytes_within(&*input.values, left)?)?;
    let left = left.checked_sub(bytes_within(&*input.settings, left)?)?;
    bytes_within(&(&input.trigger, &input.instance), left)?;
    let snapshots: serde_json::Map<String, Value> = input
        .snapshots
        .iter()
        .map(|(binding, state)| {
            let value = match state {
                SnapshotState::Ready(snapshot) => json!({ "items": snapshot.items }),
                SnapshotState::NotSynchronised(reason) => json!({ "notSynchronised": reason }),
            };
            (binding.clone(), value)
        })
        .collect();
    Some(json!({
        "hook": input.hook,
        "trigger": input.trigger,
        "attempt": input.attempt,
        "dryRun": input.dry_run,
        "instance": input.instance,
        "values": *input.values,
        "settings": *input.settings,
        "snapshots": snapshots,
        "nowUnixMs": input.now_unix_ms,
        "seed": hex(&input.seed),
    }))
}

/// How many bytes a document has as JSON text; nothing if it has more than this. No more of it is looked at.
fn bytes_within(document: &impl Serialize, max: usize) -> Option<usize> {
    struct Counter {
        left: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
            self.left = self.left.checked_sub(part.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(part.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { left: max };
    serde_json::to_writer(&mut counter, document).ok().map(|()| max - counter.left)
}

#[cfg(test)]
mod tests;
