//! Messages whose time has not come. They lie in a stream of their own, whose consumer, shared by all hosts, keeps the
//! time: a message that is not due yet is put off, on the server, until it is.
//!
//! What is due is first marked, under the condition that nobody has taken it back, and then stored where it belongs
//! under an id that the server does not store twice. So a message is either taken back or delivered, and the end of a
//! host at any moment leaves what another one goes on with.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::claims::{DONE, Told, not_for};
use super::client::{Ask, Client};
use super::durable;
use super::error::Lost;
use super::jetstream::{EXPECTED, Written};
use super::pull::{Got, Pulled, Source};
use super::send::Mailing;
use super::streams::Home;
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, Delay, Due, FenceGuard, Placed};
use crate::error::{Error, Result};
use crate::message::Endpoint;
use crate::reconnect::Backoff;

/// When it is due by the server's clock, in microseconds; or how long after it was stored.
const DUE_AT: &str = "Bus-Due-At";
const DUE_IN: &str = "Bus-Due-In";
/// What has become of it.
const STATE: &str = "Bus-State";
const MOVING: &str = "moving";
const CANCELLED: &str = "cancelled";

/// The consumer that keeps the time.
const MOVER: &str = "mover";
/// How many are looked at together.
const TOGETHER: usize = 200;
/// How long a host waits for the next one that becomes due.
const WAIT: Duration = Duration::from_secs(20);
/// The pauses after failures.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// A delayed message as what is to be stored.
pub(super) fn ask(client: &Client, endpoint: &Endpoint, due: Due, payload: Bytes) -> Ask {
    let ask = Ask::new(client.names.delayed(endpoint, &uuid::Uuid::new_v4()), payload);
    match due {
        Due::At(moment) => ask.with(DUE_AT, moment.as_micros()),
        Due::In(after) => ask.with(DUE_IN, u64::try_from(after.as_micros()).unwrap_or(u64::MAX)),
    }
}

/// Where a delayed message lies.
pub(super) fn placed(subject: &str, number: u64) -> Placed {
    Placed::new(format!("{number}@{subject}"))
}

/// Where the copies of a delayed event lie.
pub(super) fn all_placed(copies: &[Placed]) -> Placed {
    let places: Vec<_> = copies.iter().map(Placed::as_str).filter(|place| !place.is_empty()).collect();
    Placed::new(places.join(" "))
}

/// The copies' subjects and numbers; none if that is no place of ours.
fn read_placed<'p>(client: &Client, placed: &'p Placed) -> Vec<(&'p str, u64)> {
    let read = |copy: &'p str| {
        let (number, subject) = copy.split_once('@')?;
        client.names.read_delayed(subject)?;
        Some((subject, number.parse().ok()?))
    };
    placed.as_str().split(' ').map(read).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Takes delayed messages back.
pub(super) struct NatsDelay(pub(super) Arc<Client>);

impl Delay for NatsDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // Nothing of ours, or a message that was available at once.
            let copies = read_placed(&self.0, placed);
            if copies.is_empty() {
                return Ok(false);
            }
            if let Some(guard) = guard {
                self.0.check(guard).await?;
            }
            let cancelling = copies.into_iter().map(|(subject, number)| self.take_back(subject, number));
            let taken: Result<Vec<bool>> =
                futures_util::future::join_all(cancelling).await.into_iter().collect();
            Ok(taken?.contains(&true))
        })
    }
}

impl NatsDelay {
    /// Takes one copy back, unless somebody has touched it.
    async fn take_back(&self, subject: &str, number: u64) -> Result<bool> {
        let ask = Ask::new(subject, "").with(STATE, CANCELLED).with(EXPECTED, number);
        let written = self.0.write_once(ask, self.0.deadline(), Lost::Unknown).await?;
        Ok(matches!(written, Some(Written::As(_))))
    }
}

/// Moves what is due, until it is told to stop.
pub(super) async fn run(client: &Arc<Client>, stop: &CancellationToken) {
    let mut pauses = PAUSES;
    let mut source = None;
    while !stop.is_cancelled() {
        match turn(client, &mut source, stop).await {
            Ok(()) => pauses.reset(),
            Err(error) => {
                tracing::debug!(%error, "delayed messages cannot be looked at yet");
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(pauses.next()) => {}
                }
            }
        }
    }
}

/// Looks at what there is, or waits for it.
async fn turn(client: &Arc<Client>, known: &mut Option<Source>, stop: &CancellationToken) -> Result<()> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        up = client.up() => up?,
    }
    let source = match known {
        Some(source) => source.clone(),
        None => {
            let made = durable::of_stream(client, &Home::Later, MOVER, client.deadline()).await?;
            known.insert(made).clone()
        }
    };
    let mut got = client.pull_next(&source, WAIT, stop).await?;
    loop {
        let pulled = match got {
            Got::Messages(pulled) if pulled.is_empty() => return Ok(()),
            Got::Messages(pulled) => pulled,
            Got::Gone => {
                *known = None;
                return Ok(());
            }
        };
        let looking = pulled.iter().map(|Pulled { message, .. }| look_at(client, message));
        for looked in futures_util::future::join_all(looking).await {
            // It is delivered again after a while.
            looked?;
        }
        got = client.pull_now(&source, TOGETHER).await?;
    }
}

async fn look_at(client: &Client, message: &Message) -> Result<()> {
    let reply = message.reply.as_deref().unwrap_or_default();
    let (Some(told), Some((endpoint, id))) = (Told::read(reply), client.names.read_delayed(&message.subject))
    else {
        // Somebody else's: it would come again and again.
        return answer(client, reply, DONE).await;
    };
    match header(message, STATE) {
        Some(CANCELLED) => answer(client, reply, DONE).await,
        Some(_) => {
            let mailing = Mailing { id, until: client.deadline() };
            // A subscription that has ended meanwhile gets nothing any more.
            client.deliver_to(&endpoint, &message.payload, &mailing).await?;
            answer(client, reply, DONE).await
        }
        None => {
            let wait = due(message, told).since(client.server_now(client.deadline()).await?);
            if !wait.is_zero() {
                return answer(client, reply, &not_for(wait)).await;
            }
            mark(client, message, told).await?;
            answer(client, reply, DONE).await
        }
    }
}

/// From now on it cannot be taken back: the mark stands in its place, and comes in its turn. Where somebody else was
/// faster, with whatever it was, there is nothing left to do.
async fn mark(client: &Client, message: &Message, told: Told) -> Result<()> {
    let ask = Ask::new(message.subject.as_str(), message.payload.clone())
        .with(STATE, MOVING)
        .with(EXPECTED, told.sequence);
    client.write(&Home::Later, ask, client.deadline(), Lost::Again).await.map(drop)
}

fn due(message: &Message, told: Told) -> Timestamp {
    let stored = Timestamp::from_micros(told.stored / 1000);
    let number = |name| header(message, name).and_then(|text| text.parse::<i64>().ok());
    match (number(DUE_AT), number(DUE_IN)) {
        (Some(at), _) => Timestamp::from_micros(at),
        // A part of a microsecond more, so that it never comes too early.
        (None, Some(after)) => {
            Timestamp::from_micros(stored.as_micros().saturating_add(after).saturating_add(1))
        }
        (None, None) => stored,
    }
}

fn header<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    Some(message.headers.as_ref()?.get(name)?.as_str())
}

async fn answer(client: &Client, reply: &str, with: &[u8]) -> Result<(), Error> {
    let ask = Ask::new(reply, Bytes::copy_from_slice(with));
    client.ask(ask, client.deadline(), Lost::Again).await.map(drop)
}
