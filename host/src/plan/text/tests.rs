use barbless_domain::identity::{Gvk, ObjectRef};
use barbless_domain::release::HookEvent;
use serde_json::json;

use super::super::document::{HookLater, Revision, Summary};
use super::*;
use crate::report::Exit;

fn target(kind: &str, name: &str) -> ObjectRef {
    let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() };
    ObjectRef { gvk, namespace: "demo".to_owned(), name: name.to_owned() }
}

fn part(kind: &str, name: &str, change: Change) -> ObjectPart {
    ObjectPart {
        target: target(kind, name),
        change,
        source: "templates/a.yaml".to_owned(),
        events: Vec::new(),
        reason: None,
        notes: Vec::new(),
        fields: Vec::new(),
        difference: Difference::default(),
    }
}

fn document() -> Document {
    let lines =
        |lines: &[&str]| Difference { lines: lines.iter().map(|line| (*line).to_owned()).collect(), lines_cut: 0 };
    let changed = ObjectPart {
        difference: Difference { lines_cut: 2, ..lines(&["@@ -1 +1 @@", "-a: 1", "+a: 2"]) },
        ..part("ConfigMap", "a", Change::Change)
    };
    let conflict = ObjectPart {
        fields: vec![FieldPart { field: ".data.x".to_owned(), manager: "kubectl".to_owned(), settlement: "open" }],
        ..part("ConfigMap", "c", Change::Conflict)
    };
    let hook = ObjectPart { events: vec![HookEvent::PreUpgrade], ..part("Pod", "h", Change::Create) };
    let denied = ProblemPart {
        reason: "NotGranted".to_owned(),
        message: "hook 'greet': create Secret demo/s: no permission".to_owned(),
        hint: Some("grant it".to_owned()),
        denied: true,
    };
    let operation = |change: Change, denied: Option<ProblemPart>| OperationPart {
        operation: "create Secret demo/s".to_owned(),
        denied,
        object: ObjectPart { source: String::new(), ..part("Secret", "s", change) },
    };
    let greet = HookPart {
        hook: "greet".to_owned(),
        trigger: "beforeHelm".to_owned(),
        failure: None,
        log: vec!["info: \u{1b}[31mhello\nworld".to_owned()],
        values: lines(&["+internal: 1"]),
        operations: vec![operation(Change::Create, None), operation(Change::Refused, Some(denied.clone()))],
    };
    let mut document = Document {
        application: "demo.web".to_owned(),
        package: "site".to_owned(),
        version: "1.0.0".to_owned(),
        cluster: "an empty development cluster".to_owned(),
        action: "upgrade".to_owned(),
        revision: Revision { from: Some(1), to: Some(2) },
        reason: Some("the rendered manifests changed".to_owned()),
        settings: lines(&["-a: 1", "+a: 2"]),
        hooks: vec![greet],
        hooks_later: vec![HookLater { hook: "after".to_owned(), trigger: "afterHelm".to_owned() }],
        steps: Vec::new(),
        stages: vec![Stage {
            acts: vec![("apply".to_owned(), vec!["ConfigMap/a".to_owned(), "ConfigMap/b".to_owned()])],
            after: vec!["hook Pod/h has ended".to_owned()],
        }],
        objects: vec![
            hook,
            changed,
            part("ConfigMap", "b", Change::Unchanged),
            conflict,
            part("ConfigMap", "d", Change::Delete),
        ],
        notes: vec!["a note".to_owned()],
        problems: vec![denied],
        summary: Summary::default(),
    };
    document.summary = document.count();
    document
}

const EXPECTED: &str = r"application demo.web: package site 1.0.0
cluster: an empty development cluster
upgrade, revision 1 → 2: the rendered manifests changed

settings
  -a: 1
  +a: 2

hooks
  greet (beforeHelm)
    log info: \u{1b}[31mhello\nworld
    values
      +internal: 1
    + create Secret demo/s
    ! create Secret demo/s: denied
      [NotGranted] hook 'greet': create Secret demo/s: no permission
        help: grant it
  after (afterHelm): runs when the plan is carried out

2 steps in 1 stage
  1. apply ConfigMap/a, ConfigMap/b
     after: hook Pod/h has ended

objects
  + create Pod/h (pre-upgrade hook)  # templates/a.yaml
  ~ change ConfigMap/a  # templates/a.yaml
      @@ -1 +1 @@
      -a: 1
      +a: 2
      … 2 lines more
  ! conflict ConfigMap/c  # templates/a.yaml
      field .data.x of manager \u{22}kubectl\u{22}: nobody says whether it is taken or left
  - delete ConfigMap/d  # templates/a.yaml

notes
  a note

in the way
  [NotGranted] hook 'greet': create Secret demo/s: no permission
    help: grant it

plan: 0 to create, 1 to change, 1 to delete, 1 in the way, 1 unchanged; 1 hook with 1 change; 1 Helm hook
";

#[test]
fn a_plan_reads_from_the_cause_to_the_sum() {
    assert_eq!(print(&document(), false), EXPECTED.replace(r"\u{22}", "\""));
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = print(&document(), true);
    assert!(coloured.contains("\u{1b}[32m      +a: 2\u{1b}[0m\n"), "{coloured}");
    let mut plain = coloured;
    for colour in [RED, GREEN, YELLOW, CYAN, BOLD, RESET] {
        plain = plain.replace(colour, "");
    }
    assert_eq!(plain, print(&document(), false));
}

#[test]
fn the_end_says_whether_anything_would_change() {
    let mut document = document();
    assert_eq!(document.exit(), Exit::Denied);
    document.problems[0].denied = false;
    assert_eq!(document.exit(), Exit::Failed);
    document.problems.clear();
    assert_eq!(document.exit(), Exit::Difference);
    document.reason = None;
    document.hooks.clear();
    document.objects.retain(|object| object.change == Change::Unchanged);
    document.summary = document.count();
    assert_eq!(document.exit(), Exit::Ok);
    assert_eq!(document.summary.words(), "plan: 0 to create, 0 to change, 1 unchanged; 0 hooks");
}

#[test]
fn the_document_is_json_with_the_words_of_the_host() {
    let document = serde_json::to_value(document()).expect("JSON");
    assert_eq!(document["objects"][1]["change"], "change");
    assert_eq!(document["objects"][0]["events"], json!(["pre-upgrade"]));
    assert_eq!(document["hooks"][0]["operations"][1]["denied"]["reason"], "NotGranted");
    assert_eq!(document["hooks"][0]["operations"][0]["target"]["name"], "s");
    assert_eq!(document["summary"]["inTheWay"], 1);
}
