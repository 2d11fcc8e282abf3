use std::time::{Duration, Instant};

use barbless_domain::hook::{Stage, Trigger};
use barbless_domain::limits::RECORD_INPUT_BYTES;
use barbless_domain::package::PackageSource;
use barbless_domain::run::{
    InputOutline, Instance, LogLevel, LogLine, RunEnd, Snapshot, SnapshotItem, SnapshotOutline, Usage,
};
use barbless_domain::values;
use serde_json::json;

use super::*;

fn instance() -> Instance {
    Instance { name: "web".into(), namespace: "demo".into(), package_name: "p".into(), package_version: "1.0.0".into() }
}

fn record(application: &str) -> RunRecord {
    RunRecord {
        id: 0,
        application: application.into(),
        hook: "h".into(),
        trigger: Trigger::Lifecycle(Stage::BeforeHelm),
        attempt: 1,
        component: "sha256:0".into(),
        input_digest: "sha256:1".into(),
        input: InputOutline {
            dry_run: false,
            instance: instance(),
            values: "sha256:2".into(),
            settings: "sha256:3".into(),
            snapshots: BTreeMap::new(),
            seed: String::new(),
        },
        started_unix_ms: 1,
        end: RunEnd::Ok,
        returned: None,
        log: vec![],
        operations: vec![],
        values: vec![],
        metrics: vec![],
        told: Vec::new(),
        usage: Usage::default(),
    }
}

#[test]
fn the_ring_is_bounded_and_survives_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let log = RunLog::open(folder.path()).unwrap();
    for _ in 0..RUN_RECORDS + 3 {
        log.add(record("demo.a"), None).1.unwrap();
    }
    log.add(record("demo.b"), None).1.unwrap();
    drop(log);
    let log = RunLog::open(folder.path()).unwrap();
    assert_eq!(log.count("demo.a"), RUN_RECORDS);
    assert_eq!(log.of("demo.a")[0].id, 4);
    assert_eq!(log.add(record("demo.b"), None).0.id, RUN_RECORDS as u64 + 5, "ids go on");
}

#[test]
fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.redb");
    std::fs::write(&path, "").unwrap();
    drop(RunLog::open(folder.path()).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn records_of_applications_that_are_gone_stay_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let log = RunLog::open(folder.path()).unwrap();
    log.add(record("demo.living"), None).1.unwrap();
    for number in 0..RETIRED + 3 {
        let name = format!("demo.{number}");
        log.add(record(&name), None).1.unwrap();
        log.add(record(&name), None).1.unwrap();
        log.retire(&name);
        if number == 5 {
            log.add(record("demo.1"), None).1.unwrap();
        }
    }
    log.retire("demo.unheard-of");
    let kept = |log: &RunLog| -> Vec<usize> {
        (0..RETIRED + 3).filter(|number| log.count(&format!("demo.{number}")) > 0).collect()
    };
    let expected: Vec<usize> = [1].into_iter().chain(3..RETIRED + 3).collect();
    assert_eq!(kept(&log), expected, "one came back, and of the others the oldest are gone");
    assert_eq!((log.count("demo.1"), log.count("demo.living")), (3, 1));
    drop(log);
    let log = RunLog::open(folder.path()).unwrap();
    assert_eq!(kept(&log), expected, "on disk too");
    log.retire_all_but(&BTreeSet::from(["demo.living".to_owned()]));
    assert_eq!(kept(&log).len(), RETIRED);
    assert_eq!((log.count("demo.3"), log.count("demo.1"), log.count("demo.living")), (0, 3, 1));
}

fn large(application: &str, bytes: usize) -> RunRecord {
    let line = LogLine { level: LogLevel::Info, message: "x".repeat(bytes), fields: vec![] };
    RunRecord { log: vec![line], ..record(application) }
}

#[test]
fn large_records_do_not_fill_the_memory() {
    let log = RunLog::in_memory();
    for _ in 0..10 {
        log.add(large("demo.a", RING_BYTES / 4), None).1.unwrap();
    }
    assert_eq!(log.count("demo.a"), 3);
    log.add(large("demo.a", RING_BYTES + 1), None).1.unwrap();
    assert_eq!(log.count("demo.a"), 1, "the newest is kept");
    for number in 0..12 {
        log.add(large(&format!("demo.{number}"), RING_BYTES - 1024), None).1.unwrap();
    }
    assert!(log.state().bytes <= ALL_BYTES);
    assert_eq!((log.count("demo.a"), log.count("demo.0"), log.count("demo.11")), (0, 0, 1));
}

#[test]
fn a_damaged_file_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.redb");
    let log = RunLog::open(folder.path()).unwrap();
    for _ in 0..50 {
        log.add(record("demo.a"), None).1.unwrap();
    }
    drop(log);
    let sound = std::fs::read(&path).unwrap();
    let mut damages = vec![b"hello world".repeat(1000), sound[..100].to_vec(), sound[..sound.len() / 2].to_vec()];
    // A little of everything: the places are spread over the file by a fixed rule.
    for seed in 1_usize..12 {
        let mut bytes = sound.clone();
        for step in 0..200 {
            let at = (step * 7919 * seed + seed * 104_729) % bytes.len();
            bytes[at] ^= 1 << (step % 8);
        }
        damages.push(bytes);
    }
    for bytes in damages {
        std::fs::write(&path, bytes).unwrap();
        let log = RunLog::open(folder.path()).unwrap();
        let _ = log.add(record("demo.b"), None);
        assert!(log.count("demo.b") >= 1);
    }
    assert!(folder.path().join("runs.redb.damaged").is_file());
}

#[test]
fn a_file_that_another_process_has_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let _first = RunLog::open(folder.path()).unwrap();
    assert!(matches!(RunLog::open(folder.path()), Err(RunsError::Open { .. })));
}

fn input(objects: usize, value: &str) -> RunInput {
    let items = (0..objects).map(|number| {
        let projection = json!({"spec": {"replicas": number}, "text": "x".repeat(1000)});
        Arc::new(SnapshotItem::new("demo".into(), format!("o{number:05}"), projection, None))
    });
    RunInput {
        hook: "h".into(),
        trigger: Trigger::Lifecycle(Stage::BeforeHelm),
        attempt: 1,
        dry_run: false,
        instance: instance(),
        values: Arc::new(json!({"a": value})),
        settings: Arc::new(json!({"ratio": 0.1})),
        snapshots: BTreeMap::from([
            ("objects".to_owned(), SnapshotState::Ready(Arc::new(Snapshot::new(items.collect())))),
            ("others".to_owned(), SnapshotState::NotSynchronised("no list".to_owned())),
        ]),
        now_unix_ms: 1,
        seed: [7; 32],
    }
}

const COMPONENT: &str = "hooks/h.wasm";

/// A package that is nothing but a component.
fn package(component: &[u8]) -> Arc<Package> {
    let manifest = "apiVersion: v1\ntype: Application\nname: p\nversion: 1.0.0\nstage: Experimental\n\
                    descriptions:\n  en: A package of the tests.\n";
    let mut source = PackageSource::new().with("package.yaml", manifest);
    source.insert(COMPONENT, component.to_vec()).unwrap();
    Arc::new(Package::load(source).unwrap())
}

/// The record of a run with this input, and what is kept of it.
fn run(input: &RunInput, component: &[u8]) -> (RunRecord, Option<Inputs>) {
    let outline = InputOutline::of(input, values::digest(&input.values), values::digest(&input.settings));
    let record = RunRecord { input: outline, component: component_digest(component), ..record("demo.a") };
    let inputs =
        Inputs { input: Arc::new(input.clone()), package: package(component), component: COMPONENT.to_owned() };
    (record, Some(inputs))
}

#[test]
fn an_input_is_read_as_it_was_while_its_records_are_still_being_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Archive::open(folder.path()), Err(RunsError::Missing { .. })));
    let log = RunLog::open(folder.path()).unwrap();
    // 4 MB of objects, which the guest of a replay sees to the byte.
    let first = input(4_000, "x");
    let (record, inputs) = run(&first, b"\0asm");
    let record = log.add(record, inputs).0;
    let bare = log.add(self::record("demo.a"), None).0;
    let deadline = Instant::now() + Duration::from_secs(20);
    let archive = loop {
        // The writer is there all the time.
        let archive = Archive::open(folder.path()).unwrap();
        if archive.records().unwrap().len() == 2 {
            break archive;
        }
        assert!(Instant::now() < deadline, "the records do not come");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(archive.records().unwrap(), [RunRecord::clone(&record), RunRecord::clone(&bare)]);
    assert_eq!(archive.input(&record).unwrap(), Some(first));
    assert_eq!(archive.component(&record.component).unwrap().as_deref(), Some(b"\0asm".as_slice()));
    assert_eq!(archive.input(&bare).unwrap(), None);
    assert_eq!(archive.component("sha256:0").unwrap(), None);
    assert!(log.input(&record).is_none(), "what is on disk is not in memory too");
}

#[test]
fn a_document_of_many_runs_is_kept_once_and_goes_with_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let log = RunLog::open(folder.path()).unwrap();
    let same = input(3_000, "x");
    for _ in 0..40 {
        let (record, inputs) = run(&same, b"\0asm");
        log.add(record, inputs).1.unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(log);
    let size = std::fs::metadata(folder.path().join(disk::FILE)).unwrap().len();
    assert!(size < 4_000_000, "40 snapshots of 3 MB in {size} bytes");
    let log = RunLog::open(folder.path()).unwrap();
    for _ in 0..RUN_RECORDS {
        log.add(self::record("demo.a"), None).1.unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    drop(log);
    let log = RunLog::open(folder.path()).unwrap();
    assert_eq!(log.count("demo.a"), RUN_RECORDS);
    drop(log);
    let archive = Archive::open(folder.path()).unwrap();
    assert_eq!(archive.component(&component_digest(b"\0asm")).unwrap(), None, "nobody needs it any more");
}

#[test]
fn an_input_that_is_too_large_is_not_kept_and_its_record_is() {
    let folder = tempfile::tempdir().unwrap();
    let log = RunLog::open(folder.path()).unwrap();
    let text = "x".repeat(RECORD_INPUT_BYTES);
    let (record, inputs) = run(&input(1, &text), b"\0asm");
    let record = log.add(record, inputs).0;
    drop(log);
    let archive = Archive::open(folder.path()).unwrap();
    assert_eq!(archive.records().unwrap().len(), 1);
    assert!(!archive.has_input(&record).unwrap());
}

#[test]
fn the_oldest_inputs_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let log = RunLog::read(&folder.path().join(disk::FILE), 2_000_000).unwrap();
    let (mut records, mut state) = (Vec::new(), 1_u64);
    // Text that does not compress, so that a few runs are more than all may have.
    for _ in 0..14 {
        let text: String = (0..200_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (state >> 33) as u8 % 90)
            })
            .filter(|c| !matches!(c, '"' | '\\'))
            .collect();
        let (record, inputs) = run(&input(0, &text), b"\0asm");
        records.push(log.add(record, inputs).0);
    }
    drop(log);
    let archive = Archive::open(folder.path()).unwrap();
    let kept: Vec<bool> = records.iter().map(|record| archive.has_input(record).unwrap()).collect();
    assert!(!kept[0] && kept[13], "{kept:?}");
    assert!(kept.is_sorted(), "the oldest go first: {kept:?}");
    assert_eq!(archive.records().unwrap().len(), 14, "the records stay");
    assert!(archive.component(&records[13].component).unwrap().is_some());
}

#[test]
fn small_inputs_are_in_memory_where_there_is_no_disk() {
    let log = RunLog::in_memory();
    let small = input(3, "x");
    let (record, inputs) = run(&small, b"\0asm");
    let record = log.add(record, inputs).0;
    assert_eq!(log.input(&record).as_deref(), Some(&small));
    for large in [input(300, "x"), input(3, &"x".repeat(MEMORY_INPUT_BYTES))] {
        let (record, inputs) = run(&large, b"\0asm");
        let record = log.add(record, inputs).0;
        assert!(log.input(&record).is_none());
    }
}

/// The second record of an unchanged snapshot must cost next to nothing. Measured with a snapshot of 5 MB, compiled for
/// tests, on two cores that were busy with other work: 0.6 to 0.9 s to write everything out, as each record did once,
/// and 0.07 ms where nothing had changed.
#[test]
fn an_unchanged_snapshot_is_not_read_again() {
    let input = input(5_000, "x");
    let outline = || InputOutline::of(&input, values::digest(&input.values), values::digest(&input.settings));
    let first = outline();
    let begun = Instant::now();
    assert!(size_within(&input, MEMORY_INPUT_BYTES).is_none());
    assert_eq!(outline(), first);
    let spent = begun.elapsed();
    let SnapshotState::Ready(snapshot) = &input.snapshots["objects"] else { panic!("it is there") };
    let begun = Instant::now();
    let whole = serde_json::to_string(&**snapshot).unwrap();
    let written = begun.elapsed();
    assert!(whole.len() > 5_000_000);
    assert!(spent < written / 10 + Duration::from_millis(1), "{spent:?} against {written:?}");
    let SnapshotOutline::Ready { objects, bytes, .. } = first.snapshots["objects"] else { panic!("it is there") };
    assert!(objects == 5_000 && bytes > 5_000_000);
}

#[test]
fn the_digest_follows_every_part_of_the_input() {
    fn digest(input: &RunInput) -> String {
        let outline = InputOutline::of(input, values::digest(&input.values), values::digest(&input.settings));
        outline.digest(&input.hook, &input.trigger, input.attempt, input.now_unix_ms)
    }
    let first = input(3, "x");
    assert_eq!(digest(&first), digest(&input(3, "x")), "it says nothing of where the input lies");
    let mut unsynchronised = input(3, "x");
    unsynchronised.snapshots.insert("objects".into(), SnapshotState::NotSynchronised("no list".into()));
    let others = [
        input(4, "x"),
        input(3, "y"),
        unsynchronised,
        RunInput { attempt: 2, ..first.clone() },
        RunInput { hook: "i".into(), ..first.clone() },
        RunInput { dry_run: true, ..first.clone() },
        RunInput { settings: Arc::new(json!({"b": 1})), ..first.clone() },
        RunInput { now_unix_ms: 2, ..first.clone() },
        RunInput { seed: [8; 32], ..first.clone() },
        RunInput { trigger: Trigger::Schedule("s".into()), ..first.clone() },
        RunInput { snapshots: BTreeMap::new(), ..first.clone() },
    ];
    for other in others {
        assert_ne!(digest(&other), digest(&first), "{other:?}");
    }
}
