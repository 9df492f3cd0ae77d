//! What has passed between a test host's processors and its stores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::contract::{DeadLetter, Outgoing, Placed};
use crate::message::{
    Command, Endpoint, Envelope, Event, Headers, Message, MessageId, Name, Target, Verdict,
};

/// A command that was sent or an event that was published, and that the store has taken.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentMessage<M> {
    /// What was sent.
    pub message: M,
    /// Its id.
    pub id: MessageId,
    /// Its headers, the bus's own among them.
    pub headers: Headers,
    /// How long after it was sent it is available; `None` if that is at once.
    pub delay: Option<Duration>,
    /// How long it is worth processing, where that was said.
    pub time_to_live: Option<Duration>,
    /// Whether it was taken back by [`Bus::cancel`](crate::Bus::cancel).
    pub cancelled: bool,
    /// When it was sent: the virtual time since the test host was started.
    pub at: Duration,
}

/// A message whose processor succeeded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompletedMessage<M> {
    /// The message.
    pub message: M,
    /// Its id.
    pub id: MessageId,
    /// Where its processor has received it.
    pub endpoint: Endpoint,
    /// How often it had been claimed, the last time included.
    pub delivery_count: u32,
    /// When the store confirmed it: the virtual time since the test host was started.
    pub at: Duration,
}

/// An attempt that failed and that another one was to follow.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetriedMessage<M> {
    /// The message.
    pub message: M,
    /// Its id.
    pub id: MessageId,
    /// Where its processor has received it.
    pub endpoint: Endpoint,
    /// How many attempts have failed, this one included.
    pub failures: u32,
    /// Why, with all causes.
    pub error: String,
    /// How long after this the next attempt is due.
    pub after: Duration,
    /// When it failed: the virtual time since the test host was started.
    pub at: Duration,
}

/// A message that was given up on and is among the dead letters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeadMessage<M> {
    /// The message; `None` if its bytes are no `M`.
    pub message: Option<M>,
    /// Its bytes.
    pub body: Bytes,
    /// Its id.
    pub id: MessageId,
    /// Its headers.
    pub headers: Headers,
    /// Where its processor has received it.
    pub endpoint: Endpoint,
    /// Why it was given up on: `failed 5 times`, `expired`, or what the handler said.
    pub reason: String,
    /// What failed last, where something did.
    pub error: Option<String>,
    /// How often it had been claimed.
    pub delivery_count: u32,
    /// When: the virtual time since the test host was started.
    pub at: Duration,
}

/// Everything so far, in order.
#[derive(Default)]
pub(super) struct History {
    sent: Mutex<Vec<Sent>>,
    settled: Mutex<Vec<Settled>>,
}

struct Sent {
    transport: String,
    target: Target,
    envelope: Envelope,
    delay: Option<Duration>,
    placed: Option<Placed>,
    cancelled: bool,
    at: Duration,
}

struct Settled {
    transport: String,
    message: Received,
    verdict: Verdict,
    at: Duration,
}

/// What is known of a message that was claimed.
#[derive(Clone)]
pub(super) struct Received {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) envelope: Envelope,
    pub(super) delivery_count: u32,
    pub(super) failures: u32,
}

impl History {
    /// Notes what a store has taken.
    pub(super) fn sent(
        &self,
        transport: &str,
        message: Outgoing,
        delay: Option<Duration>,
        placed: Option<Placed>,
        at: Duration,
    ) {
        let Outgoing { target, envelope, .. } = message;
        let transport = transport.to_owned();
        self.sent.lock().push(Sent { transport, target, envelope, delay, placed, cancelled: false, at });
    }

    /// Notes that it was taken back.
    pub(super) fn cancelled(&self, transport: &str, placed: &Placed) {
        let mut sent = self.sent.lock();
        let of_this = |sent: &&mut Sent| sent.transport == transport && sent.placed.as_ref() == Some(placed);
        if let Some(sent) = sent.iter_mut().find(of_this) {
            sent.cancelled = true;
        }
    }

    /// Notes a verdict that a store has confirmed.
    pub(super) fn settled(&self, transport: &str, message: Received, verdict: Verdict, at: Duration) {
        self.settled.lock().push(Settled { transport: transport.to_owned(), message, verdict, at });
    }

    pub(super) fn commands<C: Command>(&self) -> Vec<SentMessage<C>> {
        self.sent_to(Name::new(C::QUEUE).ok().map(Target::Queue))
    }

    pub(super) fn events<E: Event>(&self) -> Vec<SentMessage<E>> {
        self.sent_to(Name::new(E::TOPIC).ok().map(Target::Topic))
    }

    fn sent_to<M: Message>(&self, target: Option<Target>) -> Vec<SentMessage<M>> {
        let sent = self.sent.lock();
        let wanted = sent
            .iter()
            .filter(|sent| sent.transport == M::TRANSPORT && Some(&sent.target) == target.as_ref());
        wanted
            .map(|sent| SentMessage {
                message: decoded(&sent.envelope),
                id: sent.envelope.id,
                headers: sent.envelope.headers.clone(),
                delay: sent.delay,
                time_to_live: sent.envelope.time_to_live,
                cancelled: sent.cancelled,
                at: sent.at,
            })
            .collect()
    }

    pub(super) fn completed<M: Message>(&self) -> Vec<CompletedMessage<M>> {
        self.settlements(|settled, message| match settled.verdict {
            Verdict::Complete => Some(CompletedMessage {
                message,
                id: settled.message.envelope.id,
                endpoint: Endpoint::clone(&settled.message.endpoint),
                delivery_count: settled.message.delivery_count,
                at: settled.at,
            }),
            _ => None,
        })
    }

    pub(super) fn retried<M: Message>(&self) -> Vec<RetriedMessage<M>> {
        self.settlements(|settled, message| match &settled.verdict {
            Verdict::Retry { after, error } => Some(RetriedMessage {
                message,
                id: settled.message.envelope.id,
                endpoint: Endpoint::clone(&settled.message.endpoint),
                failures: settled.message.failures.saturating_add(1),
                error: error.with_causes(),
                after: after.unwrap_or_default(),
                at: settled.at,
            }),
            _ => None,
        })
    }

    /// What `show` makes of the settlements of messages of type `M`.
    fn settlements<M: Message, T>(&self, show: impl Fn(&Settled, M) -> Option<T>) -> Vec<T> {
        let settled = self.settled.lock();
        let of_type = settled.iter().filter(|one| is_a::<M>(&one.transport, &one.message.envelope));
        of_type.filter_map(|one| show(one, M::decode(&one.message.envelope.body).ok()?)).collect()
    }
}

/// Those of the dead letters that are messages of type `M`. `at` tells the virtual time of each.
pub(super) fn dead<M: Message>(
    transport: &str,
    letters: Vec<DeadLetter>,
    at: impl Fn(&DeadLetter) -> Duration,
) -> Vec<DeadMessage<M>> {
    let of_type = letters.into_iter().filter(|letter| is_a::<M>(transport, &letter.envelope));
    of_type
        .map(|letter| DeadMessage {
            at: at(&letter),
            message: M::decode(&letter.envelope.body).ok(),
            body: letter.envelope.body,
            id: letter.envelope.id,
            headers: letter.envelope.headers,
            endpoint: letter.endpoint,
            reason: letter.reason,
            error: letter.error,
            delivery_count: letter.delivery_count,
        })
        .collect()
}

fn is_a<M: Message>(transport: &str, envelope: &Envelope) -> bool {
    transport == M::TRANSPORT && envelope.message_type == M::TYPE
}

fn decoded<M: Message>(envelope: &Envelope) -> M {
    M::decode(&envelope.body).unwrap_or_else(|error| {
        panic!(
            "a `{}` was sent to where `{}` goes, and cannot be read as one: {error:?}",
            envelope.message_type,
            M::TYPE
        )
    })
}
