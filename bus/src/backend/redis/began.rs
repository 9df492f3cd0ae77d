//! When the store was begun. Who publishes remembers it: where it turns out to be another time, the store has been emptied,
//! and an event would reach only those subscriptions that have been made again by then.

use parking_lot::Mutex;

use super::error::error;
use crate::contract::READ_AGAIN_WITHIN;
use crate::error::{Error, ErrorKind};

/// What is known of it: nothing at first.
#[derive(Debug, Default)]
pub(super) struct Began(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// When the store that we know was begun, by its clock.
    at: String,
    /// The other one that has been told of.
    told: String,
}

impl Began {
    /// When the store was begun, as we know it; empty if we do not.
    pub(super) fn believed(&self) -> String {
        self.0.lock().at.clone()
    }

    /// That is the store from now on.
    pub(super) fn note(&self, at: String) {
        self.0.lock().at = at;
    }

    /// What is answered for an event that was refused, since the store was begun anew at that time.
    pub(super) fn refuse(&self, at: String) -> Error {
        let mut known = self.0.lock();
        if known.told != at {
            tracing::warn!(
                "the store has been emptied: what was in it is gone, and events are refused for {READ_AGAIN_WITHIN:?}, \
                 until those who read them have made their subscriptions again"
            );
            known.told = at;
        }
        error(
            ErrorKind::Unavailable,
            "the store was emptied a moment ago, and the subscriptions that are read may not all be there again: send \
             the event again in a few seconds",
        )
    }
}
