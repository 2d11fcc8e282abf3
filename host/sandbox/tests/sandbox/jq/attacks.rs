//! The attack table: each program is bounded in time and memory, ends by name, and leaves the next evaluation alone.

use std::time::{Duration, Instant};

use barbless_domain::limits::JqLimits;
use barbless_sandbox::JqError;

use super::{apply, filter, filter_with, refusal};

/// Limits that make tests fast.
fn limits() -> JqLimits {
    JqLimits {
        cpu_ms: 200,
        wall_ms: 20_000,
        memory_bytes: 16 << 20,
        output_bytes: 64 << 10,
        outputs: 100,
        ..JqLimits::default()
    }
}

/// How a program ends: its outputs or the reason.
fn end(program: &str, input: &str) -> String {
    let filter = filter_with(program, limits());
    let begun = Instant::now();
    let end = match apply(&filter, input) {
        Ok(outputs) => outputs.join(" "),
        Err(error) => {
            assert!(!error.hint().is_empty());
            error.reason().to_owned()
        }
    };
    // On a machine that is busy with other tests, CPU time is a fraction of the time on the wall.
    assert!(begun.elapsed() < Duration::from_secs(15), "{program} took {:?}", begun.elapsed());
    end
}

#[test]
fn each_attack_ends_in_time_and_by_name() {
    let time = ["JqTimedOut"].as_slice();
    let memory = ["JqOutOfMemory"].as_slice();
    // Which is used up first depends on the machine.
    let either = ["JqTimedOut", "JqOutOfMemory"].as_slice();
    let output = ["JqTooLarge"].as_slice();
    for (program, expected) in [
        // Without an end.
        ("last(range(infinite))", time),
        ("def f: f; f", time),
        ("until(false; .)", time),
        ("last(repeat(1))", either),
        ("first(range(infinite) | select(. < 0))", time),
        ("reduce range(infinite) as $x (0; . + $x)", time),
        ("label $out | foreach range(infinite) as $x (0; . + 1; empty)", time),
        ("[range(1e18)] | length", either),
        ("[recurse(. + 1)] | length", either),
        // Recursion.
        ("def f: 1 + f; f", memory),
        ("def f: [f]; f", memory),
        ("def f(g): 1 + f(g | g); f(.)", either),
        ("reduce range(1000000) as $i (null; [.]) | tojson", either),
        // Growth.
        ("reduce range(64) as $i (\"x\"; . + .) | length", either),
        ("reduce range(64) as $i ([1]; . + .) | length", either),
        ("reduce range(40) as $i ([1]; [., .]) | tojson | length", either),
        ("reduce range(64) as $i ({}; .[\"k\\($i)\"] = [., .]) | tostring | length", either),
        ("[range(1e7)] | map([., .]) | length", either),
        ("[limit(100000000; repeat(\"x\"))] | add | length", either),
        ("reduce range(63) as $i (1; . * 2 + 1) | [range(.)] | length", either),
        ("setpath([10000000]; 1) | length", memory),
        ("[combinations(30)] | length", ["JqFailed"].as_slice()),
        ("[[range(10)] | combinations(12)] | length", either),
        // Output.
        ("repeat(1)", output),
        ("range(101)", output),
        ("[range(100000)]", output),
        ("reduce range(40) as $i ([1]; [., .])", output),
        ("\"x\" * 100000", output),
        ("\"x\" * 10000000 | ., .", ["JqTooLarge", "JqOutOfMemory"].as_slice()),
        // Refused by the evaluator itself.
        ("\"x\" * 100000000", ["JqFailed"].as_slice()),
        ("\"xyz\" * 1e18", ["JqFailed"].as_slice()),
        ("setpath([1000000000]; 1)", ["JqFailed"].as_slice()),
        (".[1e18] = 1", ["JqFailed"].as_slice()),
    ] {
        let end = end(program, "null");
        assert!(expected.contains(&end.as_str()), "{program}: {end}");
    }
}

#[test]
fn regular_expressions_take_no_more_time_than_allowed() {
    let text = format!("\"{}\"", "a".repeat(20_000));
    for program in [
        "test(\"(a*)*(a*)*(a*)*b\")",
        "test(\"(a|a)*$x\")",
        "[match(\"(a|aa)+$\"; \"g\")] | length > 0",
        "test(\"(((((a{1,100}){1,100}){1,100}){1,100}){1,100})\")",
        "[scan(\"(.*)(.*)(.*)(.*)x\")] | length",
        "gsub(\"\"; \"a\") | length",
    ] {
        let end = end(program, &text);
        let known = ["true", "false", "0", "40001", "JqTimedOut", "JqOutOfMemory", "JqFailed"];
        assert!(known.contains(&end.as_str()), "{program}: {end}");
    }
}

#[test]
fn deep_inputs_are_refused_and_not_followed() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(end("tojson | length", &nested(300)), "600");
    for levels in [600, 100_000, 1_000_000] {
        assert_eq!(end("length", &nested(levels)), "JqTooLarge");
    }
    assert_eq!(end("fromjson", &format!("\"{}\"", "[".repeat(100_000))), "JqFailed");
    // A plain filter does not look at what it is not asked for, and bounds what it is.
    assert_eq!(end(".a", &format!("{{\"a\":{}}}", nested(100_000))), "JqTooLarge");
}

#[test]
fn inputs_have_a_size() {
    let filter = filter_with("length", JqLimits { input_bytes: 10, ..limits() });
    assert_eq!(apply(&filter, "[1,2,3]"), Ok(vec!["3".to_owned()]));
    let error = apply(&filter, "[1,2,3,4,5]").unwrap_err();
    assert_eq!(error, JqError::TooLarge { what: "bytes of the input", limit: 10 });
    assert_eq!(error.to_string(), "the jq program has more than 10 bytes of the input");
}

#[test]
fn what_a_plain_filter_gives_is_bounded_too() {
    let filter = filter_with(".a", JqLimits { output_bytes: 5, ..limits() });
    assert!(filter.is_plain());
    assert_eq!(apply(&filter, r#"{"a":"abc"}"#), Ok(vec!["\"abc\"".to_owned()]));
    let error = apply(&filter, r#"{"a":"abcd"}"#).unwrap_err();
    assert_eq!(error, JqError::TooLarge { what: "bytes of output", limit: 5 });
    let filter = filter_with("[.a][0]", JqLimits { output_bytes: 5, ..limits() });
    assert_eq!(apply(&filter, r#"{"a":"abcd"}"#), Err(error));
}

/// What reaches out of an evaluation does not exist, and the refusal says where and what to do.
#[test]
fn nothing_reaches_out_of_an_evaluation() {
    for (program, missing, hint) in [
        ("env", "env", "values"),
        ("[1] | env.PATH", "env", "values"),
        ("$ENV", "$ENV", "values"),
        ("$ENV.PATH", "$ENV", "values"),
        ("input", "input", "one object at a time"),
        ("[inputs]", "inputs", "one object at a time"),
        ("input_filename", "input_filename", "one object at a time"),
        ("debug", "debug", "log in the hook"),
        ("debug(1)", "debug", "log in the hook"),
        ("stderr", "stderr", "log in the hook"),
        ("halt", "halt", "`empty`"),
        ("halt_error", "halt_error", "`empty`"),
        ("\"x\" | halt_error(3)", "halt_error", "`empty`"),
        ("now", "now", "same for the same object"),
        ("$__prog_args", "$__prog_args", "spelling"),
        ("$__loc__", "$__loc__", "spelling"),
        ("get_search_list", "get_search_list", "spelling"),
        ("splits", "splits", "number of arguments"),
        ("import \"a\" as a; a::f", "modules", "into the program"),
        ("import \"a\" as $a; $a", "modules", "into the program"),
        ("include \"/etc/passwd\"; .", "modules", "into the program"),
    ] {
        let error = refusal(program);
        let JqError::BadProgram { message, offset, hint: told, .. } = &error else { panic!("{program}: {error:?}") };
        assert!(message.contains(missing), "{program}: {message}");
        assert!(told.contains(hint), "{program}: {told}");
        let part = program.get(*offset..).unwrap_or_default();
        assert!(part.starts_with(missing) || missing == "modules", "{program}: {part}");
    }
    // Escaped for the shell, and never seen by one.
    assert_eq!(end("@sh", "\"a'; reboot\""), "\"'a'\\\\''; reboot'\"");
    // The time zone is none of the host's business.
    assert_eq!(end("1700000000 | localtime | mktime", "null"), "1700000000");
}

#[test]
fn refusals_tell_the_place() {
    for (program, at) in [
        (".a | foo", (1, 6)),
        (".a |\n  {b: (1 + )}", (2, 12)),
        ("[1, 2", (1, 6)),
        ("\"ä\" | bar(1; 2)", (1, 7)),
        ("", (1, 1)),
    ] {
        let error = refusal(program);
        let JqError::BadProgram { line, column, .. } = &error else { panic!("{program}: {error:?}") };
        assert_eq!((*line, *column), at, "{program}: {error}");
        assert_eq!(error.reason(), "JqBadProgram");
    }
}

#[test]
fn hostile_programs_are_refused_in_time() {
    let deep = format!("{}1{}", "(".repeat(30_000), ")".repeat(30_000));
    let long = ".a|".repeat(30_000);
    for program in [deep, "[".repeat(60_000), "{a:".repeat(20_000), "-".repeat(60_000), "\"\\(".repeat(15_000)] {
        let begun = Instant::now();
        let error = refusal(&program);
        assert!(matches!(error.reason(), "JqBadProgram" | "JqTimedOut" | "JqOutOfMemory"), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
    let error = refusal(&long);
    assert_eq!(error, JqError::TooLarge { what: "bytes of the program", limit: 64 * 1024 });
}

#[test]
fn a_filter_goes_on_after_each_kind_of_end() {
    let program = "if . == 1 then last(range(infinite)) elif . == 2 then (def f: 1 + f; f) \
        elif . == 3 then [range(1e9)] elif . == 4 then error(\"no\") elif . == 5 then range(1e9) else \"well\" end";
    let filter = filter_with(program, limits());
    for input in 1..=5 {
        assert!(apply(&filter, &input.to_string()).is_err());
        assert_eq!(apply(&filter, "0"), Ok(vec!["\"well\"".to_owned()]), "after {input}");
    }
    assert_eq!(apply(&filter, "4").unwrap_err(), JqError::Failed { message: "no".to_owned() });
}

#[test]
fn text_of_programs_cannot_draw_on_a_terminal() {
    let error = apply(&filter("error(\"\\u001b[31m\\n\")"), "null").unwrap_err();
    assert_eq!(error.to_string(), "the jq program failed: \\u{1b}[31m\\n");
}

#[test]
fn inputs_that_are_no_json_are_named_so() {
    for (input, what) in [
        ("", "value"),
        ("{", "key"),
        ("[1,]", "value"),
        ("01", "after the end"),
        ("NaN", "value"),
        ("nul", "value"),
        ("\"\t\"", "control"),
        ("[1] 2", "after the end"),
        ("# 1", "value"),
    ] {
        for program in [".", "length"] {
            let error = apply(&filter(program), input).unwrap_err();
            assert!(matches!(&error, JqError::BadInput { message } if message.contains(what)), "{input}: {error:?}");
        }
    }
    assert_eq!(filter(".").apply(b"\"\xff\"").unwrap_err().reason(), "JqBadInput");
}
