//! How durations are written: a whole number and one unit, `"500ms"`, `"30s"`, `"1m"`, `"2h"`, `"3d"`.
//!
//! What reads them is [`settings::duration`](crate::settings::duration), for the attributes as well.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::settings::duration;

/// The units, shortest first.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration such as `"30s"`. Zero is a duration; whether it makes sense is for the caller to say.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(bus::host::config::parse_duration("2h")?, Duration::from_secs(7200));
/// assert!(bus::host::config::parse_duration("1h30m").is_err());
/// # Ok::<(), bus::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it is not a whole number followed by ms, s, m, h or d, or longer than a century.
pub fn parse_duration(text: &str) -> Result<Duration> {
    duration::read(text).map_err(|why| {
        Error::new(ErrorKind::InvalidInput, format!("{text:?} is no duration: {why}{}", duration::RULE))
    })
}

/// Writes a duration the way [`parse_duration`] reads it, in the largest unit that divides it.
pub(crate) fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (unit, factor) = UNITS
        .into_iter()
        .rev()
        .find(|(_, factor)| millis != 0 && millis.is_multiple_of(u128::from(*factor)))
        .unwrap_or(("s", 1_000));
    format!("{}{unit}", millis / u128::from(factor))
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
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
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
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["500ms", "0s", "30s", "1m", "90s", "2h", "3d"] {
            assert_eq!(write_duration(parse_duration(text).unwrap()), text);
        }
    }
}
