//! Programs that only pick fields are evaluated without the evaluator. Whatever it is that they are given, the answer is
//! the evaluator's: shown for programs and texts by chance, the same ones each time.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};
use serde_json::{Map, Number, Value, json};

use super::{apply, filter};

/// Few keys, so that programs meet fields that are there.
const KEYS: [&str; 9] = ["a", "b", "c", "metadata", "labels", "x-y", "ä", "", "0"];

struct Chance(ChaCha8Rng);

impl Chance {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
    }

    fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.below(9) as usize]
    }

    fn text(&mut self) -> String {
        let chars = ['a', 'ß', '"', '\\', '\n', '\u{0}', '\u{7f}', '/', '😀', '\u{2028}', ' ', '\u{fffd}'];
        (0..self.below(6)).map(|_| chars[self.below(12) as usize]).collect()
    }

    fn json(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 8 } else { 14 }) {
            0 => Value::Null,
            1 => Value::from(self.one_in(2)),
            2 => Value::from(self.below(10)),
            3 => Value::from(self.0.next_u64() as i64),
            4 => Value::from(self.0.next_u64()),
            5 => Number::from_f64(f64::from_bits(self.0.next_u64())).map_or(Value::Null, Value::Number),
            6 => Value::from(f64::from(self.below(100)) / 4.0),
            7 => Value::from(self.text()),
            8..=11 => {
                let entries = (0..self.below(5)).map(|_| (self.key().to_owned(), self.json(depth - 1)));
                Value::Object(Map::from_iter(entries.collect::<Vec<_>>()))
            }
            _ => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
        }
    }

    /// JSON text as no serializer would write it: spaces, escapes, fields twice, damage.
    fn document(&mut self) -> String {
        let value = self.json(5);
        let mut text = if self.one_in(3) { format!("{value:#} ") } else { value.to_string() };
        if self.one_in(4) {
            text = text.replace("\"a\"", "\"\\u0061\"").replace('ä', "\\u00e4").replace("\"c\"", "\"\\ud83d\\ude00\"");
        }
        if self.one_in(4) && text.starts_with('{') && value != json!({}) {
            let other = self.json(2);
            text = format!("{{\"a\":{other},\"metadata\":{other},{}", &text[1..]);
        }
        match self.below(30) {
            0 => text.replace(":", ""),
            1 => text.replace('[', "[01,"),
            2 => text.replace("\"b\"", "\"\\ud800\""),
            3 => text.replace("\"b\"", "\"\\q\""),
            4 => text.replace('}', ",}"),
            5 => text + "x",
            _ => text,
        }
    }

    fn path(&mut self) -> String {
        let steps: String = (0..self.below(4))
            .map(|_| match self.below(3) {
                0 => format!(".{}", KEYS[self.below(5) as usize]),
                1 => format!(".[\"{}\"]", self.key()),
                _ => format!(".\"{}\"", self.key()),
            })
            .collect();
        if steps.is_empty() { ".".to_owned() } else { steps }
    }

    fn form(&mut self, depth: u32) -> String {
        match self.below(if depth == 0 { 1 } else { 3 }) {
            0 => self.path(),
            1 => {
                let items: Vec<String> = (0..self.below(3)).map(|_| self.form(depth - 1)).collect();
                format!("[{}]", items.join(", "))
            }
            _ => {
                let mut entries: Vec<String> = Vec::new();
                for key in KEYS.iter().take(self.below(4) as usize) {
                    entries.push(if self.one_in(4) {
                        format!("\"{key}\"")
                    } else {
                        format!("\"{key}\": {}", self.form(depth - 1))
                    });
                }
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    fn program(&mut self) -> String {
        let form = self.form(2);
        if self.one_in(3) { format!("{} | {form}", self.path()) } else { form }
    }
}

#[test]
fn plain_programs_give_what_the_evaluator_gives() {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(1));
    let (mut plain, mut answers, mut failures) = (0, 0, 0);
    for _ in 0..250 {
        let program = chance.program();
        let filter = filter(&program);
        plain += u32::from(filter.is_plain());
        for _ in 0..16 {
            let text = chance.document();
            let found = filter.apply(text.as_bytes());
            assert_eq!(found, filter.apply_in_evaluator(&text), "{program} on {text}");
            if found.is_ok() { answers += 1 } else { failures += 1 }
        }
    }
    // The comparison is about something.
    assert!(plain > 200 && answers > 500 && failures > 500, "{plain} {answers} {failures}");
}

#[test]
fn json_comes_out_as_it_went_in() {
    // Numbers with a fraction are written in more than one way, and large ones become such.
    fn is_exact(value: &Value) -> bool {
        match value {
            Value::Number(number) => number.is_i64(),
            Value::Array(items) => items.iter().all(is_exact),
            Value::Object(entries) => entries.values().all(is_exact),
            _ => true,
        }
    }
    let filter = filter("[.][0]");
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(2));
    for _ in 0..2_000 {
        let value = chance.json(5);
        let found = apply(&filter, &value.to_string()).unwrap();
        let found: Vec<Value> = found.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        assert_eq!(found.len(), 1, "{value}");
        if is_exact(&value) {
            assert_eq!(found, vec![value]);
        }
    }
}

#[test]
fn most_filters_are_plain() {
    for program in
        [".metadata.labels", "{name: .metadata.name, data}", ".metadata | {name, namespace}", ".data[\"tls.crt\"]"]
    {
        assert!(filter(program).is_plain(), "{program}");
    }
    assert!(!filter(".spec.containers[].image").is_plain());
}
