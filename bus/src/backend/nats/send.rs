//! Sending messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body;
use super::client::{Ask, Client};
use super::delay;
use super::error::{Lost, closed, error, unexpected};
use super::jetstream::{MESSAGE_ID, Written};
use super::streams::Home;
use crate::coalesce::{Progress, all_or_unknown, is_outage, not_tried};
use crate::contract::{BoxFuture, FenceGuard, Outgoing, Placed, Sender};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Headers, Name, Target};

/// How many bytes may be under way, before callers wait.
const MOST_BYTES: u32 = 64 << 20;
/// What each message counts for at least: their number is bounded too.
const LEAST_BYTES: usize = 4 << 10;
/// How many messages are on their way together: each has to be answered in time.
const TOGETHER: usize = 1000;
/// How much of what the server takes in one piece is left to headers, to their lengths, to the type, and to what is said
/// of a dead letter.
const ROOM: usize = 96 << 10;

/// The largest body that fits into a message of the server's.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if none does.
pub(super) fn max_body(client: &Client) -> Result<usize> {
    let max_payload = client.max_payload();
    max_payload.checked_sub(ROOM).filter(|room| *room > Headers::MAX_BYTES).ok_or_else(|| {
        super::error::error(
            ErrorKind::Unsupported,
            "the server takes too small messages: set its max_payload to 256 KiB or more",
        )
        .with("max_payload", max_payload)
    })
}

/// A message as bytes, unless it is one that this store does not take.
fn encode(message: &Outgoing, max_body: usize) -> Result<Bytes> {
    message.check_size(max_body).map_err(|refusal| refusal.in_backend("nats"))?;
    Ok(body::encode(&message.envelope))
}

/// A message on its way.
struct Parcel {
    /// Which of the batch it is.
    position: usize,
    home: Home,
    ask: Ask,
}

/// What is asked once for all messages of a batch.
#[derive(Default)]
struct Known {
    /// Whether a fence is in force.
    terms: Vec<(FenceGuard, Result<()>)>,
    /// The subscriptions of a topic.
    topics: BTreeMap<Name, Vec<Endpoint>>,
}

/// How a message is stored.
pub(super) struct Mailing<'m> {
    /// Under this id, which the server does not store twice.
    pub(super) id: &'m str,
    pub(super) until: Instant,
}

impl Client {
    /// Stores a message, as it is stored, at an endpoint. `false` if that is a subscription which is not there (any more).
    pub(super) async fn deliver_to(
        &self,
        endpoint: &Endpoint,
        payload: &Bytes,
        mailing: &Mailing<'_>,
    ) -> Result<bool> {
        let ask = Ask::new(self.names.subject(endpoint), payload.clone()).with(MESSAGE_ID, mailing.id);
        let home = Home::Endpoint(endpoint.clone());
        loop {
            if self.write_once(ask.clone(), mailing.until, Lost::Unknown).await?.is_some() {
                return Ok(true);
            }
            if !self.may_be_had(&home, mailing.until).await? {
                return Ok(false);
            }
        }
    }
}

/// Sends to the store.
pub(super) struct NatsSender {
    post: Post,
    room: Arc<Semaphore>,
    progress: Progress,
    closed: CancellationToken,
}

impl NatsSender {
    pub(super) fn new(client: Arc<Client>, max_body: usize) -> Self {
        let closed = client.closed().child_token();
        let room = Arc::new(Semaphore::new(MOST_BYTES as usize));
        NatsSender { post: Post { client, max_body }, room, progress: Progress::default(), closed }
    }

    /// Takes no more messages; returns when those under way are answered.
    pub(super) async fn close(&self) {
        self.closed.cancel();
        // What is under way holds a part of it, and all of it is given back in the end.
        let _all = self.room.acquire_many(MOST_BYTES).await;
    }

    async fn room(&self, batch: &[Outgoing]) -> Result<OwnedSemaphorePermit> {
        let bytes: usize = batch.iter().map(|message| message.envelope.bytes().max(LEAST_BYTES)).sum();
        let bytes = u32::try_from(bytes).unwrap_or(MOST_BYTES).min(MOST_BYTES);
        let room = tokio::select! {
            biased;
            room = Arc::clone(&self.room).acquire_many_owned(bytes) => room.map_err(|_| closed())?,
            () = self.progress.stalled(Instant::now(), self.post.client.timeout) => return Err(not_tried(None)),
        };
        if self.closed.is_cancelled() { Err(closed()) } else { Ok(room) }
    }
}

/// Stores what is to be sent.
pub(super) struct Post {
    pub(super) client: Arc<Client>,
    pub(super) max_body: usize,
}

impl Post {
    /// Stores a batch; answers for each.
    pub(super) async fn send_all(&self, batch: &[Outgoing]) -> Vec<Result<Placed>> {
        let until = self.client.deadline();
        let mut answers: Vec<Option<Result<Placed>>> = batch.iter().map(|_| None).collect();
        let mut parcels = Vec::with_capacity(batch.len());
        let mut known = Known::default();
        for (position, message) in batch.iter().enumerate() {
            match self.parcels(position, message, &mut known, until).await {
                Ok(mine) if mine.is_empty() => answers[position] = Some(Ok(Placed::new(""))),
                Ok(mine) => parcels.extend(mine),
                Err(refusal) => answers[position] = Some(Err(refusal)),
            }
        }
        let mut copies: Vec<Vec<Result<Placed>>> = batch.iter().map(|_| Vec::new()).collect();
        for (position, answer) in self.post_in_parts(parcels).await {
            copies[position].push(answer.map(|stored| match (batch[position].due, stored) {
                (Some(_), Some((subject, number))) => delay::placed(&subject, number),
                _ => Placed::new(""),
            }));
        }
        let answer = |(known, copies): (Option<_>, Vec<_>)| match known {
            Some(answer) => answer,
            None if copies.is_empty() => Err(unexpected("no answer for a message")),
            None => all_or_unknown(copies).map(|copies| delay::all_placed(&copies)),
        };
        answers.into_iter().zip(copies).map(answer).collect()
    }

    /// Stores as many together as can be answered in time, part after part. After a part that the server has not taken the
    /// rest is not tried.
    async fn post_in_parts(&self, parcels: Vec<Parcel>) -> Vec<(usize, Result<Kept>)> {
        let mut posted = Vec::with_capacity(parcels.len());
        let mut parcels = parcels.into_iter();
        loop {
            let part: Vec<_> = parcels.by_ref().take(TOGETHER).collect();
            if part.is_empty() {
                return posted;
            }
            let answered = self.post(part, self.client.deadline()).await;
            let is_refused = |(_, answer): &(_, Result<Kept>)| answer.as_ref().is_err_and(is_outage);
            if answered.iter().all(is_refused) {
                posted.extend(parcels.by_ref().map(|parcel| (parcel.position, Err(not_tried(None)))));
            }
            posted.extend(answered);
        }
    }

    /// A message as what is to be stored. Its fence is looked at last of all before that.
    async fn parcels(
        &self,
        position: usize,
        message: &Outgoing,
        known: &mut Known,
        until: Instant,
    ) -> Result<Vec<Parcel>> {
        let client = &self.client;
        let payload = encode(message, self.max_body)?;
        let recipients = match &message.target {
            Target::Queue(name) => vec![Endpoint::Queue(name.clone())],
            Target::Topic(topic) => match known.topics.get(topic) {
                Some(known) => known.clone(),
                None => {
                    let found = client.recipients(topic, until).await?;
                    known.topics.insert(topic.clone(), found.clone());
                    found
                }
            },
        };
        self.check(message.guard.as_ref(), &mut known.terms).await?;
        let parcel = |endpoint: Endpoint| match message.due {
            Some(due) => {
                let ask = delay::ask(client, &endpoint, due, payload.clone());
                Parcel { position, home: Home::Later, ask }
            }
            None => {
                let ask = Ask::new(client.names.subject(&endpoint), payload.clone());
                Parcel { position, home: Home::Endpoint(endpoint), ask }
            }
        };
        Ok(recipients.into_iter().map(parcel).collect())
    }

    /// Looks whether a message's fence is in force, once for all messages of a batch.
    async fn check(
        &self,
        guard: Option<&FenceGuard>,
        known: &mut Vec<(FenceGuard, Result<()>)>,
    ) -> Result<()> {
        let Some(guard) = guard else { return Ok(()) };
        if let Some((_, answer)) = known.iter().find(|(other, _)| other == guard) {
            return answer.clone();
        }
        let answer = self.client.check(guard).await;
        known.push((guard.clone(), answer.clone()));
        answer
    }

    /// Stores what is to be stored, in its order, without waiting for one before the next is on its way. What there is
    /// no stream for yet is stored in a second round, unless the stream came into being midway, so that later ones are there
    /// already; what was for a subscription that has ended meanwhile, nowhere.
    async fn post(&self, mut parcels: Vec<Parcel>, until: Instant) -> Vec<(usize, Result<Kept>)> {
        let mut all = Vec::with_capacity(parcels.len());
        while !parcels.is_empty() {
            let written = match &parcels[..] {
                [one] => vec![self.client.write_once(one.ask.clone(), until, Lost::Unknown).await],
                all => {
                    let asks = all.iter().map(|parcel| parcel.ask.clone()).collect();
                    self.client.write_in_order(asks, until, Lost::Unknown).await
                }
            };
            let mut again: Vec<Parcel> = Vec::new();
            for (parcel, written) in parcels.into_iter().zip(written) {
                match written {
                    Ok(Some(Written::As(number))) => {
                        let passed = again.extract_if(.., |earlier| earlier.home == parcel.home);
                        all.extend(passed.map(|earlier| (earlier.position, Err(passed_by_later()))));
                        all.push((parcel.position, Ok(Some((parcel.ask.subject, number)))));
                    }
                    Ok(Some(Written::Conflict)) => {
                        all.push((
                            parcel.position,
                            Err(unexpected("a conflict where there is no condition")),
                        ));
                    }
                    Ok(None) => again.push(parcel),
                    Err(failure) => all.push((parcel.position, Err(failure))),
                }
            }
            match self.homes(&again, until).await {
                Ok(had) => {
                    let is_had = |parcel: &Parcel| had.contains(&parcel.home);
                    let (to_post, ended): (Vec<_>, Vec<_>) = again.into_iter().partition(is_had);
                    all.extend(ended.iter().map(|parcel| (parcel.position, Ok(None))));
                    parcels = to_post;
                }
                Err(failure) => {
                    all.extend(again.iter().map(|parcel| (parcel.position, Err(Error::clone(&failure)))));
                    break;
                }
            }
        }
        all
    }

    /// The homes of these that may be had.
    async fn homes(&self, parcels: &[Parcel], until: Instant) -> Result<Vec<Home>> {
        let (mut asked, mut had) = (Vec::new(), Vec::new());
        for parcel in parcels {
            if !asked.contains(&&parcel.home) {
                asked.push(&parcel.home);
                if self.client.may_be_had(&parcel.home, until).await? {
                    had.push(parcel.home.clone());
                }
            }
        }
        Ok(had)
    }
}

/// A message is stored behind none that was sent after it.
fn passed_by_later() -> Error {
    let why = "the stream came into being when later messages were on their way, and this one is not stored behind them";
    error(ErrorKind::Unavailable, why)
}

/// Where a message was stored; `None` for one of a subscription that has ended meanwhile.
type Kept = Option<(String, u64)>;

impl Sender for NatsSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            match self.room(&batch).await {
                Ok(_room) => {
                    let answers = self.post.send_all(&batch).await;
                    if !answers.iter().all(|answer| answer.as_ref().is_err_and(is_outage)) {
                        self.progress.made();
                    }
                    answers
                }
                Err(refusal) => batch.iter().map(|_| Err(refusal.clone())).collect(),
            }
        })
    }
}
