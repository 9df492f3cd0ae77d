//! The clocks of others, by which what they have written is reckoned: processes that see another boot id than we do, or
//! live in another time namespace, and those from before the machine was restarted.
//!
//! Another boot id alone proves nothing: containers of one kernel may each be shown one of their own. What such a clock
//! shows is known from below. It has been seen to show something, and has gone on since as ours has; unless the machine was
//! restarted, and then nobody goes by it any more. So whatever is over by the least that it can show is over for certain,
//! and after a restart that takes no longer than what was left of a lease.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::clock::BootInstant;

/// What has been seen of each.
#[derive(Debug, Default)]
pub(super) struct OtherClocks(RefCell<HashMap<i64, Sighting>>);

/// What a clock has shown, and when that was seen by ours.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    shown: BootInstant,
    at: BootInstant,
}

impl Sighting {
    fn least(self, now: BootInstant) -> BootInstant {
        self.shown + now.since(self.at)
    }
}

impl OtherClocks {
    /// The least that a clock shows `now`, of which the store says that it has `shown` this.
    pub(super) fn least(&self, clock: i64, shown: BootInstant, now: BootInstant) -> BootInstant {
        let mut all = self.0.borrow_mut();
        let sighting = all.entry(clock).or_insert(Sighting { shown, at: now });
        if sighting.least(now) < shown {
            *sighting = Sighting { shown, at: now };
        }
        sighting.least(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_goes_on_from_what_it_was_seen_to_show() {
        let clocks = OtherClocks::default();
        // Nothing is said twice: what is in the store may be old.
        assert_eq!(clocks.least(1, at(5000), at(10)), at(5000));
        assert_eq!(clocks.least(1, at(5000), at(30)), at(5020));
        // It says what we knew already; then that it is ahead of what we knew.
        assert_eq!(clocks.least(1, at(5019), at(30)), at(5020));
        assert_eq!(clocks.least(1, at(5060), at(31)), at(5060));
        assert_eq!(clocks.least(1, at(5060), at(32)), at(5061));
        // A store that was brought back from a backup knows less than we do.
        assert_eq!(clocks.least(1, at(4000), at(33)), at(5062));
        assert_eq!(clocks.least(2, at(7), at(33)), at(7), "another one");
    }
}
