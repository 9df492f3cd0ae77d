//! The command line. The driver starts its hosts and its producer from the same program, in roles of their own.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::checker::{FreezeIn, Plan};

/// Kills, freezes and stops the holder of a singleton, and checks that nothing overlaps and nothing is lost.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What this process is; the driver when nothing is said.
    #[command(subcommand)]
    pub role: Option<Role>,
    /// What the driver is to do.
    #[command(flatten)]
    pub options: Options,
}

/// What a process can be, other than the driver.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Checks the histories of an earlier run again; give it the options of that run.
    Check(Options),
    /// Runs the singleton, started by the driver.
    #[command(hide = true)]
    Host(Part),
    /// Sends the messages, started by the driver.
    #[command(hide = true)]
    Produce(Part),
}

/// The size of the experiment, and where it takes place.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// How many host processes there are.
    #[arg(long, default_value_t = 3)]
    pub hosts: usize,
    /// How many messages are sent.
    #[arg(long, default_value_t = 20_000)]
    pub messages: usize,
    /// How many times the holder is killed.
    #[arg(long, default_value_t = 10)]
    pub kills: usize,
    /// How many times the holder is frozen for longer than its lease.
    #[arg(long, default_value_t = 3)]
    pub freezes: usize,
    /// How many times the holder is told to stop by SIGTERM.
    #[arg(long, default_value_t = 0)]
    pub terms: usize,
    /// Where the holder is frozen.
    #[arg(long, value_enum, default_value_t)]
    pub freeze_in: FreezeIn,
    /// The lease of the lock.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub lease: Duration,
    /// The store of the messages; a fresh file in the directory of the histories by default.
    #[arg(long)]
    pub store: Option<String>,
    /// The store of the lock; that of the messages by default.
    #[arg(long)]
    pub locks: Option<String>,
    /// The directory for the histories; a fresh one by default.
    #[arg(long)]
    pub history: Option<PathBuf>,
}

impl Options {
    /// What the checker is to expect.
    pub fn plan(&self) -> Plan {
        let Self { messages, kills, freezes, freeze_in, terms, lease, .. } = *self;
        Plan { messages, kills, freezes, freeze_in, terms, lease }
    }
}

/// What the driver tells the processes that it starts.
#[derive(Debug, Clone, Args)]
pub struct Part {
    /// How many messages are sent.
    #[arg(long)]
    pub messages: u64,
    /// The lease of the lock, in milliseconds.
    #[arg(long)]
    pub lease_ms: u64,
    /// The store of the messages.
    #[arg(long)]
    pub store: String,
    /// The store of the lock.
    #[arg(long)]
    pub locks: String,
    /// The directory of the histories.
    #[arg(long)]
    pub history: PathBuf,
}

impl Part {
    /// The command line that [`Part`] is read from.
    pub fn arguments(&self) -> Vec<std::ffi::OsString> {
        let Self { messages, lease_ms, store, locks, history } = self;
        vec![
            "--messages".into(),
            messages.to_string().into(),
            "--lease-ms".into(),
            lease_ms.to_string().into(),
            "--store".into(),
            store.into(),
            "--locks".into(),
            locks.into(),
            "--history".into(),
            history.into(),
        ]
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err("write it like 5s, 1500ms or 1m".to_owned()),
    };
    let count: u64 = count.parse().map_err(|_| "write a number before the unit".to_owned())?;
    Ok(Duration::from_millis(count.saturating_mul(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["5", "s", "", "5h", "-5s", "1.5s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_part_comes_back_out_of_its_arguments() {
        let part = Part {
            messages: 7,
            lease_ms: 2_000,
            store: "sqlite://a.db".into(),
            locks: "sqlite://b.db".into(),
            history: "here".into(),
        };
        let line = ["failover".into(), "host".into()].into_iter().chain(part.arguments());
        let Some(Role::Host(read)) = Cli::parse_from(line).role else { panic!("no host") };
        assert_eq!(read.arguments(), part.arguments());
    }
}
