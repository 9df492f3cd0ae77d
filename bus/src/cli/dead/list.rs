//! `dead list`.

use std::ops::ControlFlow;

use serde::Serialize;

use super::visit_letters;
use crate::cli::output::{Listing, Output, Record};
use crate::cli::stores::{Place, Stores};
use crate::cli::text;
use crate::contract::DeadLetter;
use crate::error::Result;
use crate::message::{Endpoint, MessageId};

/// How many a person gets to see of each endpoint, unless they say how many.
const SCREENFUL: usize = 50;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct List {
    /// Only of this queue or topic/subscription
    #[arg(value_parser = Endpoint::parse)]
    endpoint: Option<Endpoint>,
    /// How many to list of each endpoint; 50 by default, all with --json
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

#[derive(Serialize)]
struct Line {
    transport: String,
    endpoint: String,
    id: MessageId,
    dead_since: String,
    delivery_count: u32,
    message_type: String,
    reason: String,
    error: Option<String>,
}

impl Record for Line {
    const COLUMNS: &'static [&'static str] =
        &["TRANSPORT", "ENDPOINT", "ID", "DEAD SINCE", "DELIVERIES", "REASON", "ERROR"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.transport.clone(),
            self.endpoint.clone(),
            self.id.to_string(),
            self.dead_since.clone(),
            self.delivery_count.to_string(),
            text::brief(&self.reason),
            self.error.as_deref().map(text::brief).unwrap_or_default(),
        ]
    }
}

impl Line {
    fn new(place: &Place, letter: DeadLetter) -> Self {
        Line {
            transport: place.store.transport.to_string(),
            endpoint: place.endpoint.to_string(),
            id: letter.envelope.id,
            dead_since: text::time(letter.dead_since),
            delivery_count: letter.delivery_count,
            message_type: letter.envelope.message_type.into_owned(),
            reason: letter.reason,
            error: letter.error,
        }
    }
}

pub(super) async fn run(list: &List, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let limit = match list.limit {
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        None if output.is_json() => usize::MAX,
        None => SCREENFUL,
    };
    let (places, mut failures) = stores.places(list.endpoint.as_ref()).await;
    let mut listing = Listing::new(output);
    let mut cut_short = Vec::new();
    for place in &places {
        match add_letters(&mut listing, place, limit).await {
            Ok(None) => {}
            Ok(Some(note)) => cut_short.push(note),
            Err(error) => failures.add(error),
        }
    }
    if failures.is_empty() || !listing.is_empty() {
        listing.end(format_args!("no dead letters in {}", stores.addresses()))?;
    }
    for note in cut_short {
        output.say(note)?;
    }
    failures.into_result()
}

/// Lists the letters of one place; where there are more, answers with how many.
async fn add_letters(
    listing: &mut Listing<'_, '_, Line>,
    place: &Place,
    limit: usize,
) -> Result<Option<String>> {
    let mut count: usize = 0;
    visit_letters(place, limit, |letter| {
        count += 1;
        listing.add(&Line::new(place, letter)).map(ControlFlow::Continue)
    })
    .await?;
    if count < limit {
        return Ok(None);
    }
    let depth =
        place.store.inspect.depth(&place.endpoint).await.map_err(|error| place.store.locate(error))?;
    let more = u64::try_from(count).is_ok_and(|count| count < depth.dead);
    Ok(more.then(|| format!("{}: {count} of {}; --limit N lists more", place.endpoint, depth.dead)))
}
