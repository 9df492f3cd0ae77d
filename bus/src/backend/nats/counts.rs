//! How often a message was claimed, failed and crashed. The server counts its deliveries, and nothing else; what a
//! record adds is what became of them.

use serde::{Deserialize, Serialize};

/// What is known of a message after one of its deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Which message: when it was stored, in nanoseconds. Numbers begin anew where a stream is made anew.
    pub(super) of: i64,
    /// Which consumer of the server's counted the delivery.
    pub(super) epoch: String,
    /// The how manieth delivery of that consumer it was.
    pub(super) nth: u64,
    pub(super) claims: u32,
    pub(super) failures: u32,
    pub(super) crashes: u32,
    /// Whether the claim's run is made alone.
    pub(super) alone: bool,
    pub(super) crashed_alone: bool,
    /// Whether nothing is known of the claim's end: if there is another delivery, it was a crash.
    pub(super) open: bool,
    /// When its retry is due, by the server's clock, in microseconds.
    pub(super) due: Option<i64>,
}

impl Record {
    /// The claim that this delivery is, after what was known before.
    pub(super) fn claimed(before: Option<&Record>, of: i64, epoch: &str, nth: u64) -> Self {
        let none = Record { of, epoch: epoch.to_owned(), ..Record::default() };
        let before = before.unwrap_or(&none);
        // Deliveries that nobody has told anything about.
        let untold =
            if before.epoch == epoch { nth.saturating_sub(before.nth + 1) } else { nth - nth.min(1) };
        let untold = u32::try_from(untold).unwrap_or(u32::MAX);
        Record {
            of,
            epoch: epoch.to_owned(),
            nth,
            claims: before.claims.saturating_add(untold).saturating_add(1),
            failures: before.failures,
            crashes: before.crashes.saturating_add(untold).saturating_add(u32::from(before.open)),
            alone: false,
            crashed_alone: before.crashed_alone || before.open && before.alone,
            open: true,
            due: None,
        }
    }

    /// After the claim has ended with a failed attempt.
    #[must_use]
    pub(super) fn failed(&self, due: i64) -> Self {
        let mut ended = Record { alone: false, open: false, due: Some(due), ..self.clone() };
        ended.failures = ended.failures.saturating_add(1);
        if self.alone {
            (ended.crashes, ended.crashed_alone) = (0, false);
        }
        ended
    }

    /// After the claim was given back, as if it had not been made.
    #[must_use]
    pub(super) fn released(&self) -> Self {
        let claims = self.claims.saturating_sub(1);
        Record { claims, alone: false, open: false, due: None, ..self.clone() }
    }

    /// Delivered by another consumer, before its retry is due: not a claim.
    #[must_use]
    pub(super) fn passed_over(&self, epoch: &str, nth: u64) -> Self {
        Record { epoch: epoch.to_owned(), nth, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(record: &Record) -> (u32, u32, u32, bool) {
        (record.claims, record.failures, record.crashes, record.crashed_alone)
    }

    #[test]
    fn deliveries_that_nobody_tells_of_are_crashes() {
        assert_eq!(counts(&Record::claimed(None, 7, "a", 1)), (1, 0, 0, false));
        assert_eq!(counts(&Record::claimed(None, 7, "a", 3)), (3, 0, 2, false));
        let failed = Record::claimed(None, 7, "a", 1).failed(0);
        assert_eq!(counts(&Record::claimed(Some(&failed), 7, "a", 2)), (2, 1, 0, false));
        assert_eq!(counts(&Record::claimed(Some(&failed), 7, "a", 4)), (4, 1, 2, false));
    }

    /// M18
    #[test]
    fn a_release_is_no_attempt() {
        let mut record = Record::claimed(None, 7, "a", 1);
        for nth in 2..5 {
            record = Record::claimed(Some(&record.released()), 7, "a", nth);
            assert_eq!(counts(&record), (1, 0, 0, false));
        }
    }

    /// The server counts from one again where a consumer was made anew.
    #[test]
    fn counts_go_on_with_another_consumer() {
        let crashed = Record::claimed(None, 7, "a", 2);
        assert_eq!(counts(&Record::claimed(Some(&crashed), 7, "b", 1)), (3, 0, 2, false));
        let waits = crashed.failed(9).passed_over("b", 1);
        assert_eq!(counts(&Record::claimed(Some(&waits), 7, "b", 2)), (3, 1, 1, false));
        // A server that has forgotten some of its deliveries.
        assert_eq!(counts(&Record::claimed(Some(&crashed), 7, "a", 1)), (3, 0, 2, false));
    }

    /// M19
    #[test]
    fn a_crash_alone_is_remembered_until_an_attempt_alone_fails() {
        let mut alone = Record::claimed(None, 7, "a", 2);
        alone.alone = true;
        assert_eq!(counts(&Record::claimed(Some(&alone), 7, "a", 3)), (3, 0, 2, true));
        assert_eq!(counts(&Record::claimed(Some(&alone.released()), 7, "a", 3)), (2, 0, 1, false));
        assert_eq!(counts(&Record::claimed(Some(&alone.failed(0)), 7, "a", 3)), (3, 1, 0, false));
    }
}
