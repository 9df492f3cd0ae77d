//! Views for people.

use std::sync::Arc;

use redis::Value;

use super::answer::{bytes, items, next, number, text};
use super::body;
use super::client::Client;
use super::error::{Lost, unexpected};
use super::registry;
use super::script::{DEAD_PAGE, DEPTH, Invocation, TAKE_OUT};
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::Result;
use crate::message::{Endpoint, MessageId};

/// How many dead letters one call of a script takes out: it keeps everyone else waiting.
const LETTERS_AT_ONCE: usize = 100;

pub(super) struct RedisInspect(pub(super) Arc<Client>);

impl RedisInspect {
    async fn depth_of(&self, endpoint: &Endpoint) -> Result<Depth> {
        let call = Invocation::new(&DEPTH, vec![self.0.keys.place(endpoint).base]);
        let mut counts = items(self.0.run(&call, Lost::Again).await?)?.map(number::<u64>);
        let mut count = || counts.next().unwrap_or_else(|| Err(unexpected("too few counts")));
        Ok(Depth::new(count()?, count()?, count()?, count()?))
    }

    /// A page of dead letters. Each is read by itself: together they may be more than the server should send at once.
    async fn page(
        &self,
        endpoint: &Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let base = self.0.keys.place(endpoint).base;
        let mut call = Invocation::new(&DEAD_PAGE, vec![base.clone()]);
        call.add_bytes(after.map(|id| id.as_uuid().as_bytes().to_vec()).unwrap_or_default());
        call.add(limit.min(i64::MAX as usize));
        let mut page = Vec::new();
        for death in items(self.0.run(&call, Lost::Again).await?)? {
            let letter = format!("{base}dead:{}", text(death)?);
            let fields = ["body", "deliveries", "reason", "error", "since"];
            let answer = self.0.ask(redis::cmd("HMGET").arg(letter).arg(&fields)).await?;
            page.extend(read_letter(endpoint, answer)?);
        }
        Ok(page)
    }

    /// Takes dead letters out, to be put back or dropped; answers for each whether it was one.
    async fn take_out<T>(
        &self,
        endpoint: &Endpoint,
        ids: &[MessageId],
        what_for: &str,
        answer: impl Fn(bool) -> T,
    ) -> Result<Vec<(MessageId, T)>> {
        let mut answers = Vec::with_capacity(ids.len());
        for part in ids.chunks(LETTERS_AT_ONCE) {
            let base = self.0.keys.place(endpoint).base;
            let mut call = Invocation::new(&TAKE_OUT, vec![base]).with(what_for);
            for id in part {
                call.add_bytes(id.as_uuid().as_bytes().to_vec());
            }
            let outcomes = items(self.0.run(&call, Lost::Unknown).await?)?;
            for (id, outcome) in part.iter().zip(outcomes) {
                answers.push((*id, answer(number::<u8>(outcome)? == 1)));
            }
        }
        Ok(answers)
    }
}

/// A dead letter; `None` if it has been put back since its number was read.
fn read_letter(endpoint: &Endpoint, answer: Value) -> Result<Option<DeadLetter>> {
    let mut fields = items(answer)?;
    let body = match next(&mut fields)? {
        Value::Nil => return Ok(None),
        body => bytes(body)?,
    };
    let deliveries = number(next(&mut fields)?)?;
    let reason = text(next(&mut fields)?)?;
    let error = match next(&mut fields)? {
        Value::Nil => None,
        error => Some(text(error)?),
    };
    let since = Timestamp::from_micros(number(next(&mut fields)?)?);
    Ok(Some(DeadLetter::new(body::decode(body), endpoint.clone(), reason, error, since, deliveries)))
}

impl Inspect for RedisInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(registry::endpoints(&self.0))
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
        let answer = |was_dead| if was_dead { PutBack::Done } else { PutBack::NotFound };
        Box::pin(self.take_out(endpoint, ids, "put back", answer))
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        let answer = |was_dead| if was_dead { Dropped::Done } else { Dropped::NotFound };
        Box::pin(self.take_out(endpoint, ids, "drop", answer))
    }
}
