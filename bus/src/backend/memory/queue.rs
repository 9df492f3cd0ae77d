//! The messages of one endpoint: who waits, who is claimed, and every rule about it. No task, no waiting, no lock.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::dead::DeadLetters;
use super::fence::Row;
use super::store::error;
use crate::clock::{BootInstant, Timestamp};
use crate::contract::{ConsumerSpec, Depth, Fence};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Delivery, Envelope, Receipt, Verdict};
use crate::settings::Order;

/// The store's two clocks, read once per operation: leases by the first, due times by the second.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) boot: BootInstant,
    pub(super) wall: Timestamp,
}

/// The messages of one endpoint.
///
/// `messages` holds them; `ready`, `delayed` and `claimed` are indexes over their places, so that no operation's cost
/// grows with the backlog.
#[derive(Default)]
pub(super) struct Queue {
    messages: HashMap<u64, Stored>,
    ready: BTreeSet<u64>,
    delayed: BTreeSet<(Timestamp, u64)>,
    claimed: BTreeSet<(BootInstant, u64)>,
    /// What has been tried and is not claimed now: in strict order these come before all others.
    tried: BTreeSet<u64>,
    last_claim: u64,
    pub(super) dead: DeadLetters,
    pub(super) fence: Option<Row>,
    /// When a host has last said that it reads it.
    pub(super) attended: Option<Timestamp>,
    /// How long a message waits here before it is swept away.
    pub(super) retention: Option<Duration>,
    /// Told of everything that a waiting consumer has to know: messages, new deadlines, a raised fence.
    pub(super) changed: Arc<Notify>,
}

/// A message and its history.
pub(super) struct Stored {
    pub(super) envelope: Envelope,
    pub(super) delivery_count: u32,
    failures: u32,
    crashes: u32,
    crashed_alone: bool,
    /// The claim in force is for a run that is made alone.
    alone: bool,
    pub(super) last_error: Option<String>,
    /// It has been put back, or given back: no retention applies to it any more.
    kept: bool,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Ready,
    Delayed(Timestamp),
    Claimed(Claim),
}

#[derive(Clone, Copy)]
struct Claim {
    number: u64,
    until: BootInstant,
    /// Made in a singleton's term: the next term may take it over at once.
    fenced: bool,
}

impl Queue {
    /// Adds a new message.
    pub(super) fn add(&mut self, row: u64, envelope: Envelope, due: Option<Timestamp>, now: Now) {
        self.messages.insert(row, Stored::new(envelope));
        self.put(row, waiting(due, now));
        self.changed.notify_waiters();
    }

    /// Adds a dead letter that is put back.
    pub(super) fn add_again(&mut self, row: u64, envelope: Envelope, now: Now) {
        self.add(row, envelope, None, now);
        if let Some(message) = self.messages.get_mut(&row) {
            message.kept = true;
        }
    }

    /// Claims up to `max` messages, and about as many bytes as the consumer takes: lapsed claims first, since they have waited longest, then in order.
    pub(super) fn claim(&mut self, max: usize, spec: &ConsumerSpec, now: Now) -> Vec<Delivery> {
        self.keep_bound(spec, now);
        self.wake_delayed(now);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.is_empty() || (taken.len() < max && bytes < spec.max_bytes) {
            let Some(row) = self.next_row(spec.order, now) else { break };
            if let Some(delivery) = self.take(row, spec, now) {
                bytes += delivery.envelope.bytes();
                taken.push(delivery);
            }
        }
        if !taken.is_empty() {
            // Other waiting consumers have to know when these claims lapse.
            self.changed.notify_waiters();
        }
        taken
    }

    /// How long until something may be claimed that cannot be now; `None` if only another call can change that.
    pub(super) fn next_change(&self, now: Now) -> Option<Duration> {
        let due = self.delayed.first().map(|(due, _)| due.since(now.wall));
        let lapse = self.claimed.first().map(|(until, _)| until.since(now.boot));
        due.into_iter().chain(lapse).min()
    }

    fn wake_delayed(&mut self, now: Now) {
        while let Some(&(due, row)) = self.delayed.first()
            && due <= now.wall
        {
            self.put(row, Place::Ready);
        }
    }

    fn next_row(&self, order: Order, now: Now) -> Option<u64> {
        let lapsed = self.claimed.first().filter(|(until, _)| *until <= now.boot).map(|(_, row)| *row);
        match order {
            Order::Relaxed => lapsed.or_else(|| self.ready.first().copied()),
            Order::Strict if self.claimed.last().is_some_and(|(until, _)| *until > now.boot) => None,
            Order::Strict => lapsed.or_else(|| match self.tried.first() {
                Some(row) => self.ready.get(row).copied(),
                None => self.ready.first().copied(),
            }),
        }
    }

    /// Claims one message; `None` if it had outlived its time to live and is dead now.
    fn take(&mut self, row: u64, spec: &ConsumerSpec, now: Now) -> Option<Delivery> {
        let message = self.messages.get_mut(&row)?;
        if matches!(message.place, Place::Claimed(_)) {
            message.count_crash();
        }
        if message.envelope.is_expired(now.wall) {
            self.bury(row, "expired".to_owned(), None, now);
            return None;
        }
        message.delivery_count = message.delivery_count.saturating_add(1);
        self.last_claim += 1;
        let claim =
            Claim { number: self.last_claim, until: now.boot + spec.lease, fenced: spec.fence.is_some() };
        let delivery = message.delivery(spec, Receipt::new(row, claim.number));
        self.put(row, Place::Claimed(claim));
        Some(delivery)
    }

    /// Makes a claim last `lease` from now on.
    pub(super) fn extend(&mut self, receipt: &Receipt, lease: Duration, now: Now) -> Result<()> {
        if let Place::Claimed(claim) = self.find_claim(receipt)?.place {
            self.put(receipt.row(), Place::Claimed(Claim { until: now.boot + lease, ..claim }));
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Ends a claim.
    pub(super) fn settle(&mut self, receipt: &Receipt, verdict: Verdict, now: Now) -> Result<()> {
        let message = self.find_claim(receipt)?;
        let row = receipt.row();
        let alone = std::mem::take(&mut message.alone);
        match verdict {
            Verdict::Complete => drop(self.remove(row)),
            Verdict::Retry { after, error } => {
                message.count_failure(&error, alone);
                self.put(row, waiting(after.map(|after| now.wall + after), now));
            }
            Verdict::DeadLetter { reason, error } => self.bury(row, reason, error, now),
            Verdict::Release => {
                message.delivery_count = message.delivery_count.saturating_sub(1);
                message.kept = true;
                self.put(row, Place::Ready);
            }
        }
        self.changed.notify_waiters();
        Ok(())
    }

    /// Whether a settlement or extension of this claim would take effect.
    pub(super) fn check_claim(&mut self, receipt: &Receipt) -> Result<()> {
        self.find_claim(receipt).map(drop)
    }

    /// Records that the run of this claim is made alone.
    pub(super) fn record_alone(&mut self, receipt: &Receipt) -> Result<()> {
        self.find_claim(receipt)?.alone = true;
        Ok(())
    }

    /// Removes a message that is still delayed and has never been available.
    pub(super) fn cancel(&mut self, row: u64, now: Now) -> bool {
        let is_delayed = self.messages.get(&row).is_some_and(|message| {
            message.delivery_count == 0 && matches!(message.place, Place::Delayed(due) if due > now.wall)
        });
        is_delayed && self.remove(row).is_some()
    }

    /// Frees every claim of a former term at once, when a new one begins.
    pub(super) fn lapse_fenced_claims(&mut self, now: Now) {
        let rows: Vec<u64> = self.claimed.iter().map(|(_, row)| *row).collect();
        for row in rows {
            match self.messages.get(&row).map(|message| message.place) {
                Some(Place::Claimed(claim)) if claim.fenced => {
                    self.put(row, Place::Claimed(Claim { until: claim.until.min(now.boot), ..claim }));
                }
                _ => {}
            }
        }
    }

    /// Ends a claim without an outcome, as if its lease had run out and its next holder's as well.
    #[cfg(feature = "testing")]
    pub(super) fn expire(&mut self, receipt: &Receipt) -> Result<()> {
        self.find_claim(receipt)?.count_crash();
        self.put(receipt.row(), Place::Ready);
        self.changed.notify_waiters();
        Ok(())
    }

    /// The message of a claim.
    #[cfg(feature = "testing")]
    pub(super) fn claimed(&mut self, receipt: &Receipt) -> Result<Envelope> {
        Ok(self.find_claim(receipt)?.envelope.clone())
    }

    /// Whether nothing is claimed, and nothing could be in this order until time has passed.
    #[cfg(feature = "testing")]
    pub(super) fn is_at_rest(&self, order: Order, now: Now) -> bool {
        let due = |row| self.delayed.iter().take_while(|(due, _)| *due <= now.wall).any(|(_, r)| *r == row);
        let held_back = order == Order::Strict
            && self.tried.first().is_some_and(|row| !self.ready.contains(row) && !due(*row));
        let claimable =
            !self.ready.is_empty() || self.delayed.first().is_some_and(|(due, _)| *due <= now.wall);
        self.claimed.is_empty() && (held_back || !claimable)
    }

    /// How much is where; a lapsed claim's message is available.
    pub(super) fn depth(&self, now: Now) -> Depth {
        let due = self.delayed.iter().take_while(|(due, _)| *due <= now.wall).count();
        let lapsed = self.claimed.iter().take_while(|(until, _)| *until <= now.boot).count();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Depth::new(
            count(self.ready.len() + due + lapsed),
            count(self.claimed.len() - lapsed),
            count(self.delayed.len() - due),
            count(self.dead.len()),
        )
    }

    /// How long ago the first message that is available was sent.
    pub(super) fn oldest(&self, now: Now) -> Option<Duration> {
        let message = self.messages.get(self.ready.first()?)?;
        Some(now.wall.since(message.envelope.sent_at))
    }

    /// Drops what is older than the retention and has never been claimed, of the first `at_most` that are available;
    /// answers how many.
    pub(super) fn sweep(&mut self, at_most: usize, now: Now) -> u64 {
        let Some(retention) = self.retention else { return 0 };
        let first = self.ready.iter().take(at_most).copied();
        let is_old = |row: &u64| {
            self.messages.get(row).is_some_and(|message| {
                message.delivery_count == 0
                    && !message.kept
                    && now.wall.since(message.envelope.sent_at) > retention
            })
        };
        let old: Vec<u64> = first.filter(is_old).collect();
        for row in &old {
            self.remove(*row);
        }
        old.len() as u64
    }

    fn bury(&mut self, row: u64, reason: String, error: Option<Error>, now: Now) {
        if let Some(message) = self.remove(row) {
            self.dead.add(message, reason, error, now.wall);
        }
    }

    fn find_claim(&mut self, receipt: &Receipt) -> Result<&mut Stored> {
        self.messages
            .get_mut(&receipt.row())
            .filter(
                |message| matches!(message.place, Place::Claimed(claim) if claim.number == receipt.claim()),
            )
            .ok_or_else(|| error(ErrorKind::ReceiptLost, "the claim on the message is no longer ours"))
    }

    /// Moves a message to another place, in the message itself and in the indexes.
    fn put(&mut self, row: u64, place: Place) {
        let Some(message) = self.messages.get_mut(&row) else { return };
        let before = std::mem::replace(&mut message.place, place);
        let was_tried = message.delivery_count > 0;
        self.unindex(row, before);
        match place {
            Place::Ready => drop(self.ready.insert(row)),
            Place::Delayed(due) => drop(self.delayed.insert((due, row))),
            Place::Claimed(claim) => drop(self.claimed.insert((claim.until, row))),
        }
        if was_tried && !matches!(place, Place::Claimed(_)) {
            self.tried.insert(row);
        }
    }

    fn remove(&mut self, row: u64) -> Option<Stored> {
        let message = self.messages.remove(&row)?;
        self.unindex(row, message.place);
        Some(message)
    }

    fn unindex(&mut self, row: u64, place: Place) {
        match place {
            Place::Ready => drop(self.ready.remove(&row)),
            Place::Delayed(due) => drop(self.delayed.remove(&(due, row))),
            Place::Claimed(claim) => drop(self.claimed.remove(&(claim.until, row))),
        }
        self.tried.remove(&row);
    }

    /// Whether `fence`, if there is one, is the one in force.
    pub(super) fn check_fence(&self, fence: Option<Fence>) -> Result<()> {
        match (fence, &self.fence) {
            (None, _) => Ok(()),
            (Some(fence), Some(row)) if row.fence == fence => Ok(()),
            (Some(fence), row) => {
                let lost = error(ErrorKind::TermLost, "another fence is in force").with("fence", fence);
                Err(match row {
                    Some(row) => lost.with("in force", row.fence),
                    None => lost.with("in force", "none"),
                })
            }
        }
    }
}

fn waiting(due: Option<Timestamp>, now: Now) -> Place {
    match due {
        Some(due) if due > now.wall => Place::Delayed(due),
        _ => Place::Ready,
    }
}

impl Stored {
    pub(super) fn new(envelope: Envelope) -> Self {
        Stored {
            envelope,
            delivery_count: 0,
            failures: 0,
            crashes: 0,
            crashed_alone: false,
            alone: false,
            last_error: None,
            kept: false,
            place: Place::Ready,
        }
    }

    /// The claim in force ended without an outcome.
    fn count_crash(&mut self) {
        self.crashes = self.crashes.saturating_add(1);
        self.crashed_alone |= std::mem::take(&mut self.alone);
    }

    /// The attempt failed; made alone, it has shown that it was not what crashed.
    fn count_failure(&mut self, error: &Error, alone: bool) {
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some(error.with_causes());
        if alone {
            self.crashes = 0;
            self.crashed_alone = false;
        }
    }

    fn delivery(&self, spec: &ConsumerSpec, receipt: Receipt) -> Delivery {
        let mut delivery = Delivery::new(self.envelope.clone(), Arc::clone(&spec.endpoint), receipt);
        delivery.delivery_count = self.delivery_count;
        delivery.failures = self.failures;
        delivery.crashes = self.crashes;
        delivery.crashed_alone = self.crashed_alone;
        delivery
    }
}
