//! Claiming messages.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;

use super::answer::{bytes, duration, items, next, number, text, unfenced};
use super::body;
use super::error::unexpected;
use super::fence::{Term, micros};
use super::keys::Place;
use super::script::{CLAIM, Invocation};
use crate::clock::BootInstant;
use crate::contract::{ConsumerSpec, fresh_claim};
use crate::error::Result;
use crate::message::{Delivery, Endpoint, Receipt};
use crate::settings::Order;

/// How many messages one call claims at most: a script keeps everyone else waiting.
const MOST_MESSAGES: usize = 1000;

/// Claims whose answers were lost, by a broken connection or a dropped future: the next claim is made under the same
/// number and gets what this one had got, without its being counted again.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<Vec<u64>>);

/// A claim that is being made. Unless it is answered, it is made again.
pub(super) struct Attempt<'u> {
    unanswered: &'u Unanswered,
    pub(super) claim: u64,
    again: bool,
    is_answered: bool,
}

impl Unanswered {
    pub(super) fn next(&self) -> Attempt<'_> {
        let lost = self.0.lock().pop();
        Attempt {
            unanswered: self,
            claim: lost.unwrap_or_else(|| fresh_claim().cast_unsigned()),
            again: lost.is_some(),
            is_answered: false,
        }
    }
}

impl Attempt<'_> {
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.unanswered.0.lock().push(self.claim);
        }
    }
}

/// A claim as a call.
pub(super) fn request(
    spec: &ConsumerSpec,
    place: &Place,
    term: Option<Term>,
    max: usize,
    attempt: &Attempt<'_>,
) -> Invocation {
    Invocation::new(&CLAIM, place.keys())
        .with(attempt.claim)
        .with(max.clamp(1, MOST_MESSAGES))
        .with(micros(spec.lease))
        .with(term.map(|term| term.fence.to_string()).unwrap_or_default())
        .with(term.map_or(0, |term| micros(term.lock_lease)))
        .with(u8::from(spec.order == Order::Strict))
        .with(u8::from(attempt.again))
        .with(spec.max_bytes)
        .with(place.name())
}

/// What a consumer got.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) deliveries: Vec<Delivery>,
    /// Whether the endpoint was missing and has been made again.
    pub(super) made: bool,
    /// When something becomes available by itself, if nothing was.
    pub(super) next_change: Option<Duration>,
}

impl Claimed {
    /// Reads the answer to a claim with that number, whose leases began after `at`.
    pub(super) fn read(
        answer: Value,
        endpoint: &Arc<Endpoint>,
        term: Option<Term>,
        claim: u64,
        at: BootInstant,
    ) -> Result<Self> {
        let mut answer = unfenced(answer, term.map(|term| term.fence))?;
        let made = number::<u8>(next(&mut answer)?)? == 1;
        let next_change = duration(next(&mut answer)?)?;
        let mut known = items(next(&mut answer)?)?;
        let (mut row, new) = (number::<u64>(next(&mut answer)?)?, items(next(&mut answer)?)?);
        let mut deliveries = Vec::with_capacity(known.len() / 3 + new.len());
        let delivery = |row, body| {
            let envelope = body::decode(bytes(body)?);
            let mut delivery = Delivery::new(envelope, Arc::clone(endpoint), Receipt::new(row, claim));
            delivery.claimed_at = Some(at);
            Ok(delivery)
        };
        while let Some(row) = known.next() {
            let counts = text(next(&mut known)?)?;
            let mut delivery = delivery(number(row)?, next(&mut known)?)?;
            read_counts(&mut delivery, &counts).ok_or_else(|| unexpected("no counts of a message"))?;
            deliveries.push(delivery);
        }
        for body in new {
            deliveries.push(delivery(row, body)?);
            row += 1;
        }
        Ok(Claimed { deliveries, made, next_change })
    }
}

fn read_counts(delivery: &mut Delivery, counts: &str) -> Option<()> {
    let mut counts = counts.split(' ').map(|count| count.parse::<u32>().ok());
    delivery.delivery_count = counts.next()??;
    delivery.failures = counts.next()??;
    delivery.crashes = counts.next()??;
    delivery.crashed_alone = counts.next()?? == 1;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_an_answer_is_made_again_under_its_number() {
        let unanswered = Unanswered::default();
        let first = unanswered.next();
        // Another one at the same time is another one.
        let second = unanswered.next();
        assert_ne!(first.claim, second.claim);
        assert!(!first.again && !second.again);
        let lost = first.claim;
        drop(first);
        second.answered();
        let again = unanswered.next();
        assert_eq!((again.claim, again.again), (lost, true));
        again.answered();
        assert!(!unanswered.next().again);
    }
}
