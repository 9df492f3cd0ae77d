//! `dead put-back`.

use super::selection::{Action, Selection};
use crate::cli::output::Output;
use crate::cli::stores::Stores;
use crate::error::Result;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct PutBack {
    #[command(flatten)]
    selection: Selection,
}

pub(super) async fn run(put_back: &PutBack, stores: &Stores, output: &mut Output<'_>) -> Result<()> {
    put_back.selection.find(stores).await?.act(Action::PutBack, output).await
}
