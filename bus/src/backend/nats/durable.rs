//! The server's consumers: one for all plain hosts of an endpoint, or one for each term of a singleton. A work queue
//! has one at a time, and the server holds that.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::Client;
use super::counts::Record;
use super::error::{error, term_lost};
use super::jetstream::{Told, found, refused};
use super::pull::Source;
use super::streams::Home;
use crate::contract::Fence;
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;
use crate::settings::Order;

/// The shortest time that the server waits for a delivery's acknowledgement. A shorter lease is told it for each claim.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);
/// After this time what a host has taken to move, and has not moved, is another's: so much later may a delayed message come
/// where a host or a connection dies over it. Two who move the same do no harm.
const WAIT_FOR_MOVER: Duration = Duration::from_secs(5);
/// The consumer of all plain hosts.
const PLAIN: &str = "all";
/// What the names of terms' consumers begin with; the fence follows.
const TERM: &str = "run-";
/// How many hosts and processors may wait for one endpoint.
const MOST_WAITING: usize = 8192;

/// A consumer as it stands.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Info {
    name: String,
    created: String,
    config: InfoConfig,
    pub(super) num_ack_pending: u64,
    delivered: Delivered,
}

#[derive(Clone, Debug, Deserialize)]
struct Delivered {
    consumer_seq: u64,
    stream_seq: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct InfoConfig {
    description: Option<String>,
    #[serde(default)]
    max_ack_pending: i64,
    /// In nanoseconds.
    ack_wait: u64,
}

impl Info {
    /// Tells this consumer from others of the same name, as far as that matters: where its counts begin anew.
    pub(super) fn epoch(&self) -> String {
        let description = self.config.description.as_deref().unwrap_or_default();
        format!("{} {description}", self.name)
    }

    /// The number of the last message that was delivered for the first time.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.stream_seq
    }

    /// Whether it knows of its delivery of that number: it does not where the server crashed before it had written it down.
    pub(super) fn knows(&self, delivery: u64) -> bool {
        delivery <= self.delivered.consumer_seq
    }

    /// How many deliveries this consumer has made since then; `None` if then it was another one.
    pub(super) fn deliveries_since(&self, then: &Info) -> Option<u64> {
        let is_same = self.name == then.name && self.created == then.created;
        self.delivered.consumer_seq.checked_sub(then.delivered.consumer_seq).filter(|_| is_same)
    }

    /// How long a delivery's acknowledgement is waited for.
    pub(super) fn ack_wait(&self) -> Duration {
        Duration::from_nanos(self.config.ack_wait)
    }
}

/// A consumer that can be read from.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    pub(super) source: Source,
    /// Tells it from others of the same name.
    pub(super) epoch: String,
    /// Of messages up to this number another consumer may have delivered some.
    pub(super) since: u64,
    /// How long the server waits for a delivery's acknowledgement: the lease of whoever has made the consumer. Who wants
    /// another one says so for each claim, so that hosts with different leases share a consumer.
    pub(super) ack_wait: Duration,
}

impl Durable {
    fn of(source: Source, info: &Info) -> Self {
        let since = info.config.description.as_deref().and_then(|text| text.strip_prefix(MADE_AT));
        let since = since.and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
        let epoch = info.epoch();
        Durable { source, epoch, since, ack_wait: Duration::from_nanos(info.config.ack_wait) }
    }
}

/// A consumer's description; the number of the stream's last message follows.
const MADE_AT: &str = "bus: made at ";

fn source(client: &Client, endpoint: &Endpoint, consumer: impl Into<String>) -> Source {
    Source { stream: client.names.stream(endpoint), consumer: consumer.into() }
}

fn name_of(fence: Fence) -> String {
    format!("{TERM}{fence}")
}

fn fence_of(consumer: &str) -> Option<Fence> {
    consumer.strip_prefix(TERM)?.parse().ok().map(Fence::new)
}

/// What a consumer is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) order: Order,
    pub(super) lease: Duration,
}

impl Wanted {
    fn most_pending(self) -> i64 {
        if self.order == Order::Strict { 1 } else { -1 }
    }

    fn ack_wait(self) -> Duration {
        self.lease.max(SHORTEST_WAIT)
    }
}

/// A consumer, if it is there.
pub(super) async fn info(client: &Client, source: &Source, until: Instant) -> Result<Option<Info>> {
    let operation = format!("CONSUMER.INFO.{}.{}", source.stream, source.consumer);
    found(client.request(&operation, &Value::Null, until).await?)
}

/// The consumer that an endpoint is read by now, if there is one.
pub(super) async fn current(client: &Client, endpoint: &Endpoint, until: Instant) -> Result<Option<Info>> {
    let names = client.consumers(&client.names.stream(endpoint), until).await?;
    match names.into_iter().find(|name| name == PLAIN || fence_of(name).is_some()) {
        Some(name) => info(client, &source(client, endpoint, name), until).await,
        None => Ok(None),
    }
}

async fn put(client: &Client, source: &Source, config: Value, until: Instant) -> Result<Told<Info>> {
    let operation = format!("CONSUMER.DURABLE.CREATE.{}.{}", source.stream, source.consumer);
    client.request(&operation, &json!({ "stream_name": source.stream, "config": config }), until).await
}

fn config(source: &Source, description: &str, most_pending: i64, ack_wait: Duration) -> Value {
    json!({
        "durable_name": source.consumer,
        "description": description,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": u64::try_from(ack_wait.as_nanos()).unwrap_or(u64::MAX),
        "max_deliver": -1,
        "max_ack_pending": most_pending,
        "max_waiting": MOST_WAITING,
    })
}

/// Deletes a consumer; of a subscription's, after it has been noted how far it had come.
async fn delete(client: &Client, endpoint: &Endpoint, source: &Source, until: Instant) -> Result<()> {
    if matches!(endpoint, Endpoint::Subscription { .. })
        && let Some(standing) = info(client, source, until).await?
    {
        client.note_last_delivery(endpoint, standing.delivered(), until).await?;
    }
    let operation = format!("CONSUMER.DELETE.{}.{}", source.stream, source.consumer);
    match found(client.request::<Value>(&operation, &Value::Null, until).await?) {
        Ok(_) => Ok(()),
        // It is gone although something of it was left on the disk (nats-server 2.9).
        Err(_) if info(client, source, until).await?.is_none() => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// A consumer as it stands, made where it is missing; a refusal if another one stands in its place.
async fn ensure(
    client: &Client,
    endpoint: &Endpoint,
    source: &Source,
    wanted: Wanted,
    until: Instant,
) -> Result<Told<Durable>> {
    let most = wanted.most_pending();
    loop {
        let standing = info(client, source, until).await?;
        if let Some(info) = &standing
            && info.config.max_ack_pending == most
        {
            return Ok(Ok(Durable::of(source.clone(), info)));
        }
        let standing = standing.map(|info| info.config);
        let ack_wait =
            standing.as_ref().map_or(wanted.ack_wait(), |config| Duration::from_nanos(config.ack_wait));
        let description = match standing.and_then(|config| config.description) {
            Some(description) => description,
            None => match client.stream_info(&source.stream, None, until).await? {
                Some(info) => {
                    client.note_new_consumer(endpoint, &info, until).await?;
                    format!("{MADE_AT}{}", info.state.last_seq)
                }
                None => {
                    client.prepare(endpoint, until).await?;
                    tracing::warn!(%endpoint, "the endpoint was gone from the server, and has been made again");
                    continue;
                }
            },
        };
        match put(client, source, config(source, &description, most, ack_wait), until).await? {
            Ok(info) => return Ok(Ok(Durable::of(source.clone(), &info))),
            Err(refusal) if refusal.is_not_found() => {}
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// The consumer of plain hosts. Where a singleton's stands in its place, it is waited for as long as the endpoint is
/// bound to the singleton's lock.
pub(super) async fn plain(
    client: &Client,
    endpoint: &Endpoint,
    wanted: Wanted,
    until: Instant,
) -> Result<Durable> {
    let source = source(client, endpoint, PLAIN);
    loop {
        match ensure(client, endpoint, &source, wanted, until).await? {
            Ok(durable) => return Ok(durable),
            Err(refusal) if refusal.is_other_consumer_there() => {}
            Err(refusal) => return Err(refusal.into_error()),
        }
        if let Some(row) = client.row(endpoint, until).await? {
            if !row.bound_for(client.server_now(until).await?).is_zero() {
                return Err(error(ErrorKind::Unavailable, "a singleton reads the endpoint")
                    .with("endpoint", endpoint));
            }
            end_earlier_terms(client, endpoint, Fence::new(row.fence().get().saturating_add(1)), until)
                .await?;
        } else {
            end_earlier_terms(client, endpoint, Fence::new(u64::MAX), until).await?;
        }
    }
}

/// Deletes the consumers of terms before this one: nothing that their holders still acknowledge counts.
pub(super) async fn end_earlier_terms(
    client: &Client,
    endpoint: &Endpoint,
    fence: Fence,
    until: Instant,
) -> Result<()> {
    for name in client.consumers(&client.names.stream(endpoint), until).await? {
        if fence_of(&name).is_some_and(|earlier| earlier < fence) {
            delete(client, endpoint, &source(client, endpoint, name), until).await?;
        }
    }
    Ok(())
}

/// The consumer of a term; `None` while that of plain hosts still stands in its place, since some of them are at work:
/// unless told to go over their heads.
pub(super) async fn term(
    client: &Client,
    endpoint: &Endpoint,
    fence: Fence,
    (wanted, at_any_rate): (Wanted, bool),
    until: Instant,
) -> Result<Option<Durable>> {
    let source = source(client, endpoint, name_of(fence));
    loop {
        match ensure(client, endpoint, &source, wanted, until).await? {
            Ok(durable) => return Ok(Some(durable)),
            Err(refusal) if refusal.is_other_consumer_there() => {}
            Err(refusal) => return Err(refusal.into_error()),
        }
        let names = client.consumers(&source.stream, until).await?;
        if let Some(later) = names.iter().filter_map(|name| fence_of(name)).find(|other| *other > fence) {
            return Err(term_lost(fence, Some(later)));
        }
        end_earlier_terms(client, endpoint, fence, until).await?;
        if names.iter().any(|name| name == PLAIN) {
            let plain = Source { consumer: PLAIN.to_owned(), ..source.clone() };
            if !at_any_rate && is_at_work(client, endpoint, &plain, until).await? {
                return Ok(None);
            }
            delete(client, endpoint, &plain, until).await?;
        }
    }
}

/// Whether somebody holds a claim of a consumer: what waits for its retry is no claim, and goes on waiting without it.
async fn is_at_work(client: &Client, endpoint: &Endpoint, source: &Source, until: Instant) -> Result<bool> {
    let Some(info) = info(client, source, until).await? else { return Ok(false) };
    if info.num_ack_pending == 0 {
        return Ok(false);
    }
    let records = client.all_recorded(endpoint).await?;
    let is_ended = |record: &Record| !record.open && record.epoch == info.epoch();
    let ended = records.iter().filter(|(_, record)| is_ended(record)).count() as u64;
    Ok(info.num_ack_pending > ended)
}

/// A consumer of a stream of ours that is no endpoint, made where it is missing.
pub(super) async fn of_stream(client: &Client, home: &Home, name: &str, until: Instant) -> Result<Source> {
    let source = Source { stream: home.name(client), consumer: name.to_owned() };
    client.furnish(home, until).await?;
    refused(put(client, &source, config(&source, "bus", -1, WAIT_FOR_MOVER), until).await?)?;
    Ok(source)
}
