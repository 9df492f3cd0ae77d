//! Sending messages, and taking delayed ones back.

use std::sync::Arc;

use redis::Value;
use uuid::Uuid;

use super::answer::{items, next, number, text, unfenced};
use super::body;
use super::client::Client;
use super::error::{Lost, term_lost, unexpected};
use super::fence::micros;
use super::script::{CANCEL, Invocation, SEND};
use crate::coalesce::{Carry, Coalescer, Limits, is_outage, not_tried};
use crate::contract::{BoxFuture, Delay, Due, FenceGuard, Outgoing, Placed, READ_AGAIN_WITHIN, Sender};
use crate::error::{Error, Result};
use crate::message::{Endpoint, Name, Target};

/// How many messages one call of a script takes at most, and how many bytes, unless one message alone has more: a script
/// keeps everyone else waiting.
const MOST_MESSAGES: usize = 500;
const MOST_BYTES: usize = 4 << 20;
/// How many bytes may wait for their turn, before their callers do.
const MOST_QUEUED_BYTES: u32 = 64 << 20;

/// A message as bytes, unless it is one that this store does not take.
pub(super) fn encode(message: &Outgoing, max_body: usize) -> Result<Vec<u8>> {
    message.check_size(max_body).map_err(|refusal| refusal.in_backend("redis"))?;
    body::encode(&message.envelope)
}

/// Adds to a call when a message is due, and the key and number of the fence that it is sent under.
pub(super) fn add_conditions(call: &mut Invocation, client: &Client, message: &Outgoing) {
    match message.due {
        None => {
            call.add("");
            call.add("");
        }
        Some(Due::In(after)) => {
            call.add("in");
            call.add(micros(after));
        }
        Some(Due::At(moment)) => {
            call.add("at");
            // No number of a script is exact beyond this, and the year is 2255.
            call.add(moment.as_micros().clamp(0, 9_007_199_254_740_991));
        }
    }
    match &message.guard {
        None => {
            call.add(0);
            call.add("");
        }
        Some(FenceGuard { endpoint, fence }) => {
            let key = call.key(client.keys.place(endpoint).base);
            call.add(key);
            call.add(fence);
        }
    }
}

/// Some messages of a batch for one target, as one call.
struct Part {
    target: Target,
    call: Invocation,
    /// Which messages of the batch they are.
    positions: Vec<usize>,
    bytes: usize,
}

impl Part {
    fn new(client: &Client, target: &Target) -> Self {
        let (kind, key) = client.keys.target(target);
        let believed = client.beginning.known().unwrap_or_default();
        let call =
            Invocation::new(&SEND, vec![key]).with(kind).with(believed).with(micros(READ_AGAIN_WITHIN));
        Part { target: target.clone(), call, positions: Vec::new(), bytes: 0 }
    }

    fn takes(&self, bytes: usize) -> bool {
        self.positions.len() < MOST_MESSAGES && self.bytes.saturating_add(bytes) <= MOST_BYTES
    }

    fn add(&mut self, client: &Client, position: usize, message: &Outgoing, bytes: Vec<u8>) {
        self.positions.push(position);
        self.bytes = self.bytes.saturating_add(bytes.len());
        add_conditions(&mut self.call, client, message);
        self.call.add_bytes(bytes);
    }

    /// Stores them; answers for each.
    async fn send(&self, client: &Client, batch: &[Outgoing]) -> Result<Vec<Result<Placed>>> {
        let mut answer = items(client.run(&self.call, Lost::Unknown).await?)?;
        let (word, since) = (text(next(&mut answer)?)?, text(next(&mut answer)?)?);
        if word == "emptied" {
            return Err(client.beginning.refusal(since).in_backend("redis"));
        }
        if !since.is_empty() {
            client.beginning.note(since);
        }
        let answers: Vec<Value> = items(next(&mut answer)?)?.collect();
        if answers.len() != self.positions.len() {
            return Err(unexpected("another number of answers than of messages"));
        }
        let messages = self.positions.iter().filter_map(|position| batch.get(*position));
        answers
            .into_iter()
            .zip(messages)
            .map(|(answer, message)| Ok(placed(message, &text(answer)?)))
            .collect()
    }
}

/// Where a message lies, or that its term is over.
fn placed(message: &Outgoing, answer: &str) -> Result<Placed> {
    match (answer.strip_prefix('!'), &message.guard) {
        (None, _) if answer.is_empty() => Ok(Placed::new("")),
        (None, _) => {
            let id = message.envelope.id.as_uuid().simple();
            Ok(Placed::new(format!("{}:{id}:{answer}", message.target)))
        }
        (Some(in_force), Some(guard)) => Err(term_lost(guard.fence, in_force)),
        (Some(_), None) => Err(unexpected("a fence where none was asked for")),
    }
}

/// Stores what callers of a sender have at the same time: a script costs more than what it does for one message.
struct Carrier(Arc<Client>);

impl Carrier {
    async fn send(&self, batch: &[Outgoing]) -> Vec<Result<Placed>> {
        let mut answers: Vec<Option<Result<Placed>>> = batch.iter().map(|_| None).collect();
        let mut lines: Vec<Vec<Part>> = Vec::new();
        for (position, message) in batch.iter().enumerate() {
            match encode(message, self.0.max_body) {
                Ok(bytes) => self.line_up(&mut lines, position, message, bytes),
                Err(refusal) => answers[position] = Some(Err(refusal)),
            }
        }
        let sending = lines.iter().map(|line| self.send_line(line, batch));
        for (position, answer) in futures_util::future::join_all(sending).await.into_iter().flatten() {
            answers[position] = Some(answer);
        }
        let unanswered = || Err(unexpected("no answer for a message"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    /// Puts a message into the last part of its target's line, or into a new one.
    fn line_up(&self, lines: &mut Vec<Vec<Part>>, position: usize, message: &Outgoing, bytes: Vec<u8>) {
        let is_its = |line: &Vec<Part>| line.first().is_some_and(|part| part.target == message.target);
        let line = lines.iter().position(is_its).unwrap_or_else(|| {
            lines.push(Vec::new());
            lines.len() - 1
        });
        let line = &mut lines[line];
        match line.last_mut() {
            Some(part) if part.takes(bytes.len()) => part.add(&self.0, position, message, bytes),
            _ => {
                let mut part = Part::new(&self.0, &message.target);
                part.add(&self.0, position, message, bytes);
                line.push(part);
            }
        }
    }

    /// Sends the parts of one target one after the other, so that its messages keep their order. After a part that the
    /// server has not taken the rest is not tried.
    async fn send_line(&self, line: &[Part], batch: &[Outgoing]) -> Vec<(usize, Result<Placed>)> {
        let (mut all, mut outage) = (Vec::new(), None);
        for part in line {
            let sent = match outage.take() {
                None => part.send(&self.0, batch).await,
                Some(cause) => Err(not_tried(Some(cause))),
            };
            let answers = match sent {
                Ok(answers) => answers,
                Err(failure) => {
                    outage = is_outage(&failure).then(|| failure.clone());
                    part.positions.iter().map(|_| Err(Error::clone(&failure))).collect()
                }
            };
            all.extend(part.positions.iter().copied().zip(answers));
        }
        all
    }
}

impl Carry<Outgoing, Placed> for Carrier {
    fn carry<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Result<Placed>>>> {
        Box::pin(async move { Ok(self.send(batch).await) })
    }
}

/// Sends to the store.
pub(super) struct RedisSender(Coalescer<Outgoing, Placed>);

impl RedisSender {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let limits = Limits {
            items: MOST_MESSAGES,
            bytes: MOST_BYTES,
            queued: 2 * MOST_MESSAGES,
            queued_bytes: MOST_QUEUED_BYTES,
            patience: client.timeout(),
        };
        RedisSender(Coalescer::start(limits, Arc::new(Carrier(client))))
    }

    /// Takes no more messages; returns when those under way are answered.
    pub(super) async fn close(&self) {
        self.0.close().await;
    }
}

impl Sender for RedisSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        let bytes = batch.iter().map(|message| message.envelope.bytes()).sum();
        Box::pin(self.0.submit(batch, bytes))
    }
}

/// Takes delayed messages back.
pub(super) struct RedisDelay(pub(super) Arc<Client>);

/// What stands in a [`Placed`]: `queue:id:number`, or `topic:id:subscription=number …`.
fn id_and_numbers(placed: &str) -> Option<(Uuid, Vec<(Endpoint, u64)>)> {
    let (target, rest) = placed.split_once(':')?;
    let (id, places) = rest.split_once(':')?;
    let (target, id) = (Name::new(target).ok()?, Uuid::try_parse(id).ok()?);
    let read = |place: &str| match place.split_once('=') {
        None => Some((Endpoint::Queue(target.clone()), place.parse().ok()?)),
        Some((subscription, number)) => {
            let subscription = Name::new(subscription).ok()?;
            Some((Endpoint::Subscription { topic: target.clone(), subscription }, number.parse().ok()?))
        }
    };
    Some((id, places.split(' ').map(read).collect::<Option<_>>()?))
}

impl Delay for RedisDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // Nothing of ours, or a message that was available at once.
            let Some((id, places)) = id_and_numbers(placed.as_str()) else { return Ok(false) };
            let bases = places.iter().map(|(endpoint, _)| self.0.keys.place(endpoint).base);
            let of_guard = guard.map(|guard| self.0.keys.place(&guard.endpoint).base);
            let fence = guard.map(|guard| guard.fence);
            let mut call = Invocation::new(&CANCEL, bases.chain(of_guard).collect())
                .with(fence.map(|fence| fence.to_string()).unwrap_or_default());
            call.add_bytes(id.as_bytes().to_vec());
            for (_, number) in places {
                call.add(number);
            }
            let mut answer = unfenced(self.0.run(&call, Lost::Unknown).await?, fence)?;
            Ok(number::<u8>(next(&mut answer)?)? == 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let id = "67e5504410b1426f9247bb680e5fe0c8";
        let read = |text: &str| {
            id_and_numbers(text).map(|(read, all)| {
                assert_eq!(read.simple().to_string(), id);
                all.into_iter().map(|(endpoint, number)| format!("{endpoint}#{number}")).collect::<Vec<_>>()
            })
        };
        assert_eq!(read(&format!("jobs:{id}:17")).unwrap(), ["jobs#17"]);
        assert_eq!(read(&format!("placed:{id}:a=17 b=18")).unwrap(), ["placed/a#17", "placed/b#18"]);
        let of_id = |places: &str| format!("jobs:{id}:{places}");
        let foreign = [of_id(""), of_id("x"), of_id("a:b"), of_id("-1"), of_id("A=1")];
        for foreign in ["", "1", "jobs:17", "jobs:x:17", "🦀"].map(String::from).into_iter().chain(foreign)
        {
            assert_eq!(read(&foreign), None, "{foreign}");
        }
    }
}
