//! Views for people.

use std::sync::Arc;

use super::body;
use super::client::Client;
use super::counts::Record;
use super::dead;
use super::durable;
use super::error::error;
use super::jetstream::Stored;
use super::send::Mailing;
use super::streams::Home;
use super::sweep::PUT_BACK;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::{ErrorKind, Result};
use crate::message::{Endpoint, Headers, MessageId};

pub(super) struct NatsInspect(pub(super) Arc<Client>);

impl NatsInspect {
    async fn count(&self, home: &Home, subjects: &str) -> Result<u64> {
        let until = self.0.deadline();
        Ok(self.0.subjects(&home.name(&self.0), subjects, until).await?.len() as u64)
    }

    /// What waits for its retry, or was given back, is with the server's consumer as claims are: the records tell them
    /// apart.
    async fn depth_of(&self, endpoint: &Endpoint) -> Result<Depth> {
        let (client, until) = (&self.0, self.0.deadline());
        let names = &client.names;
        let dead = self.count(&Home::Dead, &names.dead_letters(endpoint)).await?;
        let later = self.count(&Home::Later, &names.all_delayed(endpoint)).await?;
        let Some(info) = client.stream_info(&names.stream(endpoint), None, until).await? else {
            return Ok(Depth::new(0, 0, later, dead));
        };
        let mut ended = client.all_recorded(endpoint).await?;
        ended.retain(|(_, record)| !record.open);
        let count =
            |is: &dyn Fn(&Record) -> bool| ended.iter().filter(|(_, record)| is(record)).count() as u64;
        let until = client.deadline();
        let now = client.server_now(until).await?.as_micros();
        let waiting = count(&|record| record.due.is_some_and(|due| due > now));
        let in_flight = match durable::current(client, endpoint, until).await? {
            None => 0,
            Some(info) => info.num_ack_pending.saturating_sub(count(&|record| record.epoch == info.epoch())),
        };
        let ready = info.state.messages.saturating_sub(in_flight + waiting);
        Ok(Depth::new(ready, in_flight, later + waiting, dead))
    }

    async fn letter(&self, endpoint: &Endpoint, id: MessageId) -> Result<Option<Stored>> {
        let subject = self.0.names.dead_letter(endpoint, id.as_uuid());
        self.0.last_of(&self.0.names.dead(), &subject, self.0.deadline()).await
    }

    /// A page of dead letters. A letter to begin after that is gone was taken out with its page: then the page begins
    /// anew.
    async fn page(
        &self,
        endpoint: &Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let mut from = match after {
            Some(id) => self.letter(endpoint, id).await?.map_or(1, |stored| stored.sequence + 1),
            None => 1,
        };
        let (stream, subjects) = (self.0.names.dead(), self.0.names.dead_letters(endpoint));
        let mut page = Vec::new();
        while page.len() < limit {
            let Some(stored) = self.0.next_of(&stream, &subjects, from, self.0.deadline()).await? else {
                break;
            };
            from = stored.sequence + 1;
            page.extend(dead::read(endpoint, &stored));
        }
        Ok(page)
    }

    /// Puts a letter into its queue under an id that the server does not store twice, and takes it out then: done by two
    /// at once, or again after a failure, it is put back once.
    async fn put_back_one(&self, endpoint: &Endpoint, id: MessageId) -> Result<PutBack> {
        let Some(stored) = self.letter(endpoint, id).await? else { return Ok(PutBack::NotFound) };
        let Some(letter) = dead::read(endpoint, &stored) else { return Ok(PutBack::NotFound) };
        let mut envelope = letter.envelope;
        // Else an expired one would be dead again before anyone saw it.
        envelope.time_to_live = None;
        envelope.headers.insert(Headers::PUT_BACK, "1");
        let until = self.0.deadline();
        let once = format!("{PUT_BACK}{}.{}", stored.sequence, stored.time.as_micros());
        let mailing = Mailing { id: &once, until };
        if !self.0.deliver_to(endpoint, &body::encode(&envelope), &mailing).await? {
            return Err(error(
                ErrorKind::NotFound,
                "the subscription of this dead letter is not there: a host that reads it makes it again",
            )
            .with("subscription", endpoint));
        }
        match self.0.remove(&self.0.names.dead(), stored.sequence, until).await? {
            true => Ok(PutBack::Done),
            false => Ok(PutBack::NotFound),
        }
    }

    async fn drop_one(&self, endpoint: &Endpoint, id: MessageId) -> Result<Dropped> {
        let Some(stored) = self.letter(endpoint, id).await? else { return Ok(Dropped::NotFound) };
        match self.0.remove(&self.0.names.dead(), stored.sequence, self.0.deadline()).await? {
            true => Ok(Dropped::Done),
            false => Ok(Dropped::NotFound),
        }
    }
}

impl Inspect for NatsInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(async move { self.0.endpoints(self.0.deadline()).await })
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>> {
        Box::pin(self.depth_of(endpoint))
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>> {
        Box::pin(self.page(endpoint, after, limit))
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(ids.len());
            for id in ids {
                answers.push((*id, self.put_back_one(endpoint, *id).await?));
            }
            Ok(answers)
        })
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(ids.len());
            for id in ids {
                answers.push((*id, self.drop_one(endpoint, *id).await?));
            }
            Ok(answers)
        })
    }
}

impl NatsInspect {
    /// Whether there is a store at all.
    pub(super) async fn expect_store(client: &Client) -> Result<()> {
        if client.is_there(&Home::State, client.deadline()).await? {
            return Ok(());
        }
        Err(error(ErrorKind::NotFound, "there is no store of this prefix on the server"))
    }
}
