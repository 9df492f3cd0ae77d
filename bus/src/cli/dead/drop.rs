//! `dead drop`.

use super::selection::{Action, Selection};
use crate::cli::output::Output;
use crate::cli::stores::Stores;
use crate::error::{Error, ErrorKind, Result};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Drop {
    #[command(flatten)]
    selection: Selection,
    /// Drops them; without it, the answer is how many there are
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(drop: &Drop, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    let selected = drop.selection.find(stores).await?;
    if drop.yes {
        return selected.act(Action::Drop, output).await;
    }
    let what = match selected.len() {
        0 => "nothing is dropped, and nothing is dead here".to_owned(),
        count => format!("nothing is dropped yet: to lose {count} for good, say it again with --yes"),
    };
    Err(Error::new(ErrorKind::InvalidInput, what).with("endpoint", selected.endpoint()))
}
