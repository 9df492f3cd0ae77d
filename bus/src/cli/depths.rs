//! `depths`: how much is where.

use serde::Serialize;

use super::options::Options;
use super::output::{Listing, Output, Record};
use super::stores::{Place, Stores};
use crate::contract::Depth;
use crate::error::Result;
use crate::message::Name;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Depths {
    /// Only in the store of this transport
    #[arg(long, value_name = "NAME", value_parser = Name::new)]
    transport: Option<Name>,
}

#[derive(Serialize)]
struct Line {
    transport: String,
    endpoint: String,
    #[serde(flatten)]
    depth: Depth,
}

impl Record for Line {
    const COLUMNS: &'static [&'static str] =
        &["TRANSPORT", "ENDPOINT", "READY", "IN FLIGHT", "DELAYED", "DEAD"];

    fn cells(&self) -> Vec<String> {
        let Depth { ready, in_flight, delayed, dead } = self.depth;
        let counts = [ready, in_flight, delayed, dead].map(|count| count.to_string());
        [self.transport.clone(), self.endpoint.clone()].into_iter().chain(counts).collect()
    }
}

pub(super) async fn run(depths: &Depths, options: &Options, output: &mut Output<'_>) -> Result<()> {
    let stores = Stores::open(options, depths.transport.as_ref()).await?;
    let done = list(&stores, output).await;
    stores.close().await;
    done
}

async fn list(stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let (places, mut failures) = stores.places(None).await;
    let mut listing = Listing::new(output);
    for place in &places {
        match read(place).await {
            Ok(line) => listing.add(&line)?,
            Err(error) => failures.add(error),
        }
    }
    if failures.is_empty() || !listing.is_empty() {
        listing.end(format_args!("no endpoints in {}", stores.addresses()))?;
    }
    failures.into_result()
}

async fn read(place: &Place) -> Result<Line> {
    let depth =
        place.store.inspect.depth(&place.endpoint).await.map_err(|error| place.store.locate(error))?;
    Ok(Line { transport: place.store.transport.to_string(), endpoint: place.endpoint.to_string(), depth })
}
