//! `subscription list`.

use std::time::Duration;

use serde::Serialize;

use crate::cli::output::{Listing, Output, Record};
use crate::cli::stores::{Store, Stores};
use crate::cli::text;
use crate::contract::{Reading, UNATTENDED_AFTER};
use crate::error::Result;
use crate::message::Endpoint;

#[derive(Serialize)]
struct Line {
    transport: String,
    subscription: String,
    ready: u64,
    /// How long ago the first of them was sent.
    oldest_ms: Option<u64>,
    /// How long ago a host said that it reads it.
    attended_ms: Option<u64>,
    retention_ms: Option<u64>,
}

impl Line {
    fn new(store: &Store, reading: &Reading, ready: u64) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Line {
            transport: store.transport.to_string(),
            subscription: reading.endpoint.to_string(),
            ready,
            oldest_ms: reading.oldest.map(millis),
            attended_ms: reading.attended.map(millis),
            retention_ms: reading.retention.map(millis),
        }
    }
}

impl Record for Line {
    const COLUMNS: &'static [&'static str] =
        &["TRANSPORT", "SUBSCRIPTION", "READY", "OLDEST", "READ", "RETENTION"];

    fn cells(&self) -> Vec<String> {
        let long = |millis: u64| text::long(Duration::from_millis(millis));
        let or_none = |time: Option<u64>| time.map_or("-".to_owned(), long);
        let read = match self.attended_ms {
            None => "never".to_owned(),
            Some(ago) if Duration::from_millis(ago) < UNATTENDED_AFTER => "now".to_owned(),
            Some(ago) => format!("{} ago", long(ago)),
        };
        vec![
            self.transport.clone(),
            self.subscription.clone(),
            self.ready.to_string(),
            or_none(self.oldest_ms),
            read,
            or_none(self.retention_ms),
        ]
    }
}

pub(super) async fn run(stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let mut failures = stores.failures();
    let mut listing = Listing::new(output);
    for store in stores.iter() {
        match lines(store).await {
            Ok(lines) => {
                for line in &lines {
                    listing.add(line)?;
                }
            }
            Err(error) => failures.add(store.locate(error)),
        }
    }
    if failures.is_empty() || !listing.is_empty() {
        listing.end(format_args!("no subscriptions in {}", stores.addresses()))?;
    }
    failures.into_result()
}

async fn lines(store: &Store) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for reading in store.readers()?.readings().await? {
        if matches!(reading.endpoint, Endpoint::Subscription { .. }) {
            let ready = store.inspect.depth(&reading.endpoint).await?.ready;
            lines.push(Line::new(store, &reading, ready));
        }
    }
    Ok(lines)
}
