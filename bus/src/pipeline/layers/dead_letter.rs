//! How often is too often: failures and crashes are counted apart, each against `dead_letter_delivery_limit`.

use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Endpoint, MessageId, Verdict};
use crate::settings::Resolved;

/// What is known about an attempt before it is made, for judging its verdict.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    failures: u32,
}

impl Attempt {
    /// This delivery's attempt.
    pub fn of(delivery: &Delivery) -> Self {
        Attempt { failures: delivery.failures }
    }
}

/// How a message that may have crashed its process is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crashes {
    /// As any other.
    Few,
    /// Alone, so that if the process dies again it is known which message did it.
    RunAlone,
    /// Not at all: it did it.
    GiveUp,
}

/// Decides by the crashes counted so far, before the message is run.
pub fn crashes(delivery: &Delivery, limit: u32) -> Crashes {
    if delivery.crashed_alone {
        Crashes::GiveUp
    } else if delivery.crashes >= limit {
        Crashes::RunAlone
    } else {
        Crashes::Few
    }
}

/// The verdict on a message that has crashed its process while it ran alone.
pub fn crashed_too_often(delivery: &Delivery) -> Verdict {
    let reason = format!("crashed its process {} times", delivery.crashes);
    tell(&delivery.endpoint, delivery.envelope.id, &reason, None);
    Verdict::DeadLetter { reason, error: None }
}

/// Turns the last allowed failure into a dead letter, and says when any other is tried again.
pub fn judge(
    verdict: Verdict,
    attempt: Attempt,
    settings: &Resolved,
    endpoint: &Endpoint,
    id: MessageId,
) -> Verdict {
    match verdict {
        Verdict::Retry { after, error } => {
            let failures = attempt.failures.saturating_add(1);
            if failures >= settings.dead_letter_delivery_limit {
                let reason = format!("failed {failures} times");
                tell(endpoint, id, &reason, Some(&error));
                return Verdict::DeadLetter { reason, error: Some(error) };
            }
            let after = after.unwrap_or_else(|| settings.retry.delay(failures, fastrand::f64()));
            tracing::warn!(target: "bus::pipeline", event = "message.retried", %endpoint, message_id = %id, failures, ?after, error = %error.with_causes(), "failed, to be tried again");
            Verdict::Retry { after: Some(after), error }
        }
        Verdict::DeadLetter { reason, error } => {
            tell(endpoint, id, &reason, error.as_ref());
            Verdict::DeadLetter { reason, error }
        }
        other => other,
    }
}

fn tell(endpoint: &Endpoint, id: MessageId, reason: &str, error: Option<&Error>) {
    tracing::error!(target: "bus::pipeline", event = "message.dead", %endpoint, message_id = %id, reason, error = error.map(for_the_log), "given up on: dead-lettered");
}

/// An error without what must not be logged: why bytes could not be decoded is told in their own words, which are kept
/// with the dead letter.
pub(super) fn for_the_log(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Decode => error.to_string(),
        _ => error.with_causes(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::Timestamp;
    use crate::message::{Envelope, Receipt};
    use crate::settings;

    fn delivery() -> Delivery {
        let envelope = Envelope::new("t", "x", Timestamp::from_micros(0));
        let endpoint = Endpoint::queue("q").unwrap_or_else(|e| panic!("{e}"));
        Delivery::new(envelope, Arc::new(endpoint), Receipt::new(1, 1))
    }

    fn judged(failures: u32, after: Option<Duration>) -> Verdict {
        let mut delivery = delivery();
        delivery.failures = failures;
        let failed = Verdict::Retry { after, error: Error::new(ErrorKind::Handler, "no") };
        let settings = Resolved::of::<settings::Default>(false);
        judge(failed, Attempt::of(&delivery), &settings, &delivery.endpoint, delivery.envelope.id)
    }

    #[test]
    fn the_last_allowed_failure_is_a_dead_letter() {
        assert!(matches!(judged(3, None), Verdict::Retry { after: Some(_), .. }));
        assert!(matches!(judged(4, None), Verdict::DeadLetter { .. }));
        assert!(matches!(judged(40, None), Verdict::DeadLetter { .. }));
    }

    #[test]
    fn a_handler_that_names_a_time_gets_it() {
        let asked = Some(Duration::from_secs(77));
        assert!(matches!(judged(0, asked), Verdict::Retry { after, .. } if after == asked));
    }

    #[test]
    fn a_log_shows_nothing_of_a_body_that_cannot_be_decoded() {
        use crate::message::Message;
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        struct Age(u8);
        impl Message for Age {
            const TYPE: &'static str = "Age";
        }
        let error = Age::decode(b"\"s3cret\"").err().unwrap_or_else(|| panic!("it was decoded"));
        assert!(error.with_causes().contains("s3cret"), "the dead letter says what was wrong: {error:?}");
        let logged = for_the_log(&error);
        assert!(logged.contains("Age") && !logged.contains("s3cret"), "{logged}");
    }

    /// M19
    #[test]
    fn crashes_lead_to_a_run_alone_and_a_crash_alone_to_giving_up() {
        let mut delivery = delivery();
        delivery.crashes = 4;
        assert_eq!(crashes(&delivery, 5), Crashes::Few);
        delivery.crashes = 5;
        assert_eq!(crashes(&delivery, 5), Crashes::RunAlone);
        delivery.crashed_alone = true;
        assert_eq!(crashes(&delivery, 5), Crashes::GiveUp);
    }
}
