//! The claims of a consumer. The server acknowledges by a message's number alone, whoever holds it: whose it is, and
//! until when, is known here, by a clock that never jumps.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;

use super::counts::Record;
use super::error::receipt_lost;
use crate::clock::BootInstant;
use crate::contract::fresh_claim;
use crate::error::Result;
use crate::message::{MessageId, Receipt};

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) sequence: u64,
    /// Where it is acknowledged.
    pub(super) reply: String,
    /// Until when it is certainly ours: the server's reckoning began later.
    pub(super) until: BootInstant,
    /// How long the server waits for an acknowledgement, unless told otherwise.
    pub(super) ack_wait: Duration,
    pub(super) record: Record,
    /// The number of the message's record in the store, if there is one.
    pub(super) recorded: Option<u64>,
    /// Whether it was tried to end it, and nobody knows whether it has ended.
    pub(super) is_in_doubt: bool,
    pub(super) id: MessageId,
    /// The message as it is stored.
    pub(super) payload: Bytes,
}

/// The claims of a consumer, by the numbers of their messages, each with the number of the claim.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<u64, (u64, Claim)>>);

impl Claims {
    /// Takes note of a claim; answers the receipt that names it.
    pub(super) fn add(&self, claim: Claim, now: BootInstant) -> Receipt {
        let number = fresh_claim().cast_unsigned();
        let mut claims = self.0.lock();
        if claims.len() == claims.capacity() {
            // Before it grows: some may have run out and never been asked for again.
            claims.retain(|_, (_, claim)| claim.until > now);
        }
        let receipt = Receipt::new(claim.sequence, number);
        claims.insert(claim.sequence, (number, claim));
        receipt
    }

    /// Whether a message is claimed already. The server delivers it a second time all the same where, of those that wait
    /// for one, some are gone (nats-server 2.9).
    pub(super) fn hold(&self, sequence: u64, now: BootInstant) -> bool {
        self.0.lock().get(&sequence).is_some_and(|(_, claim)| claim.until > now)
    }

    /// The claim, if it is still ours.
    pub(super) fn get(&self, receipt: &Receipt, now: BootInstant) -> Result<Claim> {
        let claims = self.0.lock();
        let claim =
            claims.get(&receipt.row()).filter(|(number, claim)| is_ours(*number, claim, receipt, now));
        claim.map(|(_, claim)| claim.clone()).ok_or_else(receipt_lost)
    }

    /// The same, taken out: nobody else ends it meanwhile.
    pub(super) fn take(&self, receipt: &Receipt, now: BootInstant) -> Result<Claim> {
        let mut claims = self.0.lock();
        let found = claims.get(&receipt.row());
        if !found.is_some_and(|(number, claim)| is_ours(*number, claim, receipt, now)) {
            return Err(receipt_lost());
        }
        claims.remove(&receipt.row()).map(|(_, claim)| claim).ok_or_else(receipt_lost)
    }

    /// Puts one back that could not be ended.
    pub(super) fn put_back(&self, receipt: &Receipt, claim: Claim) {
        self.0.lock().entry(receipt.row()).or_insert((receipt.claim(), claim));
    }

    /// Changes one, if it is there.
    pub(super) fn change(&self, receipt: &Receipt, change: impl FnOnce(&mut Claim)) {
        if let Some((number, claim)) = self.0.lock().get_mut(&receipt.row())
            && *number == receipt.claim()
        {
            change(claim);
        }
    }
}

fn is_ours(number: u64, claim: &Claim, receipt: &Receipt, now: BootInstant) -> bool {
    number == receipt.claim() && claim.until > now
}

/// What a delivery's reply subject tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The how manieth delivery by this consumer it is.
    pub(super) nth: u64,
    pub(super) sequence: u64,
    /// The how manieth of all that this consumer has delivered it is.
    pub(super) delivery: u64,
    /// When the message was stored, in nanoseconds.
    pub(super) stored: i64,
}

impl Told {
    /// Reads `$JS.ACK.[domain.account.]stream.consumer.nth.sequence.delivery.stored.pending[.token]`.
    pub(super) fn read(reply: &str) -> Option<Self> {
        let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        // The shorter form has no domain and no account.
        let counts = tokens.get(if tokens.len() > 7 { 4.. } else { 2.. })?;
        let [nth, sequence, delivery, stored, ..] = counts else { return None };
        Some(Told {
            nth: nth.parse().ok()?,
            sequence: sequence.parse().ok()?,
            delivery: delivery.parse().ok()?,
            stored: stored.parse().ok()?,
        })
    }
}

/// What a delivery is answered with.
pub(super) const DONE: &[u8] = b"+ACK";
pub(super) const GIVEN_BACK: &[u8] = b"-NAK";
pub(super) const IN_PROGRESS: &[u8] = b"+WPI";

/// Not to be delivered again before that time has passed. The message goes on being claimed, so that this is how a claim
/// is given a length of its own, too.
pub(super) fn not_for(time: Duration) -> Vec<u8> {
    let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    format!("-NAK {}", json!({ "delay": nanos })).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_reply_are_read() {
        let told = Some(Told { nth: 2, sequence: 17, delivery: 3, stored: 1_796_069_924_280_284_106 });
        for reply in [
            "$JS.ACK.bus_q_jobs.all.2.17.3.1796069924280284106.4",
            "$JS.ACK._.ACCHASH.bus_q_jobs.all.2.17.3.1796069924280284106.4",
            "$JS.ACK.hub.ACCHASH.bus_q_jobs.all.2.17.3.1796069924280284106.4.token",
        ] {
            assert_eq!(Told::read(reply), told, "{reply}");
        }
        for foreign in ["", "$JS.ACK.", "$JS.ACK.a.b.c.d.e.f.g", "_INBOX.x.1.2.3.4.5.6"] {
            assert_eq!(Told::read(foreign), None, "{foreign}");
        }
    }
}
