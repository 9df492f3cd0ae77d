//! From the process's arguments to a [`Command`], or to a text that says why not.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};

use super::Command;

/// The tool as a program of its own.
#[derive(clap::Parser)]
#[command(
    name = "bus",
    version,
    about = "Looks into the stores of `bus`: dead letters, depths, locks, wiring"
)]
struct Tool {
    #[command(flatten)]
    command: Command,
}

/// Why there is no command to run.
pub(super) enum Refusal {
    /// Help or the version was asked for: this is it.
    Help(String),
    /// The arguments cannot be understood, and this is why.
    Usage(String),
}

/// Reads arguments, the program's name first. A first argument `bus` is taken for the name under which the tool is
/// mounted, as in `orders bus dead list`.
pub(super) fn command(mut args: Vec<OsString>) -> Result<Command, Refusal> {
    let mut name = program_name(args.first());
    if args.get(1).is_some_and(|argument| argument == "bus") {
        args.remove(1);
        name.push_str(" bus");
    }
    Tool::command()
        .bin_name(name)
        .try_get_matches_from(&args)
        .and_then(|matches| Tool::from_arg_matches(&matches))
        .map(|tool| tool.command)
        .map_err(|error| refusal(&error, &args))
}

fn program_name(argument: Option<&OsString>) -> String {
    let name = argument.and_then(|path| Path::new(path).file_name()).unwrap_or(OsStr::new("bus"));
    name.to_string_lossy().into_owned()
}

fn refusal(error: &clap::Error, args: &[OsString]) -> Refusal {
    let text = error.render().to_string();
    if error.use_stderr() { Refusal::Usage(without_addresses(text, args)) } else { Refusal::Help(text) }
}

/// `text` without the arguments that may be a store's address: clap quotes what it does not understand, and an address
/// may hold a password.
fn without_addresses(text: String, args: &[OsString]) -> String {
    let args = args.iter().map(|argument| argument.to_string_lossy());
    args.fold(text, |text, argument| {
        let value = match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => value,
            _ => &argument,
        };
        if may_be_address(value) { text.replace(value, "…") } else { text }
    })
}

fn may_be_address(argument: &str) -> bool {
    // A connection string of Azure's is `name=value;name=value`.
    argument.contains("://") || argument.contains(';')
}
