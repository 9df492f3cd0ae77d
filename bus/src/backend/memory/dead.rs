//! What has been given up on.

use std::collections::{BTreeMap, HashMap};

use super::queue::Stored;
use crate::clock::Timestamp;
use crate::contract::DeadLetter;
use crate::error::Error;
use crate::message::{Endpoint, Envelope, Headers, MessageId};

/// One endpoint's dead letters, in the order of their deaths.
#[derive(Default)]
pub(super) struct DeadLetters {
    letters: BTreeMap<u64, Dead>,
    last: u64,
}

struct Dead {
    envelope: Envelope,
    reason: String,
    error: Option<String>,
    since: Timestamp,
    delivery_count: u32,
}

impl DeadLetters {
    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }

    pub(super) fn add(&mut self, message: Stored, reason: String, error: Option<Error>, since: Timestamp) {
        self.last += 1;
        let error = error.map(|error| error.with_causes()).or(message.last_error);
        let (envelope, delivery_count) = (message.envelope, message.delivery_count);
        self.letters.insert(self.last, Dead { envelope, reason, error, since, delivery_count });
    }

    /// All letters, oldest first.
    #[cfg(feature = "testing")]
    pub(super) fn all(&self, endpoint: &Endpoint) -> impl Iterator<Item = DeadLetter> {
        self.letters.values().map(|dead| dead.letter(endpoint))
    }

    /// A page of letters, oldest first. An `after` that is gone was taken out with its page: begin anew.
    pub(super) fn page(
        &self,
        endpoint: &Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> Vec<DeadLetter> {
        let start = after
            .and_then(|id| self.letters.iter().find(|(_, dead)| dead.envelope.id == id))
            .map_or(0, |(number, _)| number + 1);
        self.letters.range(start..).take(limit).map(|(_, dead)| dead.letter(endpoint)).collect()
    }

    /// Takes letters out, each answered for, as they would be sent again.
    pub(super) fn take_out(&mut self, ids: &[MessageId]) -> Vec<(MessageId, Vec<Envelope>)> {
        let mut by_id: HashMap<MessageId, Vec<u64>> = HashMap::new();
        for (number, dead) in &self.letters {
            by_id.entry(dead.envelope.id).or_default().push(*number);
        }
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            let numbers = by_id.remove(id).unwrap_or_default();
            let letters = numbers.iter().filter_map(|number| self.letters.remove(number));
            taken.push((*id, letters.map(Dead::revive).collect()));
        }
        taken
    }
}

impl Dead {
    fn letter(&self, endpoint: &Endpoint) -> DeadLetter {
        DeadLetter::new(
            self.envelope.clone(),
            endpoint.clone(),
            self.reason.clone(),
            self.error.clone(),
            self.since,
            self.delivery_count,
        )
    }

    /// The message as it is put back, which its headers say: without its time to live, else an expired one would be dead
    /// again at once.
    fn revive(mut self) -> Envelope {
        self.envelope.time_to_live = None;
        self.envelope.headers.insert(Headers::PUT_BACK, "1");
        self.envelope
    }
}
