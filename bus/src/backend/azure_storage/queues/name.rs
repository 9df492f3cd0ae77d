//! Endpoints as names of Azure's queues, and back.
//!
//! A queue `orders` is `bus-q-orders`, the subscription `order-placed/send-receipt` is
//! `bus-t12-order-placed-send-receipt`, where 12 is the length of the topic's name, so that it can be read back. The
//! letters that were given up on are in the queue with `-dl` at the end; hence no queue and no subscription of ours ends
//! so, and no dead letters have dead letters.

use std::fmt;

use super::super::error::error;
use crate::error::{ErrorKind, Result};
use crate::message::{Endpoint, Name};

/// What Azure takes.
const LONGEST: usize = 63;
/// What the name of a queue of dead letters ends with.
const DEAD: &str = "-dl";

/// What the names of all queues of one bus begin with. It has no dashes, so that no two prefixes have a queue in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Prefix(String);

impl Prefix {
    pub(super) const USUAL: &str = "bus";
    const LONGEST: usize = 20;

    /// Checks and takes a prefix.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is not 1 to 20 of a-z and 0-9.
    pub(super) fn new(text: &str) -> Result<Self> {
        let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if plain && (1..=Self::LONGEST).contains(&text.len()) {
            return Ok(Prefix(text.to_owned()));
        }
        Err(error(
            ErrorKind::Config,
            "what the queues' names begin with is 1 to 20 of a-z and 0-9; an azqueue:// URL is azqueue://PREFIX or azqueue://HOST/PREFIX?<SAS>",
        ))
    }

    /// The queue of an endpoint.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if Azure, or the way names are made here, has no room for it.
    pub(super) fn queue_of(&self, endpoint: &Endpoint) -> Result<String> {
        let (name, last) = match endpoint {
            Endpoint::Queue(name) => (format!("{self}-q-{name}"), name),
            Endpoint::Subscription { topic, subscription } => {
                (self.beginning_of(topic) + subscription.as_str(), subscription)
            }
        };
        let why = if last.as_str().ends_with(DEAD) || last.as_str() == "dl" {
            "names that end with -dl are those of dead letters: name it otherwise".to_owned()
        } else if name.len() + DEAD.len() > LONGEST {
            format!(
                "its queue would be called {name} and that of its dead letters {name}{DEAD}, which are more than the {LONGEST} characters that Azure takes: shorten its name by {}, or the prefix",
                name.len() + DEAD.len() - LONGEST
            )
        } else {
            return Ok(name);
        };
        Err(error(ErrorKind::InvalidInput, why).with("endpoint", endpoint))
    }

    /// With what the names of all queues of a topic begin.
    pub(super) fn beginning_of(&self, topic: &Name) -> String {
        format!("{self}-t{}-{topic}-", topic.as_str().len())
    }

    /// With what the names of all queues begin.
    pub(super) fn beginning(&self) -> String {
        format!("{self}-")
    }

    /// The endpoint of a queue; `None` if it is none of ours, or one of dead letters.
    pub(super) fn endpoint_of(&self, queue: &str) -> Option<Endpoint> {
        let rest = queue.strip_prefix(&self.beginning())?;
        let endpoint = match rest.strip_prefix("q-") {
            Some(name) => Endpoint::queue(name).ok()?,
            None => {
                let (length, names) = rest.strip_prefix('t')?.split_once('-')?;
                let (topic, rest) = names.split_at_checked(length.parse().ok()?)?;
                Endpoint::subscription(topic, rest.strip_prefix('-')?).ok()?
            }
        };
        (self.queue_of(&endpoint).ok()? == queue).then_some(endpoint)
    }

    /// The container of large bodies.
    pub(super) fn container(&self) -> String {
        format!("{self}-bodies")
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The queue of the dead letters of a queue.
pub(super) fn dead_letters_of(queue: &str) -> String {
    format!("{queue}{DEAD}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus() -> Prefix {
        Prefix::new(Prefix::USUAL).unwrap()
    }

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap()
    }

    /// M30: each name has its own, which is read back.
    #[test]
    fn every_endpoint_has_a_queue_of_its_own_that_is_read_back() {
        let longest = "x".repeat(54);
        let all =
            ["orders", "a", "0", "q-a", "t1-a-b", "a/b", "a-b/c", "a/b-c", "aa/b", "q/a", "dl-a", &longest];
        let mut names = Vec::new();
        for text in all {
            let name = bus().queue_of(&endpoint(text)).unwrap();
            assert_eq!(bus().endpoint_of(&name), Some(endpoint(text)), "{name}");
            assert!((3..=LONGEST - DEAD.len()).contains(&name.len()), "{name}");
            assert!(Name::new(&name).is_ok(), "{name}");
            assert_eq!(bus().endpoint_of(&dead_letters_of(&name)), None, "{name}");
            names.extend([dead_letters_of(&name), name]);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2 * all.len());
    }

    #[test]
    fn names_are_golden() {
        assert_eq!(bus().queue_of(&endpoint("orders")).unwrap(), "bus-q-orders");
        let subscription = bus().queue_of(&endpoint("order-placed/send-receipt")).unwrap();
        assert_eq!(subscription, "bus-t12-order-placed-send-receipt");
        assert_eq!(dead_letters_of(&subscription), "bus-t12-order-placed-send-receipt-dl");
    }

    /// M30, M34: what Azure has no room for, and what would be the dead letters of another, is refused with the reason.
    #[test]
    fn what_has_no_queue_is_refused_with_the_reason() {
        for (text, why) in [
            ("x".repeat(55), "shorten its name by 1"),
            (format!("{}/{}", "x".repeat(30), "y".repeat(30)), "63 characters"),
            ("orders-dl".to_owned(), "dead letters"),
            ("dl".to_owned(), "dead letters"),
            ("topic/dl".to_owned(), "dead letters"),
        ] {
            let error = bus().queue_of(&endpoint(&text)).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn what_is_no_queue_of_ours_is_passed_over() {
        for name in [
            "",
            "bus",
            "bus-",
            "bus-q",
            "bus-q-",
            "bus-q-a-dl",
            "bus-t-a-b",
            "bus-t9-a-b",
            "bus-t1-ab",
            "bus-tx-a-b",
            "bus-t01-a-b",
            "other-q-a",
            "bus-t1-å-b",
        ] {
            assert_eq!(bus().endpoint_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_prefix_has_no_dashes() {
        for bad in ["", "a-b", "A", "å", &"x".repeat(21)] {
            assert_eq!(Prefix::new(bad).unwrap_err().kind(), ErrorKind::Config, "{bad}");
        }
    }
}
