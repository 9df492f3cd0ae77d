//! When a store was begun, for backends whose store somebody may empty under running hosts. Whoever publishes remembers it:
//! where it turns out to be another time, an event would reach only those subscriptions that have been made again by then.

use parking_lot::Mutex;

use crate::contract::READ_AGAIN_WITHIN;
use crate::error::{Error, ErrorKind};

/// What is known of it: nothing at first.
#[derive(Debug, Default)]
pub struct Beginning(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When the store that we know was begun, in words of the store's.
    at: Option<String>,
    /// The other time that has been told of.
    told: Option<String>,
}

impl Beginning {
    /// When the store that we know was begun.
    pub fn known(&self) -> Option<String> {
        self.0.lock().at.clone()
    }

    /// Whether a store that was begun then is another one than that.
    pub fn is_another(&self, at: &str) -> bool {
        self.0.lock().at.as_ref().is_some_and(|known| known != at)
    }

    /// That is the store from now on.
    pub fn note(&self, at: String) {
        self.0.lock().at = Some(at);
    }

    /// What is answered for an event, since another store was begun then, and so lately that not everything may be read
    /// again. It is said once in the log.
    pub fn refusal(&self, at: String) -> Error {
        let told = self.0.lock().told.replace(at.clone());
        if told.as_ref() != Some(&at) {
            tracing::warn!(
                "the store has been emptied: what was in it is gone, and events are refused for {READ_AGAIN_WITHIN:?}, \
                 until those who read them have made their subscriptions again"
            );
        }
        Error::new(
            ErrorKind::Unavailable,
            "the store was emptied a moment ago, and the subscriptions that are read may not all be there again: send \
             the event again in a few seconds",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_store_is_refused_until_it_is_the_known_one() {
        let beginning = Beginning::default();
        assert!(!beginning.is_another("1"), "nothing is known yet");
        beginning.note("1".into());
        assert!(!beginning.is_another("1") && beginning.is_another("2"));
        let refusal = beginning.refusal("2".into());
        assert!(refusal.kind() == ErrorKind::Unavailable && refusal.is_transient(), "{refusal:?}");
        beginning.note("2".into());
        assert_eq!((beginning.known().as_deref(), beginning.is_another("2")), (Some("2"), false));
    }
}
