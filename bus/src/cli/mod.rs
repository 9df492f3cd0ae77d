#![doc = include_str!("../../docs/cli.md")]

mod check;
mod dead;
mod depths;
mod locks;
mod options;
mod output;
mod parse;
mod stores;
mod subscription;
mod text;

use std::ffi::OsString;
use std::io::Write;

use crate::error::{Error, ErrorKind, Result};
use options::Options;
use output::Output;
use parse::Refusal;

/// Everything that the tool can be asked for: clap arguments, to be nested in a parser of the program's own.
///
/// ```
/// use clap::Parser;
///
/// #[derive(Debug, Parser)]
/// enum Orders {
///     /// Processes messages until it is told to stop
///     Serve,
///     /// Looks into the stores: dead letters, depths, locks, wiring
///     Bus(bus::cli::Command),
/// }
///
/// # async fn example() -> bus::Result<()> {
/// match Orders::parse() {
///     // …
///     # Orders::Serve => Ok(()),
///     Orders::Bus(command) => command.run().await,
/// }
/// # }
/// # Orders::parse_from(["orders", "bus", "depths"]);
/// ```
///
/// Its options can be written anywhere behind the subcommand. A parser that nests it has no *global* options of the
/// names `config`, `store`, `locks` and `json`: clap would take them for these. `Debug` shows no address.
#[derive(Clone, Debug, clap::Args)]
pub struct Command {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Task {
    /// Dead letters: messages that were given up on
    Dead(dead::Dead),
    /// How much is ready, in flight, delayed and dead, by endpoint
    Depths(depths::Depths),
    /// Subscriptions: what waits in them, whether anybody reads them, and their end
    Subscription(subscription::Subscription),
    /// Who holds which lock, for how long, and how the last term ended
    Locks(locks::Locks),
    /// Whether this program's handlers, providers, transports and locks fit together
    Check,
}

impl Command {
    /// Does what was asked for and writes the answer to standard output.
    ///
    /// # Errors
    /// As of [`run_to`](Command::run_to).
    pub async fn run(self) -> Result<()> {
        self.run_to(&mut std::io::stdout()).await
    }

    /// Does what was asked for and writes the answer to `out`. A reader that has gone away (`… | head`) is no error.
    ///
    /// # Errors
    /// The configuration or an address cannot be read; a store does not answer or cannot be looked into; an endpoint
    /// or a message that was named is not there ([`ErrorKind::NotFound`]). What could be found out and done has been
    /// written to `out` before.
    pub async fn run_to(self, out: &mut (impl Write + Send)) -> Result<()> {
        let mut output = Output::new(out, self.options.json);
        let done = match &self.task {
            Task::Dead(dead) => dead::run(dead, &self.options, &mut output).await,
            Task::Depths(depths) => depths::run(depths, &self.options, &mut output).await,
            Task::Subscription(one) => subscription::run(one, &self.options, &mut output).await,
            Task::Locks(locks) => locks::run(locks, &self.options, &mut output).await,
            Task::Check => check::run(&self.options, &mut output),
        };
        if output.reader_is_gone() { Ok(()) } else { done }
    }
}

/// The whole tool, for a `main`: reads the process's arguments, writes to standard output, and ends the process with
/// exit code 2 if the arguments cannot be understood. See [the module](self) for how to mount it.
///
/// # Errors
/// As of [`Command::run_to`].
pub async fn cli() -> Result<()> {
    match parse::command(std::env::args_os().collect()) {
        Ok(command) => command.run().await,
        Err(Refusal::Help(text)) => {
            // Whoever asked for help and does not read it misses nothing.
            drop(std::io::stdout().write_all(text.as_bytes()));
            Ok(())
        }
        Err(Refusal::Usage(text)) => {
            // There is nobody left to tell that it could not be told.
            drop(std::io::stderr().write_all(text.as_bytes()));
            std::process::exit(2)
        }
    }
}

/// The whole tool over given arguments, the program's name first, for tests and for programs that print elsewhere.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # async fn example() -> bus::Result<()> {
/// let mut answer = Vec::new();
/// bus::cli::cli_from(["bus", "depths", "--store", "memory://orders"], &mut answer).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the arguments cannot be understood; otherwise as of [`Command::run_to`].
pub async fn cli_from<A: Into<OsString>>(
    args: impl IntoIterator<Item = A>,
    out: &mut (impl Write + Send),
) -> Result<()> {
    match parse::command(args.into_iter().map(Into::into).collect()) {
        Ok(command) => command.run_to(out).await,
        Err(Refusal::Help(text)) => Output::new(out, false).say(text.trim_end()),
        Err(Refusal::Usage(text)) => Err(Error::new(ErrorKind::InvalidInput, text.trim_end().to_owned())),
    }
}
