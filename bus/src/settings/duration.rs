//! How durations are written: a whole number and one unit, `"500ms"`, `"30s"`, `"1m"`, `"2h"`, `"3d"`.
//!
//! One function reads them, in the attributes while compiling and in the configuration while starting: what is accepted
//! in one place is accepted in the other.

use std::time::Duration;

/// A century: what is longer is a slip, and would overflow once it is added to a time of day.
const LONGEST: u64 = 36_500 * DAY;
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The end of a sentence about a text that is no duration.
pub const RULE: &str =
    "; write a whole number and a unit, such as \"500ms\", \"30s\", \"1m\", \"2h\" or \"3d\"";

/// Reads a duration such as `"30s"`. Zero is a duration; whether it makes sense is for the caller to say.
///
/// ```
/// use std::time::Duration;
/// use bus::settings::duration::read;
///
/// assert_eq!(read("2h"), Ok(Duration::from_secs(7200)));
/// assert_eq!(read("1h30m"), Err("it has no such unit"));
/// ```
///
/// # Errors
/// Why it is none: it has to be a whole number followed by ms, s, m, h or d, of no more than a century.
pub const fn read(text: &str) -> Result<Duration, &'static str> {
    let bytes = text.as_bytes();
    let mut digits = 0;
    let mut number: u64 = 0;
    while digits < bytes.len() && bytes[digits].is_ascii_digit() {
        // Saturated, it is longer than a century in any unit.
        number = number.saturating_mul(10).saturating_add((bytes[digits] - b'0') as u64);
        digits += 1;
    }
    if digits == 0 {
        return Err("it does not begin with a digit");
    }
    let millis = match bytes.split_at(digits).1 {
        b"ms" => number,
        b"s" => number.saturating_mul(1_000),
        b"m" => number.saturating_mul(60_000),
        b"h" => number.saturating_mul(3_600_000),
        b"d" => number.saturating_mul(DAY),
        b"" => return Err("the unit is missing"),
        _ => return Err("it has no such unit"),
    };
    if millis > LONGEST {
        return Err("it is longer than a century");
    }
    Ok(Duration::from_millis(millis))
}

/// Why `text` is no duration; `None` if it is one.
pub const fn why_invalid(text: &str) -> Option<&'static str> {
    match read(text) {
        Ok(_) => None,
        Err(why) => Some(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_and_a_unit_is_a_duration() {
        for (text, millis) in [
            ("500ms", 500),
            ("0s", 0),
            ("30s", 30_000),
            ("1m", 60_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
            ("007s", 7_000),
            ("36500d", 36_500 * 86_400_000),
        ] {
            assert_eq!(read(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "does not begin with a digit"),
            ("s", "does not begin with a digit"),
            ("-1s", "does not begin with a digit"),
            (" 1s", "does not begin with a digit"),
            ("30", "the unit is missing"),
            ("1.5s", "no such unit"),
            ("1h30m", "no such unit"),
            ("30 s", "no such unit"),
            ("30S", "no such unit"),
            ("30sec", "no such unit"),
            ("1w", "no such unit"),
            ("1µs", "no such unit"),
            ("36501d", "longer than a century"),
            ("99999999999999999999s", "longer than a century"),
            ("18446744073709551615d", "longer than a century"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }
}
