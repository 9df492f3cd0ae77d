//! Pulling messages: what is there now, and the next one that comes.
//!
//! The server's own bound on the bytes of a pull is not used: where messages are delivered again, nats-server 2.9 loses
//! those that it bounds out until their next lease ends.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use futures_util::StreamExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::claims::Told;
use super::client::{Answers, Ask, Client};
use super::error::{Lost, closed, of_broken_connection, unexpected};
use crate::clock::BootInstant;
use crate::error::Result;

/// How long the server may be silent, when it should say something, before it is asked whether the consumer is still
/// there: it does not say so itself.
const SILENCE: Duration = Duration::from_secs(2);
/// How late the server may be to say that a pull is over. One that was given up too early costs a request.
const LATE: Duration = Duration::from_secs(1);
/// How long the last pull waits.
const LAST_PULL: Duration = Duration::from_millis(20);
/// How long the answer to a pull is awaited when it is to stop.
const AFTER_STOP: Duration = Duration::from_secs(1);

/// A message as it was pulled.
#[derive(Clone, Debug)]
pub(super) struct Pulled {
    pub(super) message: Message,
    /// Before it was asked for: its claim began no earlier.
    pub(super) asked_at: BootInstant,
}

impl Pulled {
    /// Where it is acknowledged.
    pub(super) fn reply(&self) -> &str {
        self.message.reply.as_deref().unwrap_or_default()
    }

    /// What the server tells of the delivery.
    pub(super) fn told(&self) -> Result<Told> {
        Told::read(self.reply()).ok_or_else(|| unexpected("a delivery without numbers"))
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Got {
    /// These; none, if there are none.
    Messages(Vec<Pulled>),
    /// The consumer is gone, or may be.
    Gone,
}

/// What a pull is told instead of messages.
enum End {
    NoMore,
    Gone,
}

fn end_of(message: &Message) -> Option<End> {
    let status = message.status?;
    let says = |word: &str| message.description.as_deref().is_some_and(|text| text.contains(word));
    Some(match status {
        StatusCode::NOT_FOUND | StatusCode::TIMEOUT => End::NoMore,
        // The limits of the consumer, none of which we set below what we ask for.
        _ if status.as_u16() == 409 && says("Exceeded") => End::NoMore,
        _ => End::Gone,
    })
}

/// A consumer of a stream, as it is addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) stream: String,
    pub(super) consumer: String,
}

impl Source {
    fn next(&self, client: &Client, what: &serde_json::Value) -> Ask {
        let subject = client.api(&format!("CONSUMER.MSG.NEXT.{}.{}", self.stream, self.consumer));
        Ask::new(subject, what.to_string().into_bytes())
    }
}

impl Client {
    /// Up to `max` messages that are there now.
    pub(super) async fn pull_now(&self, source: &Source, max: usize) -> Result<Got> {
        let what = json!({ "batch": max, "no_wait": true });
        let (since, asked_at) = (self.breaks(), self.clock.now());
        let Answers { mut answers, .. } = self.ask_for_many(source.next(self, &what), None).await?;
        let mut pulled = Vec::new();
        while pulled.len() < max {
            let answer = tokio::select! {
                biased;
                answer = answers.next() => answer,
                () = self.closed().cancelled() => return Err(closed()),
                () = self.broken(since) => None,
                () = tokio::time::sleep(SILENCE) => {
                    return Ok(if pulled.is_empty() { Got::Gone } else { Got::Messages(pulled) });
                }
            };
            let Some(message) = answer else {
                // What has come is ours as long as its lease lasts.
                return if pulled.is_empty() {
                    Err(of_broken_connection(Lost::Again))
                } else {
                    Ok(Got::Messages(pulled))
                };
            };
            match end_of(&message) {
                None => pulled.push(Pulled { message, asked_at }),
                Some(End::Gone) if pulled.is_empty() => return Ok(Got::Gone),
                Some(_) => break,
            }
        }
        Ok(Got::Messages(pulled))
    }

    /// The next message within a time, or until `stop` fires. That the time is over is told by the server, as a sign that
    /// the pull is alive: without it, a little later, it is given up.
    pub(super) async fn pull_next(
        self: &Arc<Self>,
        source: &Source,
        within: Duration,
        stop: &CancellationToken,
    ) -> Result<Got> {
        let since = self.breaks();
        let first = self.pull_one(source, within).await?;
        let mut waiting = Waiting { client: self, source, pull: Some(first), since };
        let Some(pull) = &mut waiting.pull else { return Ok(Got::Gone) };
        let answer = tokio::select! {
            biased;
            answer = pull.answers.next() => answer,
            () = self.closed().cancelled() => return Err(closed()),
            () = self.broken(since) => None,
            () = tokio::time::sleep(within + LATE) => {
                return match waiting.pull.take() {
                    Some(first) => self.give_up(first, since).await,
                    None => Ok(Got::Gone),
                };
            }
            () = stop.cancelled() => {
                return match waiting.pull.take() {
                    Some(first) => self.stop_pulling(source, first, since).await,
                    None => Ok(Got::Gone),
                };
            }
        };
        let got = answer.map(|message| pull.read(&message));
        waiting.pull = None;
        got.ok_or_else(|| of_broken_connection(Lost::Again))
    }

    /// Ends a pull that waits, without losing what is on its way. The server forgets a message that it is about to deliver
    /// again if nobody is left to take it (nats-server 2.9), so that another pull, which ends by itself, waits beside the
    /// one that is given up.
    async fn stop_pulling(&self, source: &Source, mut first: Pull, since: u64) -> Result<Got> {
        let mut second = self.pull_one(source, LAST_PULL).await?;
        self.tell_own_word(&first).await?;
        let mut all = self.last_answer(&mut first, since).await;
        all.extend(self.last_answer(&mut second, since).await);
        Ok(Got::Messages(all))
    }

    /// Ends a pull that the server should have ended: what has come of it after all, or that its consumer may be gone.
    async fn give_up(&self, mut pull: Pull, since: u64) -> Result<Got> {
        self.tell_own_word(&pull).await?;
        let pulled = self.last_answer(&mut pull, since).await;
        Ok(if pulled.is_empty() { Got::Gone } else { Got::Messages(pulled) })
    }

    /// Our own word takes the place of the answer, unless a message is on its way already: then that comes.
    async fn tell_own_word(&self, pull: &Pull) -> Result<()> {
        self.tell(pull.inbox.clone(), bytes::Bytes::new()).await
    }

    async fn last_answer(&self, pull: &mut Pull, since: u64) -> Vec<Pulled> {
        let answer = tokio::select! {
            answer = pull.answers.next() => answer,
            () = self.broken(since) => None,
            () = tokio::time::sleep(AFTER_STOP) => None,
        };
        match answer.map(|message| pull.read(&message)) {
            Some(Got::Messages(pulled)) => pulled,
            _ => Vec::new(),
        }
    }

    /// Asks for one message. One answer and no more: when that has been sent, nobody listens any more, by the server's own
    /// reckoning.
    async fn pull_one(&self, source: &Source, within: Duration) -> Result<Pull> {
        let nanos = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        let what = json!({ "batch": 1, "expires": nanos });
        let asked_at = self.clock.now();
        let Answers { answers, inbox } = self.ask_for_many(source.next(self, &what), Some(1)).await?;
        Ok(Pull { answers, inbox, asked_at })
    }
}

/// A pull that somebody waits for. Dropped before its end it is ended all the same; what comes then comes back when its
/// lease ends.
struct Waiting<'w> {
    client: &'w Arc<Client>,
    source: &'w Source,
    pull: Option<Pull>,
    since: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(pull) = self.pull.take() else { return };
        if self.client.closed().is_cancelled() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (client, source, since) = (Arc::clone(self.client), self.source.clone(), self.since);
        self.client.tasks.spawn(async move { drop(client.stop_pulling(&source, pull, since).await) });
    }
}

/// A pull that waits for one message.
struct Pull {
    answers: Subscriber,
    inbox: String,
    asked_at: BootInstant,
}

impl Pull {
    fn read(&self, message: &Message) -> Got {
        match end_of(message) {
            Some(End::NoMore) => Got::Messages(Vec::new()),
            Some(End::Gone) => Got::Gone,
            // Our own word.
            None if message.subject.as_str() == self.inbox => Got::Messages(Vec::new()),
            None => Got::Messages(vec![Pulled { message: message.clone(), asked_at: self.asked_at }]),
        }
    }
}
