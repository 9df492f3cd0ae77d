//! The command line. The driver starts its hosts and its producer from the same program, in roles of their own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};

use crate::checker::{FreezeIn, Plan};
use crate::stores::{Asked, Kind};

/// Long enough for a machine that has other things to do, too.
const USUAL_LEASE: Duration = Duration::from_secs(5);

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
    /// The lease of the lock; 5s by default, 15s for azblob, which gives no shorter one.
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// The store of the messages; a fresh file in the directory of the histories by default. A URL: sqlite://FILE,
    /// postgres://…, redis://…, nats://…, azqueue://PREFIX; or postgres, redis, nats, azqueue for a server of its own.
    #[arg(long)]
    pub store: Option<Asked>,
    /// The store of the lock, that of the messages by default: one of those; file://DIRECTORY; azblob://CONTAINER, in the
    /// account of BUS_AZURE_CONNECTION_STRING; azblob for an emulator of its own.
    #[arg(long)]
    pub locks: Option<Asked>,
    /// The directory for the histories; a fresh one by default.
    #[arg(long)]
    pub history: Option<PathBuf>,
}

impl Options {
    /// What the checker is to expect.
    pub fn plan(&self) -> Plan {
        let Self { messages, kills, freezes, freeze_in, terms, .. } = *self;
        // Read already when it was parsed.
        let notice = self.lock_store().and_then(|asked| asked.notice().ok()).unwrap_or_default();
        Plan { messages, kills, freezes, freeze_in, terms, lease: self.lease(), notice }
    }

    /// The lease of the lock.
    pub fn lease(&self) -> Duration {
        let shortest = self.lock_store().map_or(Duration::ZERO, |asked| *asked.leases().start());
        self.lease.unwrap_or(USUAL_LEASE.max(shortest))
    }

    /// Where the lock is; nothing if nothing was said.
    pub fn lock_store(&self) -> Option<Asked> {
        self.locks.clone().or_else(|| self.store.as_ref()?.lock())
    }

    /// All stores that were asked for.
    pub fn asked(&self) -> Vec<Asked> {
        self.store.clone().into_iter().chain(self.lock_store()).collect()
    }

    /// Refuses what cannot be carried out.
    ///
    /// # Errors
    /// Which option has to be another one.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.hosts < 2 {
            bail!("--hosts has to be 2 at least: somebody has to take over");
        }
        if self.asked().iter().any(Asked::has_credentials) {
            bail!(
                "--store and --locks take no passwords, keys or signatures: everybody can read a command line. Those of \
                 Azure go into BUS_AZURE_CONNECTION_STRING; for another server, let a user of this machine in without"
            );
        }
        if self.store.as_ref().is_some_and(|asked| !asked.takes_messages()) {
            bail!("--store is where the messages are; locks alone can be there: name it with --locks");
        }
        if self.freeze_in == FreezeIn::Commit && self.asked().iter().any(|asked| asked.kind() != Kind::Sqlite)
        {
            bail!("--freeze-in commit is for SQLite: a server goes on without the process that is frozen");
        }
        if self.store.is_some() && self.lock_store().is_none_or(|asked| !asked.gives_locks()) {
            bail!("there are no locks in azqueue: name their store with --locks, azblob://CONTAINER for one");
        }
        if let Some(leases) =
            self.lock_store().as_ref().map(Asked::leases).filter(|leases| !leases.contains(&self.lease()))
        {
            let (lease, shortest, longest) = (self.lease(), leases.start(), leases.end());
            bail!("--lease {lease:?} is none that azblob gives: from {shortest:?} to {longest:?}");
        }
        Ok(())
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

/// A number and its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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

    fn options(line: &[&str]) -> Options {
        Cli::parse_from(["failover"].iter().chain(line)).options
    }

    #[test]
    fn the_lease_and_the_limits_follow_from_the_kind_of_the_lock() {
        let plan = |line: &[&str]| {
            let plan = options(line).plan();
            (plan.lease.as_secs(), plan.notice.as_secs())
        };
        assert_eq!(plan(&[]), (5, 0));
        assert_eq!(plan(&["--locks", "sqlite://locks.db", "--lease", "2s"]), (2, 0));
        assert_eq!(plan(&["--locks", "azblob"]), (15, 5));
        assert_eq!(plan(&["--locks", "azblob://locks?poll=1s", "--lease", "20s"]), (20, 1));
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        for (line, says) in [
            (["--hosts", "1", "--lease", "5s"], "--hosts"),
            (["--locks", "azblob", "--lease", "14s"], "from 15s to 60s"),
            (["--locks", "azblob://locks", "--lease", "61s"], "from 15s to 60s"),
            (["--locks", "azblob://host/locks?sig=s3cret", "--lease", "15s"], "BUS_AZURE_CONNECTION_STRING"),
            (["--store", "postgres://me:s3cret@host/db", "--lease", "15s"], "no passwords"),
            (["--store", "file://locks", "--lease", "15s"], "--locks"),
            (["--store", "redis", "--freeze-in", "commit"], "SQLite"),
            (["--store", "azqueue://q", "--lease", "15s"], "--locks"),
            (["--store", "azqueue", "--lease", "5s"], "from 15s to 60s"),
        ] {
            let error = options(&line).check().unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{line:?}: {error}");
        }
        for line in
            [["--locks", "azblob", "--lease", "15s"], ["--locks", "sqlite://locks.db", "--lease", "1s"]]
        {
            options(&line).check().unwrap();
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
