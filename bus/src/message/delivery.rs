//! One claim on one message, and what is to become of it.

use std::sync::Arc;
use std::time::Duration;

use super::{CONTINUED_FOR, Endpoint, Envelope, Headers};
use crate::clock::BootInstant;
use crate::error::Error;
use crate::scope::Scope;

/// Names a claim on a message, not the message: after the claim has passed to someone else, the old receipt settles
/// and extends nothing.
///
/// What the parts mean is the backend's own business; nobody else reads them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    row: u64,
    claim: u64,
    text: Option<Arc<str>>,
}

impl Receipt {
    /// A receipt of two numbers, usually the message's row and a token made for this claim.
    pub const fn new(row: u64, claim: u64) -> Self {
        Receipt { row, claim, text: None }
    }

    /// Adds a text, for stores whose receipts are texts.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// The first number.
    pub const fn row(&self) -> u64 {
        self.row
    }

    /// The second number.
    pub const fn claim(&self) -> u64 {
        self.claim
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

/// A message that has been claimed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The message.
    pub envelope: Envelope,
    /// Where it was received.
    pub endpoint: Arc<Endpoint>,
    /// The claim.
    pub receipt: Receipt,
    /// An instant before the store was asked for the claim: the claim lasts at least one lease from here. `None` if
    /// the backend cannot tell; then the time at which the answer came stands in.
    pub claimed_at: Option<BootInstant>,
    /// How often it has been claimed, this time included; a claim that was released unused does not count.
    pub delivery_count: u32,
    /// How many attempts have failed (the handler returned an error, panicked or ran out of time).
    pub failures: u32,
    /// How many claims ended without any outcome: the process died, or the claim ran out.
    pub crashes: u32,
    /// Whether an attempt that was made alone, because of too many crashes, ended in a crash too.
    pub crashed_alone: bool,
    /// How long ago it was sent, when it was claimed: by the sender's clock and the host's. Zero until the pump has it.
    pub age: Duration,
    /// What this message's run can reach: the host's values, values of its own, its cancellation.
    pub scope: Scope,
}

impl Delivery {
    /// A first delivery.
    pub fn new(envelope: Envelope, endpoint: Arc<Endpoint>, receipt: Receipt) -> Self {
        Delivery {
            envelope,
            endpoint,
            receipt,
            claimed_at: None,
            delivery_count: 1,
            failures: 0,
            crashes: 0,
            crashed_alone: false,
            age: Duration::ZERO,
            scope: Scope::default(),
        }
    }

    /// Whether its run continues the trace of whoever sent it. One that was put back from the dead letters, or is older than
    /// [`CONTINUED_FOR`], be it that it was delayed, waited, or failed for so long, begins a trace of its own, which is linked
    /// to the sender's.
    pub fn continues_trace(&self) -> bool {
        self.age <= CONTINUED_FOR && self.envelope.headers.get(Headers::PUT_BACK).is_none()
    }
}

/// What is to become of a message after its run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// Done: the message is removed.
    Complete,
    /// The attempt failed; the message comes back after `after` (`None`: as the processor's retry policy says).
    Retry {
        /// When to try again. Always filled in when a backend sees it.
        after: Option<Duration>,
        /// Why it failed.
        error: Error,
    },
    /// Never to be tried again by itself: kept among the dead letters.
    DeadLetter {
        /// Why, in a word or sentence (`failed too often`, `expired`, `undecodable`).
        reason: String,
        /// What failed last, where something did.
        error: Option<Error>,
    },
    /// Not an attempt: the message is available at once, as if it had not been claimed.
    Release,
}

impl Verdict {
    /// What it is called in events and spans.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Verdict::Complete => "complete",
            Verdict::Retry { .. } => "retry",
            Verdict::DeadLetter { .. } => "dead-letter",
            Verdict::Release => "release",
        }
    }
}
