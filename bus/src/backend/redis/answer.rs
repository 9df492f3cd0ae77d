//! Reading what scripts answer.

use std::time::Duration;

use redis::Value;

use super::error::{term_lost, unexpected};
use crate::contract::Fence;
use crate::error::Result;

/// An array's items.
pub(super) fn items(value: Value) -> Result<std::vec::IntoIter<Value>> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(items.into_iter()),
        _ => Err(unexpected("no array")),
    }
}

/// The next item of an array.
pub(super) fn next(items: &mut impl Iterator<Item = Value>) -> Result<Value> {
    items.next().ok_or_else(|| unexpected("an array that is too short"))
}

/// A number, as one or as digits.
pub(super) fn number<T: TryFrom<i64> + std::str::FromStr>(value: Value) -> Result<T> {
    let number = match value {
        Value::Int(number) => T::try_from(number).ok(),
        Value::BulkString(digits) => std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| unexpected("no number"))
}

/// Bytes.
pub(super) fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        _ => Err(unexpected("no bytes")),
    }
}

/// A text; what is no text in a text is replaced.
pub(super) fn text(value: Value) -> Result<String> {
    let bytes = bytes(value)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// A fence.
pub(super) fn fence(value: Value) -> Result<Fence> {
    number(value).map(Fence::new)
}

/// How long something lasts; none, if the number is negative.
pub(super) fn duration(value: Value) -> Result<Option<Duration>> {
    Ok(u64::try_from(number::<i64>(value)?).ok().map(Duration::from_micros))
}

/// An answer without its first word, which may be that another fence is in force than the demanded one.
pub(super) fn unfenced(answer: Value, fence: Option<Fence>) -> Result<std::vec::IntoIter<Value>> {
    let mut answer = items(answer)?;
    match (text(next(&mut answer)?)?.as_str(), fence) {
        ("fenced", Some(fence)) => Err(term_lost(fence, &text(next(&mut answer)?)?)),
        ("fenced", None) => Err(unexpected("a fence where none was asked for")),
        _ => Ok(answer),
    }
}
