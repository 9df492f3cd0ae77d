//! Which dead letters something is done about, and that it is done, each of them answered for.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use super::{PAGE, visit_letters};
use crate::cli::output::Output;
use crate::cli::stores::{Place, Stores};
use crate::contract::{Dropped, PutBack};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, MessageId};

/// The arguments that select dead letters.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("messages").args(["ids", "all"]).required(true)))]
pub(super) struct Selection {
    /// The queue or topic/subscription
    #[arg(value_parser = Endpoint::parse)]
    endpoint: Endpoint,
    /// The messages
    #[arg(value_name = "ID")]
    ids: Vec<MessageId>,
    /// All that are dead now
    #[arg(long)]
    all: bool,
}

/// What is done about a dead letter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    PutBack,
    Drop,
}

/// What was selected, and where it is.
pub(super) struct Selected {
    place: Place,
    ids: Vec<MessageId>,
    by_name: bool,
}

/// What was done about one message.
#[derive(Serialize)]
struct Outcome {
    transport: String,
    endpoint: String,
    id: MessageId,
    outcome: Word,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    PutBack,
    Dropped,
    NotFound,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::PutBack => "put back",
            Word::Dropped => "dropped",
            Word::NotFound => "not found",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.id, self.outcome)?;
        match self.outcome {
            Word::NotFound => write!(f, ": no dead letter of {} (any more)", self.endpoint),
            Word::PutBack | Word::Dropped => Ok(()),
        }
    }
}

impl Action {
    /// What is said of a message that it was done to.
    fn done(self) -> Word {
        match self {
            Action::PutBack => Word::PutBack,
            Action::Drop => Word::Dropped,
        }
    }

    async fn carry_out(self, place: &Place, ids: &[MessageId]) -> Result<Vec<(MessageId, Word)>> {
        let (inspect, endpoint) = (&place.store.inspect, &place.endpoint);
        let done = |is_done| if is_done { self.done() } else { Word::NotFound };
        Ok(match self {
            Action::PutBack => {
                let answers = inspect.put_back(endpoint, ids).await?;
                answers.into_iter().map(|(id, answer)| (id, done(answer == PutBack::Done))).collect()
            }
            Action::Drop => {
                let answers = inspect.drop_dead_letters(endpoint, ids).await?;
                answers.into_iter().map(|(id, answer)| (id, done(answer == Dropped::Done))).collect()
            }
        })
    }
}

impl Selection {
    /// Finds out what was selected.
    pub(super) async fn find(&self, stores: &Stores) -> Result<Selected> {
        let place = stores.place(&self.endpoint).await?;
        let ids = if self.all { dead_now(&place).await? } else { without_repetitions(&self.ids) };
        Ok(Selected { place, ids, by_name: !self.all })
    }
}

impl Selected {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.place.endpoint
    }

    /// Does it to all of them, page by page, and says of each what was done.
    pub(super) async fn act(self, action: Action, output: &mut Output<'_>) -> Result<()> {
        let (place, mut not_found) = (&self.place, 0);
        for page in self.ids.chunks(PAGE) {
            let answers = action.carry_out(place, page).await.map_err(|error| place.store.locate(error))?;
            for (id, outcome) in answers {
                not_found += usize::from(outcome == Word::NotFound);
                let (transport, endpoint) = (place.store.transport.to_string(), place.endpoint.to_string());
                output.answer(&Outcome { transport, endpoint, id, outcome })?;
            }
        }
        let done = self.len() - not_found;
        output.say(format_args!("{done} {}, {not_found} {}", action.done(), Word::NotFound))?;
        // Whoever said `--all` named no message: that somebody else was faster leaves nothing undone.
        if not_found == 0 || !self.by_name {
            return Ok(());
        }
        Err(place.store.locate(Error::new(
            ErrorKind::NotFound,
            format!("{not_found} of {} messages are no dead letters of {}", self.len(), place.endpoint),
        )))
    }
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
