//! How a duration is shown: the way it is written, in the largest unit that divides it.

use std::time::Duration;

/// The units and their milliseconds, largest first.
const UNITS: [(&str, u128); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// Writes a duration as [`settings::duration`](crate::settings::duration) reads it.
pub(crate) fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let largest = UNITS.into_iter().find(|(_, factor)| millis != 0 && millis.is_multiple_of(*factor));
    match largest {
        Some((unit, factor)) => format!("{}{unit}", millis / factor),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::duration::read;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["500ms", "1500ms", "0s", "30s", "1m", "90s", "2h", "3d"] {
            assert_eq!(write_duration(read(text).unwrap()), text);
        }
    }
}
