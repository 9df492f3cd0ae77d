//! Retry policies.

use std::time::Duration;

/// When a failed message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// At once.
    Immediate,
    /// After always the same time.
    Fixed(Duration),
    /// After a time that doubles with each failure.
    Exponential {
        /// After the first failure.
        first: Duration,
        /// The longest time between two attempts.
        max: Duration,
    },
}

impl Retry {
    /// Exponential from 1 s to 5 min, the default.
    pub const DEFAULT: Retry =
        Retry::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(300) };

    /// How long to wait after the `failures`th failure (counted from 1).
    ///
    /// `jitter`, from 0 to 1, picks a point of the upper half of the time: many messages that failed together do not
    /// come back together ("equal jitter", M. Brooker, "Exponential Backoff and Jitter", AWS 2015). A fixed time has
    /// none, since somebody asked for just that time.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        match self {
            Retry::Immediate => Duration::ZERO,
            Retry::Fixed(time) => time,
            Retry::Exponential { first, max } => {
                let doublings = failures.saturating_sub(1).min(62);
                let full =
                    first.saturating_mul(1u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX)).min(max);
                full / 2 + (full / 2).mul_f64(jitter.clamp(0.0, 1.0))
            }
        }
    }
}

impl Retry {
    /// Why this cannot be a `retry`; `None` if it can.
    pub const fn why_invalid(self) -> Option<&'static str> {
        let (first, max) = match self {
            Retry::Immediate => return None,
            Retry::Fixed(time) => (time, time),
            Retry::Exponential { first, max } => (first, max),
        };
        if first.is_zero() {
            Some("`retry` waits for no time at all; write `retry = \"immediate\"` if that is meant")
        } else if first.as_nanos() > max.as_nanos() {
            Some("`retry` begins with a longer time than its longest; write a `first` of at most `max`")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_double_with_jitter_up_to_their_longest() {
        let retry = Retry::DEFAULT;
        assert_eq!(retry.delay(1, 1.0), Duration::from_secs(1));
        assert_eq!(retry.delay(1, 0.0), Duration::from_millis(500));
        assert_eq!(retry.delay(4, 1.0), Duration::from_secs(8));
        assert_eq!(retry.delay(40, 1.0), Duration::from_secs(300));
        assert_eq!(retry.delay(u32::MAX, 0.0), Duration::from_secs(150));
        assert_eq!(Retry::Fixed(Duration::from_secs(3)).delay(9, 0.3), Duration::from_secs(3));
    }
}
