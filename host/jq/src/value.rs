//! The values of jq programs, with the meaning that jq and gojq give to operations on them.
//!
//! Objects are sorted by key, as in gojq: what a program gives does not depend on the order in which a server wrote the
//! fields of an object.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use std::rc::Rc;

use jaq_core::box_iter::{BoxIter, box_once};
use jaq_core::path::Opt;
use jaq_core::val::{Range, ValR, ValX};
use jaq_core::{Exn, ValT};

use crate::number::Number;
use crate::{json, short};

/// Bytes that repetition may make of a string. What is more does not fit into memory with its copies.
const REPEATED_BYTES: usize = 16 * 1024 * 1024;
/// Places to which an array may grow by an assignment behind its end.
const ARRAY_ITEMS: i64 = 1 << 24;
/// Bytes of a value in the text of an error.
const SHOWN_BYTES: usize = 40;

pub(crate) type Map = BTreeMap<Rc<str>, Value>;
pub(crate) type Error = jaq_core::Error<Value>;
pub(crate) type Result<T = Value> = std::result::Result<T, Error>;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(Rc<String>),
    Array(Rc<Vec<Value>>),
    Object(Rc<Map>),
}

use Value::{Array, Bool, Null, Object};

impl Value {
    pub(crate) fn string(text: impl Into<String>) -> Self {
        Self::String(Rc::new(text.into()))
    }

    pub(crate) fn array(items: Vec<Self>) -> Self {
        Array(Rc::new(items))
    }

    pub(crate) fn int(int: i64) -> Self {
        Self::Number(Number::Int(int))
    }

    pub(crate) fn count(count: usize) -> Self {
        i64::try_from(count).map_or(Null, Self::int)
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Null => "null",
            Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Array(_) => "array",
            Object(_) => "object",
        }
    }

    /// Type and beginning of the value, for errors.
    pub(crate) fn shown(&self) -> String {
        match self {
            Null => "null".to_owned(),
            value => format!("{} ({})", value.type_name(), short(value.to_string(), SHOWN_BYTES)),
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Object(_))
    }

    fn rank(&self) -> u8 {
        match self {
            Null => 0,
            Bool(false) => 1,
            Bool(true) => 2,
            Self::Number(_) => 3,
            Self::String(_) => 4,
            Array(_) => 5,
            Object(_) => 6,
        }
    }

    fn bound(&self) -> Result<Option<Number>> {
        match self {
            Null => Ok(None),
            Self::Number(number) => Ok(Some(*number)),
            _ => Err(fault("Start and end indices of an array slice must be numbers".to_owned())),
        }
    }
}

pub(crate) fn fault(text: String) -> Error {
    Error::new(Value::string(text))
}

fn two(left: &Value, right: &Value, what: &str) -> Error {
    fault(format!("{} and {} cannot be {what}", left.shown(), right.shown()))
}

/// Places in an array or string of this length.
fn places(range: Range<&Value>, length: usize) -> Result<(usize, usize)> {
    let place = |number: Number, up: bool| {
        let float = number.as_f64();
        let float = if up { float.ceil() } else { float.floor() };
        // What is not a number becomes the beginning.
        let from_start = if float < 0.0 { float + length as f64 } else { float };
        from_start.clamp(0.0, length as f64) as usize
    };
    let start = range.start.map(Value::bound).transpose()?.flatten().map_or(0, |number| place(number, false));
    let end = range.end.map(Value::bound).transpose()?.flatten().map_or(length, |number| place(number, true));
    Ok((start, end.max(start)))
}

/// The bytes of a range of characters.
fn characters(text: &str, range: Range<&Value>) -> Result<String> {
    let (start, end) = places(range, text.chars().count())?;
    Ok(text.chars().skip(start).take(end - start).collect())
}

fn slice_of(object: &Map) -> Range<&Value> {
    object.get("start")..object.get("end")
}

/// Places at which one array stands in another.
pub(crate) fn positions(haystack: &[Value], needle: &[Value]) -> Vec<Value> {
    if needle.is_empty() {
        return Vec::new();
    }
    let windows = haystack.windows(needle.len()).enumerate();
    windows.filter(|(_, window)| *window == needle).map(|(at, _)| Value::count(at)).collect()
}

impl ValT for Value {
    fn from_num(text: &str) -> ValR<Self> {
        Number::parse(text)
            .map(Self::Number)
            .ok_or_else(|| fault(format!("{} is no number", short(text.to_owned(), 64))))
    }

    fn from_map<I: IntoIterator<Item = (Self, Self)>>(entries: I) -> ValR<Self> {
        let mut map = Map::new();
        for (key, value) in entries {
            match key {
                Self::String(key) => map.insert(Rc::from(key.as_str()), value),
                key => return Err(fault(format!("Object keys must be strings, not {}", key.shown()))),
            };
        }
        Ok(Object(Rc::new(map)))
    }

    fn key_values(self) -> BoxIter<'static, ValR<(Self, Self), Self>> {
        match self {
            Array(items) => Box::new(
                Rc::unwrap_or_clone(items).into_iter().enumerate().map(|(at, item)| Ok((Self::count(at), item))),
            ),
            Object(entries) => {
                let entries = Rc::unwrap_or_clone(entries).into_iter();
                Box::new(entries.map(|(key, value)| Ok((Self::string(&*key), value))))
            }
            other => box_once(Err(fault(format!("Cannot iterate over {}", other.shown())))),
        }
    }

    fn values(self) -> Box<dyn Iterator<Item = ValR<Self>>> {
        match self {
            Array(items) => Box::new(Rc::unwrap_or_clone(items).into_iter().map(Ok)),
            Object(entries) => Box::new(Rc::unwrap_or_clone(entries).into_values().map(Ok)),
            other => box_once(Err(fault(format!("Cannot iterate over {}", other.shown())))),
        }
    }

    fn index(self, index: &Self) -> ValR<Self> {
        match (&self, index) {
            (Object(entries), Self::String(key)) => Ok(entries.get(key.as_str()).cloned().unwrap_or(Null)),
            (Array(items), Self::Number(number)) => {
                let at = number.as_f64().floor();
                let at = if at < 0.0 { at + items.len() as f64 } else { at };
                // A place that is no number, or none at all, is not there.
                let item = (at >= 0.0 && at < items.len() as f64).then(|| items.get(at as usize)).flatten();
                Ok(item.cloned().unwrap_or(Null))
            }
            (Array(haystack), Array(needle)) => Ok(Self::array(positions(haystack, needle))),
            (Null | Array(_) | Self::String(_), Object(range)) => self.clone().range(slice_of(range)),
            (Null, Self::String(_) | Self::Number(_) | Null) => Ok(Null),
            (value, Self::String(key)) => Err(fault(format!(
                "Cannot index {} with \"{}\"",
                value.type_name(),
                short(key.to_string(), SHOWN_BYTES)
            ))),
            (value, index) => Err(fault(format!("Cannot index {} with {}", value.type_name(), index.type_name()))),
        }
    }

    fn range(self, range: Range<&Self>) -> ValR<Self> {
        match self {
            Null => Ok(Null),
            Array(items) => {
                let (start, end) = places(range, items.len())?;
                Ok(Self::array(items.get(start..end).unwrap_or_default().to_vec()))
            }
            Self::String(text) => characters(&text, range).map(Self::string),
            other => Err(fault(format!("Cannot index {} with object", other.type_name()))),
        }
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        opt: Opt,
        update: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        match self {
            Array(items) => {
                let items = Rc::unwrap_or_clone(items).into_iter().filter_map(|item| update(item).next());
                Ok(Self::array(items.collect::<std::result::Result<_, Exn<'_, _>>>()?))
            }
            Object(entries) => {
                let entries = Rc::unwrap_or_clone(entries).into_iter();
                let entries = entries.filter_map(|(key, value)| Some(update(value).next()?.map(|value| (key, value))));
                Ok(Object(Rc::new(entries.collect::<std::result::Result<_, Exn<'_, _>>>()?)))
            }
            other => opt.fail(other, |other| Exn::from(fault(format!("Cannot iterate over {}", other.shown())))),
        }
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        index: &Self,
        opt: Opt,
        update: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        match (self, index) {
            // What is not there becomes what the index asks for.
            (Null, Self::String(_)) => Object(Rc::default()).map_index(index, opt, update),
            (Null, Self::Number(_)) => Array(Rc::default()).map_index(index, opt, update),
            (value @ (Null | Array(_) | Self::String(_)), Object(range)) => {
                value.map_range(slice_of(range), opt, update)
            }
            (Object(mut entries), Self::String(key)) => {
                let map = Rc::make_mut(&mut entries);
                // Taken out, so that it is not copied when it is changed.
                let old = map.get_mut(key.as_str()).map(|value| std::mem::replace(value, Null));
                let is_there = old.is_some();
                match update(old.unwrap_or(Null)).next().transpose()? {
                    Some(new) if is_there => {
                        if let Some(value) = map.get_mut(key.as_str()) {
                            *value = new;
                        }
                    }
                    Some(new) => {
                        map.insert(Rc::from(key.as_str()), new);
                    }
                    None => {
                        map.remove(key.as_str());
                    }
                }
                Ok(Object(entries))
            }
            (Array(mut items), Self::Number(number)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = Number::Float(number.as_f64().floor()).truncated();
                let at = if at < 0 { at.saturating_add(length) } else { at };
                let problem = if at < 0 {
                    Some("Out of bounds negative array index")
                } else {
                    (at >= ARRAY_ITEMS).then_some("Array index too large")
                };
                if let Some(problem) = problem {
                    return opt.fail(Array(items), |_| Exn::from(fault(problem.to_owned())));
                }
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let places = Rc::make_mut(&mut items);
                let old = places.get_mut(at).map(|item| std::mem::replace(item, Null));
                let is_there = old.is_some();
                match update(old.unwrap_or(Null)).next().transpose()? {
                    Some(new) => {
                        if !is_there {
                            places.resize(at.saturating_add(1), Null);
                        }
                        if let Some(item) = places.get_mut(at) {
                            *item = new;
                        }
                    }
                    None if is_there => {
                        places.remove(at);
                    }
                    None => {}
                }
                Ok(Array(items))
            }
            (value, index) => opt.fail(value, |value| {
                Exn::from(match index {
                    Self::String(key) => fault(format!(
                        "Cannot index {} with \"{}\"",
                        value.type_name(),
                        short(key.to_string(), SHOWN_BYTES)
                    )),
                    index => fault(format!("Cannot index {} with {}", value.type_name(), index.type_name())),
                })
            }),
        }
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        update: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        let mut items = match self {
            Null => Rc::default(),
            Array(items) => items,
            other => {
                let text = format!("Cannot update field at object index of {}", other.type_name());
                return opt.fail(other, |_| Exn::from(fault(text)));
            }
        };
        let (start, end) = match places(range, items.len()) {
            Ok(places) => places,
            Err(error) => return opt.fail(Array(items), |_| Exn::from(error)),
        };
        let part = Self::array(items.get(start..end).unwrap_or_default().to_vec());
        let new = match update(part).next().transpose()? {
            Some(Array(new)) => Rc::unwrap_or_clone(new),
            None => Vec::new(),
            Some(_) => {
                let text = "A slice of an array can only be assigned another array".to_owned();
                return Err(Exn::from(fault(text)));
            }
        };
        Rc::make_mut(&mut items).splice(start..end, new);
        Ok(Array(items))
    }

    fn as_bool(&self) -> bool {
        !matches!(self, Null | Bool(false))
    }

    fn into_string(self) -> Self {
        match self {
            Self::String(text) => Self::String(text),
            other => Self::string(json::write_all(&other)),
        }
    }
}

impl jaq_std::ValT for Value {
    fn into_seq<S: FromIterator<Self>>(self) -> std::result::Result<S, Self> {
        match self {
            Array(items) => Ok(Rc::unwrap_or_clone(items).into_iter().collect()),
            other => Err(other),
        }
    }

    fn is_int(&self) -> bool {
        matches!(self, Self::Number(number) if number.as_i64().is_some())
    }

    fn as_isize(&self) -> Option<isize> {
        match self {
            Self::Number(number) => number.as_i64().and_then(|int| isize::try_from(int).ok()),
            _ => None,
        }
    }

    fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    fn is_utf8_str(&self) -> bool {
        matches!(self, Self::String(_))
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.as_str().map(str::as_bytes)
    }

    fn as_sub_str(&self, part: &[u8]) -> Self {
        Self::string(String::from_utf8_lossy(part))
    }

    fn from_utf8_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self::string(String::from_utf8_lossy(bytes.as_ref()))
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Bool(bool)
    }
}

impl From<isize> for Value {
    fn from(int: isize) -> Self {
        Self::int(int as i64)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::count(count)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Self::Number(Number::from_f64(float))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::string(text)
    }
}

impl From<Range<Self>> for Value {
    fn from(range: Range<Self>) -> Self {
        let entries = [("start", range.start), ("end", range.end)];
        Object(Rc::new(entries.into_iter().map(|(key, value)| (Rc::from(key), value.unwrap_or(Null))).collect()))
    }
}

impl FromIterator<Self> for Value {
    fn from_iter<T: IntoIterator<Item = Self>>(items: T) -> Self {
        Self::array(items.into_iter().collect())
    }
}

impl Add for Value {
    type Output = ValR<Self>;

    fn add(self, other: Self) -> Self::Output {
        match (self, other) {
            (Null, value) | (value, Null) => Ok(value),
            (Self::Number(left), Self::Number(right)) => Ok(Self::Number(left.add(right))),
            (Self::String(mut left), Self::String(right)) => {
                Rc::make_mut(&mut left).push_str(&right);
                Ok(Self::String(left))
            }
            (Array(mut left), Array(right)) => {
                Rc::make_mut(&mut left).extend(right.iter().cloned());
                Ok(Array(left))
            }
            (Object(mut left), Object(right)) => {
                Rc::make_mut(&mut left).extend(Rc::unwrap_or_clone(right));
                Ok(Object(left))
            }
            (left, right) => Err(two(&left, &right, "added")),
        }
    }
}

impl Sub for Value {
    type Output = ValR<Self>;

    fn sub(self, other: Self) -> Self::Output {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => Ok(Self::Number(left.subtract(right))),
            (Array(mut left), Array(right)) => {
                let mut sorted: Vec<&Self> = right.iter().collect();
                sorted.sort();
                Rc::make_mut(&mut left).retain(|item| sorted.binary_search(&item).is_err());
                Ok(Array(left))
            }
            (left, right) => Err(two(&left, &right, "subtracted")),
        }
    }
}

impl Mul for Value {
    type Output = ValR<Self>;

    fn mul(self, other: Self) -> Self::Output {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => Ok(Self::Number(left.multiply(right))),
            (Self::String(text), Self::Number(number)) | (Self::Number(number), Self::String(text)) => {
                repeat(&text, number)
            }
            (Object(mut left), Object(right)) => {
                merge(Rc::make_mut(&mut left), Rc::unwrap_or_clone(right));
                Ok(Object(left))
            }
            (left, right) => Err(two(&left, &right, "multiplied")),
        }
    }
}

fn repeat(text: &str, number: Number) -> Result {
    let times = number.as_f64();
    if times.is_nan() || times < 0.0 {
        return Ok(Null);
    }
    let times = usize::try_from(number.truncated()).unwrap_or(usize::MAX);
    if text.len().saturating_mul(times) > REPEATED_BYTES {
        return Err(fault(format!("a string of {} bytes cannot be repeated {times} times", text.len())));
    }
    Ok(Value::string(if text.is_empty() { String::new() } else { text.repeat(times) }))
}

fn merge(left: &mut Map, right: Map) {
    for (key, new) in right {
        match (left.get_mut(&key), new) {
            (Some(Object(old)), Object(new)) => merge(Rc::make_mut(old), Rc::unwrap_or_clone(new)),
            (Some(old), new) => *old = new,
            (None, new) => {
                left.insert(key, new);
            }
        }
    }
}

impl Div for Value {
    type Output = ValR<Self>;

    fn div(self, other: Self) -> Self::Output {
        match (&self, &other) {
            (Self::Number(left), Self::Number(right)) => left
                .divide(*right)
                .map(Self::Number)
                .ok_or_else(|| two(&self, &other, "divided because the divisor is zero")),
            (Self::String(text), Self::String(separator)) => Ok(split(text, separator)),
            (left, right) => Err(two(left, right, "divided")),
        }
    }
}

fn split(text: &str, separator: &str) -> Value {
    if text.is_empty() {
        Value::array(Vec::new())
    } else if separator.is_empty() {
        text.chars().map(Value::string).collect()
    } else {
        text.split(separator).map(Value::string).collect()
    }
}

impl Rem for Value {
    type Output = ValR<Self>;

    fn rem(self, other: Self) -> Self::Output {
        match (&self, &other) {
            (Self::Number(left), Self::Number(right)) => left
                .remainder(*right)
                .map(Self::Number)
                .ok_or_else(|| two(&self, &other, "divided because the divisor is zero")),
            (left, right) => Err(two(left, right, "divided")),
        }
    }
}

impl Neg for Value {
    type Output = ValR<Self>;

    fn neg(self) -> Self::Output {
        match self {
            Self::Number(number) => Ok(Self::Number(number.negate())),
            other => Err(fault(format!("{} cannot be negated", other.shown()))),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => left.order(*right),
            (Self::String(left), Self::String(right)) => left.cmp(right),
            (Array(left), Array(right)) => left.cmp(right),
            // All keys first, then the values.
            (Object(left), Object(right)) => {
                left.keys().cmp(right.keys()).then_with(|| left.values().cmp(right.values()))
            }
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

/// As the order, but for what is not a number: jq has it less than itself.
impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) if left.is_nan() && right.is_nan() => Some(Ordering::Less),
            _ => Some(self.cmp(other)),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&json::write_all(self))
    }
}
