//! Compile errors in words of our own: checks that run in the constants which the macros write.

use std::time::Duration;

use crate::message::name::why_invalid;
use crate::settings::duration;

/// What a valid name is, for the end of a sentence.
pub const NAME_RULE: &str = "; write 1 to 63 of a-z, 0-9 and single inner dashes";

/// In a constant: a compile error that says `before`, `between`, the fault and `after`, if there is a fault.
#[track_caller]
pub const fn require(fault: Option<&'static str>, before: &str, between: &str, after: &str) {
    if let Some(fault) = fault {
        let mut text = Text { bytes: [0; 512], len: 0 };
        text.add(before);
        text.add(between);
        text.add(fault);
        text.add(after);
        match core::str::from_utf8(text.bytes.split_at(text.len).0) {
            Ok(text) => panic!("{}", text),
            Err(_) => panic!("{}", fault),
        }
    }
}

/// A message put together while compiling: `panic!` takes one argument there.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    const fn add(&mut self, text: &str) {
        let text = text.as_bytes();
        let mut i = 0;
        while i < text.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = text[i];
            self.len += 1;
            i += 1;
        }
    }
}

/// `name`, or a valid one instead: a wrong name is one error, at its literal, and none where the message is used.
pub const fn valid_name(name: &'static str) -> &'static str {
    match why_invalid(name) {
        None => name,
        Some(_) => "invalid",
    }
}

/// `value` unless there is a fault, for the same reason.
pub const fn unless<T: Copy>(fault: Option<&'static str>, value: T) -> Option<T> {
    match fault {
        None => Some(value),
        Some(_) => None,
    }
}

/// The duration that `text` says, or a valid one instead.
pub const fn valid_duration(text: &str) -> Duration {
    match duration::read(text) {
        Ok(time) => time,
        Err(_) => Duration::from_secs(1),
    }
}
