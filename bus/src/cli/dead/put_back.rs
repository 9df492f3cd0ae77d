//! `dead put-back`.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use super::{PAGE, visit_letters};
use crate::cli::output::Output;
use crate::cli::stores::{Place, Stores};
use crate::contract;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, MessageId};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct PutBack {
    /// The queue or topic/subscription
    #[arg(value_parser = Endpoint::parse)]
    endpoint: Endpoint,
    /// The messages
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<MessageId>,
    /// All that are dead now
    #[arg(long)]
    all: bool,
}

/// What was done about one message.
#[derive(Serialize)]
struct Outcome {
    transport: String,
    endpoint: String,
    id: MessageId,
    outcome: Word,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    PutBack,
    NotFound,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Word::PutBack => write!(f, "{}  put back", self.id),
            Word::NotFound => {
                write!(f, "{}  not found: no dead letter of {} (any more)", self.id, self.endpoint)
            }
        }
    }
}

/// How many messages met which outcome.
#[derive(Default)]
struct Tally {
    put_back: usize,
    not_found: usize,
}

impl Tally {
    fn count(&mut self, outcome: Word) {
        match outcome {
            Word::PutBack => self.put_back += 1,
            Word::NotFound => self.not_found += 1,
        }
    }
}

pub(super) async fn run(put_back: &PutBack, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let place = stores.place(&put_back.endpoint).await?;
    let ids = if put_back.all { dead_now(&place).await? } else { without_repetitions(&put_back.ids) };
    let mut tally = Tally::default();
    for page in ids.chunks(PAGE) {
        put_back_page(&place, page, &mut tally, output).await?;
    }
    output.say(format_args!("{} put back, {} not found", tally.put_back, tally.not_found))?;
    // Whoever said `--all` named no message: that somebody else was faster leaves nothing undone.
    if tally.not_found == 0 || put_back.all {
        return Ok(());
    }
    Err(place.store.locate(Error::new(
        ErrorKind::NotFound,
        format!("{} of {} messages are no dead letters of {}", tally.not_found, ids.len(), place.endpoint),
    )))
}

/// All that are dead at this moment: a message that fails again meanwhile is not put back for ever.
async fn dead_now(place: &Place) -> Result<Vec<MessageId>> {
    let mut ids = Vec::new();
    visit_letters(place, usize::MAX, |letter| {
        ids.push(letter.envelope.id);
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(without_repetitions(&ids))
}

/// Of a message that is named twice, the second one would not be found.
fn without_repetitions(ids: &[MessageId]) -> Vec<MessageId> {
    let mut seen = HashSet::new();
    ids.iter().copied().filter(|id| seen.insert(*id)).collect()
}

async fn put_back_page(
    place: &Place,
    ids: &[MessageId],
    tally: &mut Tally,
    output: &mut Output<'_>,
) -> Result<()> {
    let answers = place.store.inspect.put_back(&place.endpoint, ids).await;
    for (id, answer) in answers.map_err(|error| place.store.locate(error))? {
        let outcome = match answer {
            contract::PutBack::Done => Word::PutBack,
            contract::PutBack::NotFound => Word::NotFound,
        };
        tally.count(outcome);
        let (transport, endpoint) = (place.store.transport.to_string(), place.endpoint.to_string());
        output.answer(&Outcome { transport, endpoint, id, outcome })?;
    }
    Ok(())
}
