//! From what was written to what is meant: one function per type, each saying what it expected and what it found.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::{LocksAt, OnOverrun, OnStoreDown};
use crate::contract::{Reach, StoreUrl};
use crate::message::{Endpoint, Name};
use crate::settings::Retry;

/// A value as it was written, in a file or in a variable (where it is always a text).
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Table(BTreeMap<String, Value>),
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
            Value::Table(_) => f.write_str("a table"),
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
        Value::Table(_) => Err("expected a store's URL, found a table; a transport is written \
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

/// What happens about a store that is not there.
pub(super) fn on_store_down(value: &Value) -> Result<OnStoreDown, String> {
    match value {
        Value::Text(text) if text == "wait" => Ok(OnStoreDown::Wait),
        Value::Text(text) if text == "fail" => Ok(OnStoreDown::Fail),
        other => expected("\"wait\" or \"fail\"", other),
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

/// A number of things. One that is too large for its type stays too large for every setting.
pub(super) fn count(value: &Value) -> Result<u32, String> {
    match value {
        Value::Number(number) if *number >= 0 => Ok(u32::try_from(*number).unwrap_or(u32::MAX)),
        Value::Number(_) => expected("a whole number, not below zero", value),
        Value::Text(text) if text.parse::<i64>().is_ok() => {
            Err(format!("expected a whole number, found the text {text:?}; write it without quotes"))
        }
        other => expected("a whole number", other),
    }
}

/// How many at most, at least one. In a variable it is a text.
pub(super) fn limit(value: &Value) -> Result<u32, String> {
    const A_LIMIT: &str = "a whole number from 1 to 1000000";
    let number = match value {
        Value::Number(number) => u32::try_from(*number).ok(),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| (1..=1_000_000).contains(number)).map_or_else(|| expected(A_LIMIT, value), Ok)
}

/// Where to listen.
pub(super) fn address(value: &Value) -> Result<SocketAddr, String> {
    const AN_ADDRESS: &str = "an address and a port to listen at, such as \"0.0.0.0:8080\" or \"[::]:8080\"";
    match value {
        Value::Text(text) => text.parse().or_else(|_| expected(AN_ADDRESS, value)),
        other => expected(AN_ADDRESS, other),
    }
}

const A_RETRY: &str = r#""immediate", { fixed = "5s" } or { exponential = { first = "1s", max = "5m" } }, or a text such as "fixed(5s)""#;

/// A retry policy, in the words of the attribute: as a table, or as a text.
pub(super) fn retry(value: &Value) -> Result<Retry, String> {
    match value {
        Value::Text(text) => retry_of_text(text, value),
        Value::Table(policy) if policy.len() == 1 => match (policy.get("fixed"), policy.get("exponential")) {
            (Some(after), _) => duration_or_zero(after).map(Retry::Fixed),
            (_, Some(times)) => exponential(times),
            _ => expected(A_RETRY, value),
        },
        other => expected(A_RETRY, other),
    }
}

/// `{ first = "1s", max = "5m" }`
fn exponential(times: &Value) -> Result<Retry, String> {
    if let Value::Table(keys) = times
        && let (2, Some(first), Some(max)) = (keys.len(), keys.get("first"), keys.get("max"))
    {
        return Ok(Retry::Exponential { first: duration_or_zero(first)?, max: duration_or_zero(max)? });
    }
    expected(r#"exponential = { first = "1s", max = "5m" }"#, times)
}

/// `immediate`, `fixed(5s)` or `exponential(1s, 5m)`
fn retry_of_text(text: &str, value: &Value) -> Result<Retry, String> {
    if text == "immediate" {
        return Ok(Retry::Immediate);
    }
    let time = |text: &str| duration_or_zero(&Value::Text(text.trim().to_owned()));
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some(("fixed", after)) => time(after).map(Retry::Fixed),
        Some(("exponential", times)) => match times.split_once(',') {
            None => expected("two durations as in \"exponential(1s, 5m)\"", value),
            Some((first, max)) => Ok(Retry::Exponential { first: time(first)?, max: time(max)? }),
        },
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
