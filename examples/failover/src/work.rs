//! What the fleet has to do: how long message number `n` runs, in which style, and how its id says so.
//!
//! The driver has to find a run with enough time left to be hit inside it. It knows only what the histories
//! say, so that the number of a message is a part of its id, and everything else follows from the number.

use std::time::Duration;

use uuid::{Builder, Uuid};

/// Every so manieth run is a long one.
const LONG_EVERY: u64 = 1_000;
const LONG: Duration = Duration::from_secs(3);
/// The other runs take less than this many milliseconds, evenly spread.
const SHORT_BELOW: u64 = 51;

/// How a run goes about its work. Each meets the end of its term differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Awaits, then asks the term before it writes: can be dropped where it awaits.
    Awaiting,
    /// Blocks a thread, then asks the term before it writes: nobody can drop it, its term has to wait.
    Blocking,
    /// Blocks a thread, then writes without a question: nothing but the fence stops a late one.
    Trusting,
}

/// One message's worth of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// From 1 up.
    pub number: u64,
}

impl Task {
    /// The id of its message: a UUID of version 7 that ends in the number.
    pub fn id(self, unix_millis: u64) -> Uuid {
        let mut rest = [0; 10];
        rest[4..].copy_from_slice(&self.number.to_be_bytes()[2..]);
        Builder::from_unix_timestamp_millis(unix_millis, &rest).into_uuid()
    }

    /// The task of a message id.
    pub fn of_id(id: &str) -> Option<Self> {
        let id = Uuid::parse_str(id).ok()?;
        let mut number = [0; 8];
        number[2..].copy_from_slice(&id.as_bytes()[10..]);
        Some(Self { number: u64::from_be_bytes(number) })
    }

    /// How long it runs.
    pub fn run_time(self) -> Duration {
        if self.number.is_multiple_of(LONG_EVERY) {
            return LONG;
        }
        Duration::from_millis(fastrand::Rng::with_seed(self.number).u64(..SHORT_BELOW))
    }

    /// How it runs.
    pub fn style(self) -> Style {
        [Style::Awaiting, Style::Blocking, Style::Trusting][(self.number % 3) as usize]
    }
}

/// How long a run takes on the average.
pub fn mean_run_time() -> Duration {
    Duration::from_millis((SHORT_BELOW - 1) / 2) + LONG / u32::try_from(LONG_EVERY).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_comes_back_out_of_the_id() {
        for number in [1, 3, 1_000, 20_000, 1 << 40] {
            let id = Task { number }.id(1_764_000_000_000);
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(Task::of_id(&id.to_string()), Some(Task { number }));
        }
        assert_eq!(Task::of_id("no id"), None);
    }

    #[test]
    fn short_runs_take_up_to_50_ms_and_every_thousandth_takes_3_s() {
        let times: Vec<_> = (1..=20_000).map(|number| Task { number }.run_time()).collect();
        assert_eq!(times.iter().filter(|time| **time == LONG).count(), 20);
        let short: Vec<_> = times.iter().filter(|time| **time != LONG).collect();
        assert_eq!(short.iter().min(), Some(&&Duration::ZERO));
        assert_eq!(short.iter().max(), Some(&&Duration::from_millis(50)));
        let mean = times.iter().sum::<Duration>() / 20_000;
        assert!(mean.abs_diff(mean_run_time()) < Duration::from_millis(2), "{mean:?}");
    }
}
