//! What the containers of a failed hook said last: which are asked, and how much of it is passed on.

use serde_json::Value;

/// Annotation with the occasions on which the output of a hook is shown.
const POLICY: &str = "helm.sh/hook-output-log-policy";
/// Containers whose output is shown.
const CONTAINERS: usize = 3;
/// Last lines of one container: what went wrong stands at the end.
pub const OUTPUT_LINES: usize = 10;
/// Characters of one line; the rest is left out.
const LINE: usize = 200;

/// A container of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speaker {
    /// Name of the Pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

/// Whether the output of a hook is shown when it fails: unless its author lists other occasions only.
#[must_use]
pub fn shows_output_of_failure(hook: &Value) -> bool {
    let policy = hook.pointer("/metadata/annotations").and_then(|all| all.get(POLICY)).and_then(Value::as_str);
    policy.is_none_or(|words| words.split(',').any(|word| word.trim().eq_ignore_ascii_case("hook-failed")))
}

/// The containers to ask, of the Pods of a failed hook: first those that ended with another code than 0, then those that
/// run; of Pods the newest first.
#[must_use]
pub fn speakers(pods: &[Value]) -> Vec<Speaker> {
    let text =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut pods: Vec<&Value> = pods.iter().collect();
    pods.sort_by_key(|pod| std::cmp::Reverse((text(pod, "/metadata/creationTimestamp"), text(pod, "/metadata/name"))));
    let mut found = Vec::new();
    for pod in pods {
        let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        for status in list("/status/initContainerStatuses").chain(list("/status/containerStatuses")) {
            let code = |state: &str| status.get(state)?.get("terminated")?.get("exitCode")?.as_i64();
            let has_failed = [code("state"), code("lastState")].into_iter().flatten().any(|code| code != 0);
            let is_running = status.pointer("/state/running").is_some();
            if has_failed || is_running {
                let speaker = Speaker { pod: text(pod, "/metadata/name"), container: text(status, "/name") };
                found.push((!has_failed, speaker));
            }
        }
    }
    found.sort_by_key(|(later, _)| *later);
    found.into_iter().map(|(_, speaker)| speaker).take(CONTAINERS).collect()
}

/// The last lines of an output, short enough to be part of a message, in one line. Control characters, and those that
/// change the direction of text, are escaped. Nothing if nothing was said.
#[must_use]
pub fn last_words(output: &str) -> Option<String> {
    let mut lines: Vec<String> =
        output.lines().rev().filter(|line| !line.trim().is_empty()).take(OUTPUT_LINES).map(short).collect();
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join(" | "))
}

fn short(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.trim_end().chars();
    for character in characters.by_ref().take(LINE) {
        match character {
            '\t' => text.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                text.extend(character.escape_unicode());
            }
            other if other.is_control() => text.extend(other.escape_default()),
            other => text.push(other),
        }
    }
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_author_says_when_output_is_shown() {
        let cases = [
            (None, true),
            (Some("hook-failed"), true),
            (Some("hook-succeeded, Hook-Failed"), true),
            (Some("hook-succeeded"), false),
            (Some(""), false),
        ];
        for (policy, expected) in cases {
            let hook = policy.map_or(json!({}), |text| json!({"metadata": {"annotations": {POLICY: text}}}));
            assert_eq!(shows_output_of_failure(&hook), expected, "{policy:?}");
        }
    }

    #[test]
    fn those_that_failed_are_asked_first_and_only_a_few() {
        let ended = |name: &str, code: i64| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let pod = |name: &str, created: &str, statuses: Value| json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"containerStatuses": statuses}});
        let pods = [
            pod("old", "2026-11-30T07:00:00Z", json!([ended("a", 1)])),
            pod(
                "new",
                "2026-11-30T08:00:00Z",
                json!([{"name": "side", "state": {"running": {}}}, ended("fine", 0), ended("b", 2),
                    {"name": "waits", "state": {"waiting": {"reason": "ContainerCreating"}}},
                    {"name": "loops", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 3}}}]),
            ),
        ];
        let asked: Vec<String> = speakers(&pods).into_iter().map(|it| format!("{}/{}", it.pod, it.container)).collect();
        assert_eq!(asked, ["new/b", "new/loops", "old/a"]);
        let asked: Vec<String> = speakers(&pods[1..]).into_iter().map(|it| it.container).collect();
        assert_eq!(asked, ["b", "loops", "side"]);
    }

    #[test]
    fn the_last_words_are_few_short_and_harmless() {
        assert_eq!(last_words(""), None);
        assert_eq!(last_words("\n  \n"), None);
        assert_eq!(last_words("one\r\n\ntwo\tthree  \n"), Some("one | two three".to_owned()));
        assert_eq!(last_words("\u{1b}[31mred\u{202e}\u{7}"), Some("\\u{1b}[31mred\\u{202e}\\u{7}".to_owned()));
        let long: String = (0..50).map(|number| format!("{number} {}\n", "x".repeat(1_000))).collect();
        let words = last_words(&long).unwrap();
        assert!(words.starts_with("40 xxx") && words.ends_with('…'), "{words}");
        assert!(words.len() < 2_500, "{}", words.len());
    }
}
