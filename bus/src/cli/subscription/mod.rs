//! `subscription list|drop`: what is published to whom, whether anybody reads it, and the end of what nobody reads.

mod drop;
mod list;

use super::options::Options;
use super::output::Output;
use super::stores::Stores;
use crate::error::Result;
use crate::message::Name;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Subscription {
    /// Only in the store of this transport
    #[arg(long, global = true, value_name = "NAME", value_parser = Name::new)]
    transport: Option<Name>,
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Task {
    /// How much waits in each subscription, since when, and whether anybody reads it
    List,
    /// Drops a subscription for good, with everything in it
    Drop(drop::Drop),
}

pub(super) async fn run(
    subscription: &Subscription,
    options: &Options,
    output: &mut Output<'_>,
) -> Result<()> {
    let stores = Stores::open(options, subscription.transport.as_ref()).await?;
    let done = match &subscription.task {
        Task::List => list::run(&stores, output).await,
        Task::Drop(drop) => drop::run(drop, &stores, output).await,
    };
    stores.close().await;
    done
}
