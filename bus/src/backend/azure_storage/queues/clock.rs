//! The service's clock, as far as it is known: due times and times to live go by it, so that hosts whose clocks differ
//! agree.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use azure_core::http::headers::{HeaderName, Headers};
use azure_core::time::parse_rfc7231;

use crate::clock::{Clock, Timestamp};

const DATE: HeaderName = HeaderName::from_static("date");

/// The service tells its time in whole seconds, and the answer takes its time: as long as our clock may be right, it is
/// taken to be.
pub(super) const DOUBT: Duration = Duration::from_secs(2);

/// Our own wall clock, put right by what the service says.
pub(super) struct ServiceClock {
    clock: Clock,
    /// How far the service's is ahead of ours, in microseconds.
    ahead: AtomicI64,
}

impl ServiceClock {
    pub(super) const fn new(clock: Clock) -> Self {
        ServiceClock { clock, ahead: AtomicI64::new(0) }
    }

    pub(super) fn now(&self) -> Timestamp {
        let ours = self.clock.wall().as_micros();
        Timestamp::from_micros(ours.saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Takes note of what an answer that has just come says.
    pub(super) fn heed(&self, headers: &Headers) {
        let date = headers.get_optional_str(&DATE).and_then(|date| parse_rfc7231(date).ok());
        if let Some(date) = date {
            self.told(Timestamp::from(SystemTime::from(date)));
        }
    }

    fn told(&self, theirs: Timestamp) {
        let ahead = theirs.as_micros().saturating_sub(self.clock.wall().as_micros());
        let doubt = i64::try_from(DOUBT.as_micros()).unwrap_or(i64::MAX);
        let ahead = if ahead.saturating_abs() <= doubt { 0 } else { ahead };
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_wrong_is_put_right_and_one_that_may_be_right_is_left_alone() {
        let clock = ServiceClock::new(Clock::system());
        let now = Timestamp::from(SystemTime::now());
        clock.told(now + Duration::from_secs(1));
        assert!(clock.now() < now + Duration::from_secs(1));
        clock.told(now + Duration::from_secs(3600));
        assert!(clock.now() >= now + Duration::from_secs(3590));
        clock.told(Timestamp::from_micros(now.as_micros() - 3_600_000_000));
        assert!(clock.now() < now);
        clock.told(now);
        assert!(clock.now() >= now, "it is believed again");
    }
}
