//! What was taken from a queue, on its way to whoever asked: back into the queue if it is not due yet, among the dead
//! letters if it has expired or its body is gone, else delivered.

use std::sync::Arc;
use std::time::Duration;

use super::claims::{Claim, Claims};
use super::message::{Content, Stored};
use super::service::Taken;
use super::settle::Desk;
use crate::clock::BootInstant;
use crate::error::Result;
use crate::message::{Delivery, Endpoint, Envelope};

/// For how long a message is left alone whose blob could not be read just now.
const LEISURE: Duration = Duration::from_secs(1);

/// Reads what was taken, claimed until `expires`.
pub(super) fn read(taken: Taken, expires: BootInstant) -> (Claim, u32) {
    let stored = Stored::read(&taken.text, &taken.id);
    let claim = Claim {
        id: taken.id,
        receipt: taken.receipt,
        stored,
        expires,
        alone: false,
        carried: false,
        is_buried: false,
        perhaps_ended: false,
        receipt_in_doubt: false,
        is_over: false,
    };
    (claim, taken.times)
}

impl Desk {
    /// What a claim is to be delivered as; `None` if it has been dealt with here.
    pub(super) async fn open(&self, claim: &mut Claim, taken: u32) -> Option<Envelope> {
        match self.try_open(claim, taken).await {
            Ok(envelope) => envelope,
            Err(error) => {
                // It comes back when its lease ends.
                tracing::warn!(target: "bus::azure_storage", queue = self.queue, message_id = %claim.stored.id, %error, "a message could not be made ready, and comes later");
                None
            }
        }
    }

    /// Gives back what was claimed and is not wanted. If that fails, it comes back when its lease ends.
    pub(super) async fn give_back(&self, mut claim: Claim, taken: u32) {
        let stored = Stored { tally: claim.stored.tally.claimed(taken).released(), ..claim.stored.clone() };
        if let Err(error) = self.wait_until_due(&mut claim, stored, Duration::ZERO).await {
            tracing::warn!(target: "bus::azure_storage", queue = self.queue, %error, "a message that was claimed in vain could not be given back, and comes when its claim runs out");
        }
    }

    async fn try_open(&self, claim: &mut Claim, taken: u32) -> Result<Option<Envelope>> {
        let now = self.outbox.service.clock.now();
        if let Some(due) = claim.stored.due.filter(|due| now < *due) {
            let tally = claim.stored.tally.passed_over(taken);
            let stored = Stored { tally, ..claim.stored.clone() };
            return self.wait_until_due(claim, stored, due.since(now)).await.map(|()| None);
        }
        claim.stored.due = None;
        claim.stored.tally = claim.stored.tally.claimed(taken);
        let envelope = match &claim.stored.content {
            Content::Here(..) => claim.stored.envelope(),
            Content::Blob { name, .. } => match self.outbox.service.fetch(name).await {
                Ok(content) => {
                    let whole = content.and_then(|content| claim.stored.clone().with_content_of(content));
                    let Some(whole) = whole else {
                        let reason = "its blob is gone, or damaged, and its body with it";
                        return self.bury(claim, reason, None).await.map(|()| None);
                    };
                    whole.envelope()
                }
                Err(error) => {
                    let tally = claim.stored.tally.released();
                    self.put_back(claim, tally, LEISURE).await?;
                    return Err(error);
                }
            },
        };
        if envelope.is_expired(now) {
            return self.bury(claim, "expired", None).await.map(|()| None);
        }
        Ok(Some(envelope))
    }
}

/// A claim that is handed out.
pub(super) fn hand_out(
    claims: &Claims,
    claim: Claim,
    envelope: Envelope,
    endpoint: &Arc<Endpoint>,
    asked: BootInstant,
) -> Delivery {
    let tally = claim.stored.tally;
    let mut delivery = Delivery::new(envelope, Arc::clone(endpoint), claims.add(claim));
    delivery.claimed_at = Some(asked);
    delivery.delivery_count = tally.claims;
    delivery.failures = tally.failures;
    delivery.crashes = tally.crashes;
    delivery.crashed_alone = tally.crashed_alone;
    delivery
}
