//! `dead list|show|put-back|drop`: messages that were given up on.

mod drop;
mod list;
mod put_back;
mod selection;
mod show;

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::options::Options;
use super::output::Output;
use super::stores::{Place, Stores};
use crate::contract::DeadLetter;
use crate::error::Result;
use crate::message::{MessageId, Name};

/// How many dead letters are asked for, put back or dropped at a time.
const PAGE: usize = 100;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Dead {
    /// Only in the store of this transport
    #[arg(long, global = true, value_name = "NAME", value_parser = Name::new)]
    transport: Option<Name>,
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Task {
    /// Which messages were given up on, why and when, oldest first
    List(list::List),
    /// One of them, with its headers and its body
    Show(show::Show),
    /// Puts dead letters back into the queue they came from, with their counts at zero
    PutBack(put_back::PutBack),
    /// Drops dead letters for good
    Drop(drop::Drop),
}

pub(super) async fn run(dead: &Dead, options: &Options, output: &mut Output<'_>) -> Result<()> {
    let stores = Stores::open(options, dead.transport.as_ref()).await?;
    let done = match &dead.task {
        Task::List(list) => list::run(list, &stores, output).await,
        Task::Show(show) => show::run(show, &stores, output).await,
        Task::PutBack(put_back) => put_back::run(put_back, &stores, output).await,
        Task::Drop(drop) => drop::run(drop, &stores, output).await,
    };
    stores.close().await;
    done
}

/// Shows up to `limit` dead letters of a place to `visit`, oldest first, until it breaks off.
///
/// Somebody may put letters back or drop them meanwhile, so that a store begins a page anew: what was on an earlier page is not
/// shown again.
async fn visit_letters(
    place: &Place,
    limit: usize,
    mut visit: impl FnMut(DeadLetter) -> Result<ControlFlow<()>> + Send,
) -> Result<()> {
    let (mut seen, mut after, mut left) = (HashSet::<MessageId>::new(), None, limit);
    loop {
        let wanted = left.min(PAGE);
        let mut page = read_page(place, after, wanted).await?;
        let is_last = page.len() < wanted;
        after = page.last().map(|letter| letter.envelope.id);
        page.retain(|letter| !seen.contains(&letter.envelope.id));
        left -= page.len();
        let brings_nothing = page.is_empty();
        for letter in page {
            seen.insert(letter.envelope.id);
            if visit(letter)?.is_break() {
                return Ok(());
            }
        }
        if is_last || brings_nothing || left == 0 {
            return Ok(());
        }
    }
}

async fn read_page(place: &Place, after: Option<MessageId>, limit: usize) -> Result<Vec<DeadLetter>> {
    let page = place.store.inspect.dead_letters(&place.endpoint, after, limit).await;
    let mut page = page.map_err(|error| place.store.locate(error))?;
    page.truncate(limit);
    Ok(page)
}
