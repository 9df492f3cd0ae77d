//! `dead show`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::visit_letters;
use crate::cli::output::Output;
use crate::cli::stores::{Place, Stores};
use crate::cli::text;
use crate::contract::DeadLetter;
use crate::error::{Error, ErrorKind, Result};
use crate::host::config::write_duration;
use crate::message::{Endpoint, MessageId};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Show {
    /// The queue or topic/subscription
    #[arg(value_parser = Endpoint::parse)]
    endpoint: Endpoint,
    /// The message
    id: MessageId,
}

#[derive(Serialize)]
struct Letter {
    transport: String,
    endpoint: String,
    id: MessageId,
    message_type: String,
    sent_at: String,
    time_to_live_ms: Option<u64>,
    dead_since: String,
    delivery_count: u32,
    reason: String,
    error: Option<String>,
    headers: BTreeMap<String, String>,
    #[serde(flatten)]
    body: Body,
}

/// The body as it is, under the name of what it can be shown as.
#[derive(Serialize)]
enum Body {
    #[serde(rename = "body_text")]
    Text(String),
    #[serde(rename = "body_hex", serialize_with = "as_hex")]
    Binary(Vec<u8>),
}

fn as_hex<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text::hex(bytes))
}

impl Body {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Body::Text(text) => text.as_bytes(),
            Body::Binary(bytes) => bytes,
        }
    }
}

impl Letter {
    fn new(place: &Place, letter: DeadLetter) -> Self {
        let envelope = letter.envelope;
        let headers = envelope.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Letter {
            transport: place.store.transport.to_string(),
            endpoint: place.endpoint.to_string(),
            id: envelope.id,
            sent_at: text::time(envelope.sent_at),
            time_to_live_ms: envelope
                .time_to_live
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            dead_since: text::time(letter.dead_since),
            delivery_count: letter.delivery_count,
            reason: letter.reason,
            error: letter.error,
            headers: headers.collect(),
            message_type: envelope.message_type.into_owned(),
            body: match String::from_utf8(envelope.body.into()) {
                Ok(text) => Body::Text(text),
                Err(error) => Body::Binary(error.into_bytes()),
            },
        }
    }
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut field = |name, value: &str| {
            let value = text::indented(&text::harmless(value), 14);
            writeln!(f, "{name:14}{}", value.trim_start())
        };
        field("id", &self.id.to_string())?;
        field("endpoint", &self.endpoint)?;
        field("transport", &self.transport)?;
        field("type", &self.message_type)?;
        field("sent at", &self.sent_at)?;
        if let Some(millis) = self.time_to_live_ms {
            field("time to live", &write_duration(Duration::from_millis(millis)))?;
        }
        field("dead since", &self.dead_since)?;
        field("deliveries", &self.delivery_count.to_string())?;
        field("reason", &self.reason)?;
        field("error", self.error.as_deref().unwrap_or("none"))?;
        writeln!(f, "headers{}", if self.headers.is_empty() { "       none" } else { "" })?;
        for (name, value) in &self.headers {
            // Further lines are moved in, so that no value looks like the next field or header.
            let value = text::indented(&text::harmless(value), 6);
            writeln!(f, "  {}: {}", text::harmless(name).replace('\n', "\\n"), value.trim_start())?;
        }
        let bytes = self.body.as_bytes();
        let (kind, body) = text::body(bytes);
        write!(f, "body          {kind}, {} bytes\n{}", bytes.len(), text::indented(&body, 2))
    }
}

pub(super) async fn run(show: &Show, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let place = stores.place(&show.endpoint).await?;
    let mut found = None;
    // A store finds dead letters by their order only.
    visit_letters(&place, usize::MAX, |letter| {
        if letter.envelope.id != show.id {
            return Ok(ControlFlow::Continue(()));
        }
        found = Some(letter);
        Ok(ControlFlow::Break(()))
    })
    .await?;
    match found {
        Some(letter) => output.answer(&Letter::new(&place, letter)),
        None => Err(place.store.locate(Error::new(
            ErrorKind::NotFound,
            format!("{} is no dead letter of {} (any more)", show.id, show.endpoint),
        ))),
    }
}
