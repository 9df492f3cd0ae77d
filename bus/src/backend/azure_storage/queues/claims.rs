//! The claims of a consumer. Each has **one owner of its pop receipt**: every extension gives the message another, so
//! that whoever extends or settles it has the claim to himself until the answer has come.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::call::{Answer, Called};
use super::super::error::error;
use super::message::Stored;
use crate::clock::BootInstant;
use crate::contract::fresh_claim;
use crate::error::{Error, ErrorKind};
use crate::message::Receipt;

/// For how long a claim is kept after its end. A message that nobody else has taken can still be settled, as after a sleep of
/// the host.
const REMEMBERED: Duration = Duration::from_secs(600);

/// A claim, as its owner has it.
pub(super) struct Claim {
    /// Azure's name for the message.
    pub(super) id: String,
    /// The pop receipt that counts.
    pub(super) receipt: String,
    /// The message, its counts with this claim among them.
    pub(super) stored: Stored,
    /// Until when it is certainly ours.
    pub(super) expires: BootInstant,
    /// Its run is made alone.
    pub(super) alone: bool,
    /// What its settlement sends has been sent: not again, should it be tried again.
    pub(super) carried: bool,
    /// Likewise its dead letter.
    pub(super) is_buried: bool,
    /// No answer came to an attempt to end it: it may have ended.
    pub(super) perhaps_ended: bool,
    /// No answer came to an attempt to extend it: the receipt that counts may be another, which nobody knows.
    pub(super) receipt_in_doubt: bool,
    /// It has been settled, or lost.
    pub(super) is_over: bool,
}

impl Claim {
    /// Where its message is, for the service.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.id, &self.receipt)
    }

    /// What an answer to an attempt to end the claim means. One that says that it is stale, after another that did not come,
    /// says that the earlier attempt has ended it: nobody else can have taken it yet. Unless an extension may have made it
    /// stale: then it is lost, which at worst has the message come again.
    pub(super) fn ended<T>(&mut self, called: Called<T>, now: BootInstant) -> Answer<()> {
        self.perhaps_ended |= called.perhaps_before;
        match called.answer {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_stale_claim() && self.has_perhaps_been_ended_by_us(now) => Ok(()),
            Err(failure) => {
                self.perhaps_ended |= !failure.is_certain();
                Err(failure)
            }
        }
    }

    fn has_perhaps_been_ended_by_us(&self, now: BootInstant) -> bool {
        self.perhaps_ended && !self.receipt_in_doubt && now < self.expires
    }

    /// Takes note of the answer to an attempt, made at `asked`, to extend it.
    pub(super) fn extended(
        &mut self,
        called: Called<String>,
        asked: BootInstant,
        lease: Duration,
    ) -> Answer<()> {
        match called.answer {
            Ok(receipt) => {
                self.receipt = receipt;
                // The one before it counted until now.
                self.receipt_in_doubt = false;
                self.expires = asked + lease;
                Ok(())
            }
            Err(failure) => {
                self.receipt_in_doubt |= called.perhaps_before || !failure.is_certain();
                Err(failure)
            }
        }
    }
}

pub(super) type Owned = Arc<tokio::sync::Mutex<Claim>>;

/// All claims of a consumer that are neither settled nor lost.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<u64, Owned>>);

impl Claims {
    /// Takes a fresh one in.
    pub(super) fn add(&self, claim: Claim) -> Receipt {
        let number = fresh_claim().cast_unsigned();
        self.0.lock().insert(number, Arc::new(tokio::sync::Mutex::new(claim)));
        Receipt::new(0, number)
    }

    /// Forgets those that ended long ago: whoever had them has given up.
    pub(super) fn sweep(&self, now: BootInstant) {
        let is_kept = |owned: &Owned| owned.try_lock().is_ok_and(|claim| now < claim.expires + REMEMBERED);
        self.0.lock().retain(|_, owned| Arc::strong_count(owned) > 1 || is_kept(owned));
    }

    /// The one that a receipt names.
    ///
    /// # Errors
    /// [`ErrorKind::ReceiptLost`] if it has been settled, or lost.
    pub(super) fn find(&self, receipt: &Receipt) -> Result<Owned, Error> {
        self.0.lock().get(&receipt.claim()).cloned().ok_or_else(lost)
    }

    /// Forgets one that is over.
    pub(super) fn forget(&self, receipt: &Receipt) {
        self.0.lock().remove(&receipt.claim());
    }
}

pub(super) fn lost() -> Error {
    error(ErrorKind::ReceiptLost, "the message is not claimed under this receipt any more")
}

#[cfg(test)]
mod tests {
    use super::super::delivery::read;
    use super::super::service::Taken;
    use super::*;

    #[test]
    fn a_claim_that_ended_long_ago_is_forgotten_unless_it_is_being_settled() {
        let (claims, end) = (Claims::default(), BootInstant::from_nanos(1_000_000_000));
        let claim = |id: &str| {
            let taken = Taken {
                id: id.to_owned(),
                receipt: "r".to_owned(),
                times: 1,
                put_at: crate::clock::Timestamp::from_micros(0),
                text: String::new(),
            };
            read(taken, end).0
        };
        let (left, held) = (claims.add(claim("left")), claims.add(claim("held")));
        let owned = claims.find(&held).unwrap();
        claims.sweep(end + Duration::from_secs(599));
        assert!(claims.find(&left).is_ok(), "it may still be settled");
        claims.sweep(end + REMEMBERED);
        assert!(claims.find(&left).is_err_and(|lost| lost.kind() == ErrorKind::ReceiptLost));
        assert!(claims.find(&held).is_ok(), "somebody has it");
        drop(owned);
        claims.sweep(end + REMEMBERED);
        assert!(claims.find(&held).is_err());
    }
}
