//! `locks`: who holds what.

use std::time::Duration;

use serde::Serialize;

use super::options::Options;
use super::output::{Listing, Output, Record};
use super::stores::open_locks;
use super::text;
use crate::contract::{Ended, LockManager, LockRecord};
use crate::error::Result;
use crate::host::config::write_duration;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Locks {
    /// Only locks whose id begins with this, such as `queue/`
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
}

#[derive(Serialize)]
struct Line {
    id: String,
    held_for_ms: Option<u64>,
    owner: String,
    fence: u64,
    lock_lease_ms: u64,
    last_term: LastTerm,
    cut_because: Option<String>,
    note: Option<String>,
    note_hex: Option<String>,
}

/// What is known of the last term's end.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum LastTerm {
    /// It goes on, as far as the store knows.
    Running,
    /// Its run had ended by itself.
    Clean,
    /// Its run was cut off.
    Cut,
    /// Its lease ran out without a word of its holder's.
    RanOut,
}

impl LastTerm {
    fn of(record: &LockRecord) -> Self {
        match (&record.ended, record.held_for) {
            (Some(Ended::Clean), _) => LastTerm::Clean,
            (Some(Ended::Cut(_)), _) => LastTerm::Cut,
            (None, Some(_)) => LastTerm::Running,
            (None, None) => LastTerm::RanOut,
        }
    }
}

impl Line {
    fn new(record: LockRecord) -> Self {
        let last_term = LastTerm::of(&record);
        let (note, note_hex) = match String::from_utf8(record.note) {
            Ok(note) => ((!note.is_empty()).then_some(note), None),
            Err(error) => (None, Some(text::hex(error.as_bytes()))),
        };
        Line {
            id: record.id.to_string(),
            held_for_ms: record.held_for.map(millis),
            owner: record.owner.to_string(),
            fence: record.fence.get(),
            lock_lease_ms: millis(record.lock_lease),
            last_term,
            cut_because: match record.ended {
                Some(Ended::Cut(reason)) => Some(reason),
                _ => None,
            },
            note,
            note_hex,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Record for Line {
    const COLUMNS: &'static [&'static str] =
        &["LOCK", "STATE", "OWNER", "FENCE", "LEASE", "LAST TERM", "NOTE"];

    fn cells(&self) -> Vec<String> {
        let left = self.held_for_ms.map(Duration::from_millis);
        let last_term = match self.last_term {
            LastTerm::Running => "running".to_owned(),
            LastTerm::Clean => "ended cleanly".to_owned(),
            LastTerm::Cut => format!("cut off: {}", self.cut_because.as_deref().unwrap_or("no reason given")),
            LastTerm::RanOut => "ran out".to_owned(),
        };
        let hex = self.note_hex.as_ref().map(|hex| format!("0x{hex}"));
        vec![
            text::brief(&self.id),
            left.map_or("free".to_owned(), |left| format!("held, {} left", text::passing(left))),
            self.owner.clone(),
            self.fence.to_string(),
            write_duration(Duration::from_millis(self.lock_lease_ms)),
            text::brief(&last_term),
            text::brief(self.note.as_deref().or(hex.as_deref()).unwrap_or_default()),
        ]
    }
}

pub(super) async fn run(locks: &Locks, options: &Options, output: &mut Output<'_>) -> Result<()> {
    let url = options.locks()?;
    let manager = open_locks(&url).await.map_err(|error| error.with("locks", &url))?;
    let records = read(&*manager, &locks.prefix).await.map_err(|error| error.with("locks", &url));
    let done = records.and_then(|records| {
        let mut listing = Listing::new(output);
        records.into_iter().try_for_each(|record| listing.add(&Line::new(record)))?;
        listing.end(format_args!("no locks in {url}"))
    });
    manager.close().await;
    done
}

async fn read(manager: &dyn LockManager, prefix: &str) -> Result<Vec<LockRecord>> {
    manager.initialize().await?;
    let mut records = manager.list(prefix).await?;
    records.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(records)
}
