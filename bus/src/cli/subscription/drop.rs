//! `subscription drop`.

use std::fmt;

use serde::Serialize;

use crate::cli::output::Output;
use crate::cli::stores::Stores;
use crate::cli::text;
use crate::contract::{DroppedSubscription, UNATTENDED_AFTER};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Drop {
    /// The topic/subscription
    #[arg(value_name = "TOPIC/NAME", value_parser = subscription)]
    subscription: Endpoint,
    /// Drops it; without it, the answer is how much would be lost
    #[arg(long)]
    yes: bool,
}

/// A subscription's address, and no queue's.
fn subscription(text: &str) -> Result<Endpoint> {
    match Endpoint::parse(text)? {
        subscription @ Endpoint::Subscription { .. } => Ok(subscription),
        Endpoint::Queue(name) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{name} is a queue: a subscription is written topic/name, and queues are not dropped"),
        )),
    }
}

/// What was done.
#[derive(Serialize)]
struct Outcome {
    transport: String,
    subscription: String,
    outcome: &'static str,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.subscription, self.outcome)
    }
}

pub(super) async fn run(drop: &Drop, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let place = stores.place(&drop.subscription).await?;
    let store = &place.store;
    let located = |error| store.locate(error);
    let readers = store.readers().map_err(located)?;
    if !drop.yes {
        let depth = store.inspect.depth(&place.endpoint).await.map_err(located)?;
        let waiting = depth.ready + depth.in_flight + depth.delayed;
        return Err(located(
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "nothing is dropped yet: to lose the subscription for good, with {waiting} messages and {} dead letters, say it again with --yes",
                    depth.dead
                ),
            )
            .with("subscription", &place.endpoint),
        ));
    }
    match readers.drop_subscription(&place.endpoint, UNATTENDED_AFTER).await.map_err(located)? {
        DroppedSubscription::Done => output.answer(&Outcome {
            transport: store.transport.to_string(),
            subscription: place.endpoint.to_string(),
            outcome: "dropped",
        }),
        DroppedSubscription::NotFound => Err(located(
            Error::new(ErrorKind::NotFound, "there is no such subscription any more")
                .with("subscription", &place.endpoint),
        )),
        DroppedSubscription::Attended(ago) => Err(located(
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "it is read, and stays: a host said so {} ago. Stop the hosts that have a processor of it, and ask again {} later",
                    text::long(ago),
                    text::long(UNATTENDED_AFTER)
                ),
            )
            .with("subscription", &place.endpoint),
        )),
    }
}
