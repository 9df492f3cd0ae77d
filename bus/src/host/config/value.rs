//! From what was written to what is meant: one function per type, each saying what it expected and what it found.

use std::fmt;
use std::time::Duration;

use super::{LocksAt, OnOverrun};
use crate::contract::{Reach, StoreUrl};
use crate::message::{Endpoint, Name};
use crate::settings::{Retry, why_invalid_lease};

/// A value as it was written, in a file or in a variable (where it is always a text).
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    /// Of a type that no key has, in words: "an array".
    Other(&'static str),
}

/// What was found, in words. A text that could hold an address, and with it a password, is not repeated.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) if text.is_empty() => f.write_str("an empty text"),
            Value::Text(text) if text.contains("://") || text.contains('=') || text.len() > 80 => {
                f.write_str("what looks like an address (not shown)")
            }
            Value::Text(text) => write!(f, "the text {text:?}"),
            Value::Number(number) => write!(f, "the number {number}"),
            Value::Other(kind) => f.write_str(kind),
        }
    }
}

/// What is expected, as an `Err` that also says what was found.
fn expected<T>(what: &str, found: &Value) -> Result<T, String> {
    Err(format!("expected {what}, found {found}"))
}

fn url(value: &Value) -> Result<StoreUrl, String> {
    match value {
        Value::Text(text) if !text.is_empty() => StoreUrl::parse(text).map_err(|error| error.to_string()),
        other => expected("a store's URL such as \"sqlite://bus.db\"", other),
    }
}

/// A transport's address.
pub(super) fn transport_url(value: &Value) -> Result<StoreUrl, String> {
    match value {
        Value::Other("a table") => Err("expected a store's URL, found a table; a transport is written \
                                        name = \"sqlite://bus.db\" under [transports]"
            .to_owned()),
        value => url(value),
    }
}

/// Where the locks are: an address, or the word `default`.
pub(super) fn locks(value: &Value) -> Result<LocksAt, String> {
    match value {
        Value::Text(text) if text == "default" => Ok(LocksAt::DefaultTransport),
        Value::Text(text) if !text.is_empty() && !text.contains("://") => {
            expected("a store's URL such as \"sqlite://bus.db\", or the word \"default\"", value)
        }
        value => url(value).map(LocksAt::Url),
    }
}

/// Which reach is enough although the messages reach further.
pub(super) fn locks_reach(value: &Value) -> Result<Reach, String> {
    match value {
        Value::Text(text) if text == "machine" => Ok(Reach::Machine),
        Value::Text(text) if text == "process" => Ok(Reach::Process),
        other => expected("\"machine\" or \"process\"", other),
    }
}

/// What happens to a run that cannot be stopped.
pub(super) fn on_overrun(value: &Value) -> Result<OnOverrun, String> {
    match value {
        Value::Text(text) if text == "log" => Ok(OnOverrun::Log),
        Value::Text(text) if text == "exit" => Ok(OnOverrun::Exit),
        other => expected("\"log\" or \"exit\"", other),
    }
}

/// The first part of all lock ids.
pub(super) fn namespace(value: &Value) -> Result<Name, String> {
    match value {
        Value::Text(text) => Name::new(text).or_else(|_| expected(A_NAME, value)),
        other => expected(A_NAME, other),
    }
}

const A_NAME: &str = "a name of 1 to 63 of a-z, 0-9 and single inner dashes";

/// A duration, zero included.
pub(super) fn duration_or_zero(value: &Value) -> Result<Duration, String> {
    const A_DURATION: &str = "a duration such as \"500ms\", \"30s\", \"1m\", \"2h\" or \"3d\"";
    match value {
        Value::Text(text) => crate::settings::duration::read(text).or_else(|_| expected(A_DURATION, value)),
        Value::Number(number) => {
            Err(format!("expected {A_DURATION}, found a number; write \"{number}s\" if it is seconds"))
        }
        other => expected(A_DURATION, other),
    }
}

/// A duration above zero.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    match duration_or_zero(value)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// How long a claim lasts.
pub(super) fn lease(value: &Value) -> Result<Duration, String> {
    let lease = duration(value)?;
    match why_invalid_lease(lease) {
        None => Ok(lease),
        Some(_) => Err("must be at least 100ms".to_owned()),
    }
}

/// More of anything than this is a slip: the memory of the process would end first.
const MOST: u32 = 1_000_000;

/// A whole number from `least` up.
pub(super) fn count(value: &Value, least: u32) -> Result<u32, String> {
    let Value::Number(number) = value else {
        return match value {
            Value::Text(text) if text.parse::<i64>().is_ok() => {
                Err(format!("expected a whole number, found the text {text:?}; write it without quotes"))
            }
            other => expected("a whole number", other),
        };
    };
    u32::try_from(*number)
        .ok()
        .filter(|count| (least..=MOST).contains(count))
        .map_or_else(|| expected(&format!("a whole number from {least} to {MOST}"), value), Ok)
}

/// `"immediate"`, `"fixed(5s)"` or `"exponential(1s, 5m)"`.
pub(super) fn retry(value: &Value) -> Result<Retry, String> {
    const A_RETRY: &str = "\"immediate\", \"fixed(5s)\" or \"exponential(1s, 5m)\"";
    let Value::Text(text) = value else { return expected(A_RETRY, value) };
    if text == "immediate" {
        return Ok(Retry::Immediate);
    }
    let time = |text: &str| duration(&Value::Text(text.trim().to_owned()));
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some(("fixed", after)) => time(after).map(Retry::Fixed),
        Some(("exponential", times)) => {
            match times.split_once(',') {
                None => expected("two durations as in \"exponential(1s, 5m)\"", value),
                Some((first, max)) => match (time(first)?, time(max)?) {
                    (first, max) if first <= max => Ok(Retry::Exponential { first, max }),
                    _ => Err("the first time of exponential(first, longest) must not be above the longest"
                        .to_owned()),
                },
            }
        }
        _ => expected(A_RETRY, value),
    }
}

/// A transport's name as a variable gives it (`BILLING_EU`) or a file (`billing-eu`).
pub(super) fn transport_name(name: &str) -> Result<Name, String> {
    Name::new(name).map_err(|_| format!("cannot name a transport; write {A_NAME}"))
}

/// A processor's endpoint: `queue` or `topic/subscription`.
pub(super) fn endpoint(name: &str) -> Result<Endpoint, String> {
    Endpoint::parse(name).map_err(|_| {
        format!("is no processor's address; write [processors.\"queue\"] or [processors.\"topic/subscription\"], each part {A_NAME}")
    })
}
