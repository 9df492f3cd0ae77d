//! The streams in NATS, asked for by async-nats.

use std::fmt;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::Store;
use crate::stores::parameters;

/// What the names of the streams begin with, unless the URL says otherwise.
const PREFIX: &str = "bus";
/// Where a message's id stands in its bytes.
const ID: std::ops::Range<usize> = 1..17;
/// What JetStream answers where there is no such stream or message.
const NOT_FOUND: u64 = 404;

/// A reader of the streams.
pub(super) struct Nats {
    runtime: Runtime,
    address: String,
    prefix: String,
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What lies in a stream under one number.
struct Stored {
    subject: String,
    data: Vec<u8>,
}

impl Nats {
    /// The streams whose prefix the URL names. Its other parameters are the bus's own.
    pub(super) fn at(url: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let address = url.split('?').next().unwrap_or(url).to_owned();
        let prefix = parameters(url).find_map(|(name, value)| (name == "prefix").then_some(value));
        Ok(Self { runtime, address, prefix: prefix.unwrap_or(PREFIX).to_owned() })
    }

    /// All that lies in the streams of these names.
    fn read(&self, streams: &[&str]) -> Result<Vec<Stored>> {
        self.runtime.block_on(async {
            let client = async_nats::connect(&self.address).await.context("cannot connect to NATS")?;
            let mut all = Vec::new();
            for name in streams {
                all.extend(read_stream(&client, &format!("{}_{name}", self.prefix)).await?);
            }
            Ok(all)
        })
    }
}

async fn read_stream(client: &async_nats::Client, stream: &str) -> Result<Vec<Stored>> {
    let Some(info) = ask(client, &format!("STREAM.INFO.{stream}"), &Value::Null).await? else {
        return Ok(Vec::new());
    };
    let state = &info["state"];
    let number = |name: &str| state[name].as_u64().with_context(|| format!("{stream} has no {name}"));
    if number("messages")? == 0 {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for sequence in number("first_seq")?..=number("last_seq")? {
        let wanted = json!({ "seq": sequence });
        let Some(found) = ask(client, &format!("STREAM.MSG.GET.{stream}"), &wanted).await? else { continue };
        let message = &found["message"];
        let subject = message["subject"].as_str().unwrap_or_default().to_owned();
        let data = BASE64_STANDARD.decode(message["data"].as_str().unwrap_or_default())?;
        all.push(Stored { subject, data });
    }
    Ok(all)
}

/// What JetStream answers; `None` where there is no such thing.
async fn ask(client: &async_nats::Client, operation: &str, what: &Value) -> Result<Option<Value>> {
    let payload = if what.is_null() { String::new() } else { what.to_string() };
    let answer = client.request(format!("$JS.API.{operation}"), payload.into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    match answer["error"]["code"].as_u64() {
        None => Ok(Some(answer)),
        Some(NOT_FOUND) => Ok(None),
        Some(_) => bail!("JetStream refuses {operation}: {}", answer["error"]),
    }
}

impl Store for Nats {
    /// Messages that wait or are being worked on, and those whose time has not come.
    fn left(&self) -> Result<Vec<String>> {
        let stored = self.read(&["q_failover", "later"])?;
        let id = |stored: &Stored| {
            let id = stored.data.get(ID).context("a message is too short to have an id")?;
            Ok(Uuid::from_slice(id)?.to_string())
        };
        stored.iter().map(id).collect()
    }

    /// Each under its id.
    fn dead(&self) -> Result<Vec<String>> {
        let stored = self.read(&["dead"])?;
        Ok(stored
            .iter()
            .map(|stored| stored.subject.rsplit('.').next().unwrap_or_default().to_owned())
            .collect())
    }
}
