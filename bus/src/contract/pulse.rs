//! Signs of life: when a store last answered, and by when it will again if all is well.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::BootInstant;

/// What a consumer notes whenever its store has answered a claim, be it with nothing: the host's health rests on it.
///
/// An idle consumer waits inside of [`Consumer::receive`](super::Consumer::receive), perhaps for days, and only it knows
/// whether the store still answers. One that never notes anything is taken for one that does not consume. Cheap to clone;
/// all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Option<Beat>>>);

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Beat {
    /// When it came.
    pub at: BootInstant,
    /// How long the consumer will wait at most, until it asks again by itself.
    pub next_within: Duration,
}

impl Pulse {
    /// Notes an answer that came at `at`, after which the store is asked again within `next_within`.
    pub fn beat(&self, at: BootInstant, next_within: Duration) {
        *self.0.lock() = Some(Beat { at, next_within });
    }

    /// The latest answer.
    pub fn last(&self) -> Option<Beat> {
        *self.0.lock()
    }
}
