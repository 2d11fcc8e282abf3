//! Reads `#[hook(…)]`.

#[cfg(test)]
mod tests;

use proc_macro2::{Span, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitBool, LitInt, LitStr, Result, Token, parenthesized};

use crate::declaration::{
    Binding, Declaration, Event, FieldRequirement, Kubernetes, LabelOperator, LabelRequirement, Labels, Lifecycle,
    Projection, RateLimit,
};

/// As the contract has it.
const NAME_CHARS_MAX: usize = 253;

/// Reads the attribute of a function of the given name.
pub(crate) fn parse(attribute: TokenStream, function: &Ident) -> Result<Declaration> {
    (|input: ParseStream<'_>| declaration(input, function)).parse2(attribute)
}

fn declaration(input: ParseStream<'_>, function: &Ident) -> Result<Declaration> {
    let mut name = None;
    let mut queue = None;
    let mut allow_failure = None;
    let mut rate_limit = None;
    let mut order: Option<(i32, Span)> = None;
    let mut bindings: Vec<(Binding, Span)> = Vec::new();
    // Lifecycle bindings without an order of their own, by index.
    let mut unordered = Vec::new();

    each(input, |word, input| {
        let span = word.span();
        match word.to_string().as_str() {
            "name" => once(&mut name, &word, hook_name(input)?),
            "queue" => once(&mut queue, &word, queue_name(input)?),
            "allow_failure" => once(&mut allow_failure, &word, flag(input)?),
            "rate_limit" => once(&mut rate_limit, &word, parse_rate_limit(input, span)?),
            "order" => {
                input.parse::<Token![=]>()?;
                once(&mut order, &word, (integer(input)?, span))
            }
            "schedule" => {
                bindings.push((schedule(input, span)?, span));
                Ok(())
            }
            "kubernetes" => {
                bindings.push((Binding::Kubernetes(Box::new(kubernetes(input, span)?)), span));
                Ok(())
            }
            other => {
                let Some(lifecycle) = Lifecycle::parse(other) else {
                    return Err(unknown(
                        &word,
                        "a binding (`on_startup`, `before_helm`, `after_helm`, `before_delete_helm`, \
                         `after_delete_helm`, `schedule`, `kubernetes`) or an option (`name`, `queue`, `order`, \
                         `allow_failure`, `rate_limit`)",
                    ));
                };
                let own = own_order(input)?;
                if own.is_none() {
                    unordered.push(bindings.len());
                }
                bindings.push((Binding::Lifecycle(lifecycle, own.unwrap_or(0)), span));
                Ok(())
            }
        }
    })?;

    if let Some((order, span)) = order {
        if unordered.is_empty() {
            return Err(Error::new(span, "`order` belongs to a lifecycle binding, and there is none without its own"));
        }
        for index in unordered {
            if let Some((Binding::Lifecycle(_, slot), _)) = bindings.get_mut(index) {
                *slot = order;
            }
        }
    }
    if bindings.is_empty() {
        return Err(Error::new(
            Span::call_site(),
            "a hook needs at least one binding, for example `#[hook(before_helm)]`",
        ));
    }
    distinct(&bindings)?;
    name_schedules(&mut bindings);
    included_snapshots_exist(&bindings)?;
    Ok(Declaration {
        name: match name {
            Some(name) => name,
            None => function.to_string().trim_start_matches("r#").to_owned(),
        },
        bindings: bindings.into_iter().map(|(binding, _)| binding).collect(),
        queue: queue.unwrap_or_else(|| "main".to_owned()),
        allow_failure: allow_failure.unwrap_or(false),
        rate_limit,
    })
}

/// Names of schedules and snapshots are unique, and a hook has each lifecycle binding at most once.
fn distinct(bindings: &[(Binding, Span)]) -> Result<()> {
    for (index, (binding, span)) in bindings.iter().enumerate() {
        for (earlier, _) in bindings.iter().take(index) {
            let clash = match (earlier, binding) {
                (Binding::Lifecycle(a, _), Binding::Lifecycle(b, _)) if a == b => {
                    "this binding stands here twice".into()
                }
                (Binding::Schedule { name: a, .. }, Binding::Schedule { name: b, .. }) if !a.is_empty() && a == b => {
                    format!("two schedules are named `{a}`")
                }
                (Binding::Kubernetes(a), Binding::Kubernetes(b)) if a.name == b.name => {
                    format!("two kubernetes bindings are named `{}`", a.name)
                }
                _ => continue,
            };
            return Err(Error::new(*span, clash));
        }
    }
    Ok(())
}

/// Gives schedules without a name the first free one of `schedule`, `schedule-2`, …
fn name_schedules(bindings: &mut [(Binding, Span)]) {
    let mut taken: Vec<String> = bindings
        .iter()
        .filter_map(|(binding, _)| match binding {
            Binding::Schedule { name, .. } if !name.is_empty() => Some(name.clone()),
            _ => None,
        })
        .collect();
    for (binding, _) in bindings {
        let Binding::Schedule { name, .. } = binding else { continue };
        if name.is_empty() {
            let free = (1..).map(|n| if n == 1 { "schedule".to_owned() } else { format!("schedule-{n}") });
            *name = free.into_iter().find(|free| !taken.contains(free)).unwrap_or_default();
            taken.push(name.clone());
        }
    }
}

fn included_snapshots_exist(bindings: &[(Binding, Span)]) -> Result<()> {
    let kubernetes = || {
        bindings.iter().filter_map(|(binding, span)| match binding {
            Binding::Kubernetes(kubernetes) => Some((kubernetes, *span)),
            _ => None,
        })
    };
    for (binding, span) in kubernetes() {
        for included in &binding.include_snapshots_from {
            if !kubernetes().any(|(other, _)| other.name == *included) {
                let message = format!("`include_snapshots_from` names `{included}`, but the hook has no such binding");
                return Err(Error::new(span, message));
            }
        }
    }
    Ok(())
}

fn own_order(input: ParseStream<'_>) -> Result<Option<i32>> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        return integer(input).map(Some);
    }
    if !input.peek(syn::token::Paren) {
        return Ok(None);
    }
    let mut order = None;
    let inside;
    parenthesized!(inside in input);
    each(&inside, |word, input| match word.to_string().as_str() {
        "order" => {
            input.parse::<Token![=]>()?;
            once(&mut order, &word, integer(input)?)
        }
        _ => Err(unknown(&word, "`order`")),
    })?;
    Ok(order)
}

fn parse_rate_limit(input: ParseStream<'_>, span: Span) -> Result<RateLimit> {
    let mut min_interval_ms = None;
    let mut burst = None;
    let inside;
    parenthesized!(inside in input);
    each(&inside, |word, input| match word.to_string().as_str() {
        "min_interval_ms" => {
            input.parse::<Token![=]>()?;
            once(&mut min_interval_ms, &word, input.parse::<LitInt>()?.base10_parse::<u64>()?)
        }
        "burst" => {
            input.parse::<Token![=]>()?;
            let literal: LitInt = input.parse()?;
            match literal.base10_parse::<u32>()? {
                0 => Err(Error::new(literal.span(), "`burst` is at least 1")),
                value => once(&mut burst, &word, value),
            }
        }
        _ => Err(unknown(&word, "`min_interval_ms` or `burst`")),
    })?;
    let min_interval_ms = min_interval_ms.ok_or_else(|| Error::new(span, "`rate_limit` needs `min_interval_ms`"))?;
    Ok(RateLimit { min_interval_ms, burst: burst.unwrap_or(1) })
}

fn schedule(input: ParseStream<'_>, span: Span) -> Result<Binding> {
    if input.peek(Token![=]) {
        return Ok(Binding::Schedule { name: String::new(), crontab: crontab(input)? });
    }
    let mut name = None;
    let mut crontab_text = None;
    let inside;
    parenthesized!(inside in input);
    each(&inside, |word, input| match word.to_string().as_str() {
        "name" => once(&mut name, &word, filled(input)?),
        "crontab" => once(&mut crontab_text, &word, crontab(input)?),
        _ => Err(unknown(&word, "`name` or `crontab`")),
    })?;
    let crontab = crontab_text.ok_or_else(|| Error::new(span, "`schedule` needs `crontab = \"…\"`"))?;
    Ok(Binding::Schedule { name: name.unwrap_or_default(), crontab })
}

/// Checks only the shape; the host knows the calendar.
fn crontab(input: ParseStream<'_>) -> Result<String> {
    input.parse::<Token![=]>()?;
    let literal: LitStr = input.parse()?;
    let text = literal.value();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if words.first().is_some_and(|word| word.starts_with("TZ=") || word.starts_with("CRON_TZ=")) {
        words.remove(0);
    }
    let macro_like = words.first().is_some_and(|word| word.starts_with('@'));
    if !macro_like && !matches!(words.len(), 5 | 6) {
        let message = format!("a schedule has five fields, or six with seconds first; this one has {}", words.len());
        return Err(Error::new(literal.span(), message));
    }
    Ok(text)
}

fn kubernetes(input: ParseStream<'_>, span: Span) -> Result<Kubernetes> {
    let (mut name, mut api_version, mut kind, mut group) = (None, None, None, None);
    let (mut names, mut labels, mut fields, mut included) = (None, None, None, None);
    let (mut synchronization, mut wait, mut keep_full_objects) = (None, None, None);
    let mut projection: Option<Projection> = None;
    let mut events = None;
    let inside;
    parenthesized!(inside in input);
    each(&inside, |word, input| {
        let word_text = word.to_string();
        match word_text.as_str() {
            "name" => once(&mut name, &word, filled(input)?),
            "api_version" => once(&mut api_version, &word, filled(input)?),
            "kind" => once(&mut kind, &word, filled(input)?),
            "group" => once(&mut group, &word, filled(input)?),
            "names" => once(&mut names, &word, strings(input)?),
            "labels" => once(&mut labels, &word, parse_labels(input)?),
            "field_selector" => once(&mut fields, &word, field_requirements(input)?),
            "fields" | "jq" | "filter" => {
                if projection.is_some() {
                    return Err(Error::new(word.span(), "only one of `fields`, `jq` and `filter`"));
                }
                projection = Some(match word_text.as_str() {
                    "fields" => Projection::Fields(pointers(input)?),
                    "jq" => Projection::Jq(filled(input)?),
                    _ => Projection::Component,
                });
                Ok(())
            }
            "events" => once(&mut events, &word, parse_events(input)?),
            "synchronization" => once(&mut synchronization, &word, flag(input)?),
            "wait" => once(&mut wait, &word, flag(input)?),
            "keep_full_objects" => once(&mut keep_full_objects, &word, flag(input)?),
            "include_snapshots_from" => once(&mut included, &word, strings(input)?),
            _ => Err(unknown(
                &word,
                "`name`, `api_version`, `kind`, `names`, `labels`, `field_selector`, `fields`, `jq`, `filter`, \
                 `events`, `synchronization`, `wait`, `keep_full_objects`, `group` or `include_snapshots_from`",
            )),
        }
    })?;
    let needed = |value: Option<String>, what: &str| {
        value.ok_or_else(|| Error::new(span, format!("`kubernetes` needs `{what} = \"…\"`")))
    };
    Ok(Kubernetes {
        name: needed(name, "name")?,
        api_version: needed(api_version, "api_version")?,
        kind: needed(kind, "kind")?,
        names: names.unwrap_or_default(),
        labels,
        fields: fields.unwrap_or_default(),
        projection: projection.unwrap_or(Projection::Whole),
        events: events.unwrap_or_else(|| Event::ALL.to_vec()),
        synchronization: synchronization.unwrap_or(true),
        wait: wait.unwrap_or(true),
        keep_full_objects: keep_full_objects.unwrap_or(false),
        group,
        include_snapshots_from: included.unwrap_or_default(),
    })
}

fn parse_labels(input: ParseStream<'_>) -> Result<Labels> {
    let mut labels = Labels::default();
    let inside;
    parenthesized!(inside in input);
    list(&inside, |input| {
        let key = input.parse::<LitStr>()?.value();
        let expression = |operator, values| LabelRequirement { key: key.clone(), operator, values };
        if input.peek(Token![=]) {
            labels.equal.push((key.clone(), text(input)?));
        } else if input.peek(Token![!=]) {
            input.parse::<Token![!=]>()?;
            let value = input.parse::<LitStr>()?.value();
            labels.expressions.push(expression(LabelOperator::NotIn, vec![value]));
        } else if input.peek(Token![in]) {
            input.parse::<Token![in]>()?;
            labels.expressions.push(expression(LabelOperator::In, some_strings(input)?));
        } else {
            let word: Ident = input.parse().map_err(|error| Error::new(error.span(), LABEL_OPERATORS))?;
            labels.expressions.push(match word.to_string().as_str() {
                "not_in" => expression(LabelOperator::NotIn, some_strings(input)?),
                "exists" => expression(LabelOperator::Exists, Vec::new()),
                "absent" => expression(LabelOperator::DoesNotExist, Vec::new()),
                _ => return Err(Error::new(word.span(), LABEL_OPERATORS)),
            });
        }
        Ok(())
    })?;
    Ok(labels)
}

const LABEL_OPERATORS: &str =
    "after a label comes `= \"…\"`, `!= \"…\"`, `in (\"…\")`, `not_in (\"…\")`, `exists` or `absent`";

fn field_requirements(input: ParseStream<'_>) -> Result<Vec<FieldRequirement>> {
    let mut requirements = Vec::new();
    let inside;
    parenthesized!(inside in input);
    list(&inside, |input| {
        let field = input.parse::<LitStr>()?.value();
        let equals = !input.peek(Token![!=]);
        if equals {
            input.parse::<Token![=]>()?;
        } else {
            input.parse::<Token![!=]>()?;
        }
        let value = input.parse::<LitStr>()?.value();
        requirements.push(FieldRequirement { field, equals, value });
        Ok(())
    })?;
    Ok(requirements)
}

fn pointers(input: ParseStream<'_>) -> Result<Vec<String>> {
    let mut pointers = Vec::new();
    let inside;
    parenthesized!(inside in input);
    list(&inside, |input| {
        let literal: LitStr = input.parse()?;
        let pointer = literal.value();
        if !pointer.starts_with('/') {
            let message = format!("a JSON pointer begins with `/`: write `/{}`", pointer.replace('.', "/"));
            return Err(Error::new(literal.span(), message));
        }
        pointers.push(pointer);
        Ok(())
    })?;
    if pointers.is_empty() {
        return Err(input.error("`fields` needs at least one JSON pointer"));
    }
    Ok(pointers)
}

fn parse_events(input: ParseStream<'_>) -> Result<Vec<Event>> {
    let inside;
    parenthesized!(inside in input);
    let mut events = Vec::new();
    for word in Punctuated::<Ident, Token![,]>::parse_terminated(&inside)? {
        let event = match word.to_string().as_str() {
            "added" => Event::Added,
            "modified" => Event::Modified,
            "deleted" => Event::Deleted,
            _ => return Err(unknown(&word, "`added`, `modified` or `deleted`")),
        };
        if events.contains(&event) {
            return Err(Error::new(word.span(), format!("`{word}` stands here twice")));
        }
        events.push(event);
    }
    Ok(events)
}

/// Reads `word …, word …` to the end.
fn each(input: ParseStream<'_>, mut read: impl FnMut(Ident, ParseStream<'_>) -> Result<()>) -> Result<()> {
    list(input, |input| {
        let word = input.call(<Ident as syn::ext::IdentExt>::parse_any)?;
        read(word, input)
    })
}

/// Reads what is separated by commas, to the end.
fn list(input: ParseStream<'_>, mut read: impl FnMut(ParseStream<'_>) -> Result<()>) -> Result<()> {
    while !input.is_empty() {
        read(input)?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn once<T>(slot: &mut Option<T>, word: &Ident, value: T) -> Result<()> {
    if slot.is_some() {
        return Err(Error::new(word.span(), format!("`{word}` stands here twice")));
    }
    *slot = Some(value);
    Ok(())
}

fn unknown(word: &Ident, expected: &str) -> Error {
    Error::new(word.span(), format!("unknown word `{word}`; expected {expected}"))
}

/// `word`, `word = true` or `word = false`.
fn flag(input: ParseStream<'_>) -> Result<bool> {
    if !input.peek(Token![=]) {
        return Ok(true);
    }
    input.parse::<Token![=]>()?;
    Ok(input.parse::<LitBool>()?.value)
}

/// `= "…"`.
fn text(input: ParseStream<'_>) -> Result<String> {
    input.parse::<Token![=]>()?;
    Ok(input.parse::<LitStr>()?.value())
}

/// `= "…"`, not empty.
fn filled(input: ParseStream<'_>) -> Result<String> {
    input.parse::<Token![=]>()?;
    let literal: LitStr = input.parse()?;
    if literal.value().is_empty() {
        return Err(Error::new(literal.span(), "this text may not be empty"));
    }
    Ok(literal.value())
}

fn hook_name(input: ParseStream<'_>) -> Result<String> {
    input.parse::<Token![=]>()?;
    let literal: LitStr = input.parse()?;
    let name = literal.value();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(allowed) {
        return Err(Error::new(
            literal.span(),
            "the name of a hook has 1 to 253 letters, digits, `-`, `_`, `.` and `/`",
        ));
    }
    Ok(name)
}

fn queue_name(input: ParseStream<'_>) -> Result<String> {
    filled(input)
}

/// `("…", "…")`.
fn strings(input: ParseStream<'_>) -> Result<Vec<String>> {
    let inside;
    parenthesized!(inside in input);
    let literals = Punctuated::<LitStr, Token![,]>::parse_terminated(&inside)?;
    Ok(literals.iter().map(LitStr::value).collect())
}

fn some_strings(input: ParseStream<'_>) -> Result<Vec<String>> {
    let strings = strings(input)?;
    if strings.is_empty() {
        return Err(input.error("at least one value is needed"));
    }
    Ok(strings)
}

fn integer(input: ParseStream<'_>) -> Result<i32> {
    let negative = input.peek(Token![-]);
    if negative {
        input.parse::<Token![-]>()?;
    }
    let literal: LitInt = input.parse()?;
    let value = literal.base10_parse::<i32>()?;
    Ok(if negative { -value } else { value })
}

/// For attributes without arguments.
pub(crate) struct Nothing;

impl Parse for Nothing {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() { Ok(Self) } else { Err(input.error("this attribute has no arguments")) }
    }
}
