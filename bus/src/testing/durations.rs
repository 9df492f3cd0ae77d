//! `3.days()`.

use std::time::Duration;

/// Durations as one says them: `3.days()`, `20.seconds()`.
///
/// ```
/// use bus::testing::Durations;
/// assert_eq!(3.days() + 12.hours(), 84.hours());
/// assert_eq!(1.minutes(), 60_000.milliseconds());
/// ```
///
/// # Panics
/// For a negative number, and for one of more than 500 thousand million years.
pub trait Durations: Sized {
    /// So many thousandths of a second.
    fn milliseconds(self) -> Duration;

    /// So many seconds.
    fn seconds(self) -> Duration;

    /// So many times 60 seconds.
    fn minutes(self) -> Duration;

    /// So many times 60 minutes.
    fn hours(self) -> Duration;

    /// So many times 24 hours.
    fn days(self) -> Duration;
}

macro_rules! durations {
    ($($number:ty)+) => {$(
        impl Durations for $number {
            fn milliseconds(self) -> Duration {
                Duration::from_millis(checked(self, 1))
            }
            fn seconds(self) -> Duration {
                Duration::from_secs(checked(self, 1))
            }
            fn minutes(self) -> Duration {
                Duration::from_secs(checked(self, 60))
            }
            fn hours(self) -> Duration {
                Duration::from_secs(checked(self, 60 * 60))
            }
            fn days(self) -> Duration {
                Duration::from_secs(checked(self, 24 * 60 * 60))
            }
        }
    )+};
}
durations!(i32 u32 i64 u64 usize);

/// `number` times `unit`.
fn checked(number: impl TryInto<u64> + std::fmt::Display + Copy, unit: u64) -> u64 {
    let product = number.try_into().ok().and_then(|number| number.checked_mul(unit));
    product.unwrap_or_else(|| {
        panic!("a duration is neither negative nor endless, and this is {number} × {unit}")
    })
}
