//! Some room on the disk that is kept for bad times: a file beside the store, given up when the disk is full.
//!
//! Settling a message frees room in the store, but needs some first: for its entry in the log, and for what the log still
//! has to bring into the file. On a full disk verdicts would be lost (the messages would run again), claims and locks
//! would run out. So whoever finds the disk full removes this file; its room carries everything that ends, extends or
//! claims, while what would add to the store has to do with what is free within the store's file. The file's absence is
//! all that processes have to tell each other. It is made again when there is room for it twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::batch::Batch;
use super::place::beside;

/// The reserve of a store on a disk that is large enough.
const SIZE: u64 = 16 << 20;
/// Of a small disk no more than this part.
const SHARE: u64 = 16;
/// With less than that free a store cannot be opened: the log's index alone takes 32 KiB.
const TO_OPEN: u64 = 1 << 20;
/// How often it is tried to make it again.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// What a batch needs beside its messages, in pages of the store: its ways into the tables.
const PAGES_FOR_WAYS: u64 = 64;

/// The reserve of one store.
#[derive(Debug)]
pub(super) struct Reserve {
    file: PathBuf,
    /// When it was last tried to make it.
    tried: Option<Instant>,
    /// Whether the file system can set room aside at all.
    possible: bool,
    /// Whether it was last seen to be spent, by whomever.
    spent: bool,
}

impl Reserve {
    /// The reserve of the store at `store`.
    pub(super) fn beside(store: &Path) -> Self {
        Reserve { file: beside(store, ".reserve"), tried: None, possible: true, spent: false }
    }

    /// Whether there is none, and no room yet to make it. Says so when that changes.
    pub(super) fn is_spent(&mut self) -> bool {
        let spent = self.possible && !self.file.exists() && !self.may_be_made_now();
        if std::mem::replace(&mut self.spent, spent) != spent {
            self.tell();
        }
        spent
    }

    /// Gives it up; whether it was still there.
    pub(super) fn spend(&mut self) -> bool {
        let there = fs::remove_file(&self.file).is_ok();
        if there {
            self.tried = Some(Instant::now());
            self.is_spent();
        }
        there
    }

    /// Gives it up if the disk is as good as full; whether that was done. For a store that cannot be opened.
    pub(super) fn relieve(&mut self) -> bool {
        let needed = self.file.parent().and_then(free_in).is_some_and(|free| free < TO_OPEN);
        needed && self.spend()
    }

    fn tell(&self) {
        let file = self.file.display();
        match self.spent {
            true => tracing::error!(
                target: "bus::sqlite", event = "disk.full", %file,
                "the disk is full: free some space. Until then nothing is taken that would make the store's file grow; room that was kept for this has been given up, so that what is there can be processed"
            ),
            false => {
                tracing::info!(target: "bus::sqlite", event = "disk.room", %file, "there is room on the disk again");
            }
        }
    }

    /// Whether there is room for a batch: always as long as there is a reserve; else what adds to the store has to fit into
    /// the store's file as it is.
    pub(super) fn suffices(&mut self, connection: &Connection, batch: &Batch) -> bool {
        let added = batch.iter().filter(|work| work.adds()).map(|work| work.weight()).sum();
        !self.is_spent() || added == 0 || has_room(connection, added)
    }

    fn may_be_made_now(&mut self) -> bool {
        let soon = self.tried.is_some_and(|tried| tried.elapsed() < BETWEEN_TRIES);
        !soon && {
            self.tried = Some(Instant::now());
            self.make()
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn make(&mut self) -> bool {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        let Some(directory) = self.file.parent() else { return false };
        let (Some(size), Some(free)) = (size_in(directory), free_in(directory)) else { return false };
        // As much must be left for others, or it would be needed again at once.
        if free < size.saturating_mul(2) {
            return false;
        }
        let mut options = fs::OpenOptions::new();
        options.create(true).write(true).truncate(false);
        crate::files::private(&mut options);
        let Ok(file) = options.open(&self.file) else { return false };
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            Ok(()) => true,
            Err(e) => {
                self.possible = matches!(e, Errno::NOSPC | Errno::DQUOT);
                // Half a reserve would pass for a whole one.
                let _ = fs::remove_file(&self.file);
                false
            }
        }
    }

    /// Nothing here sets room aside.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn make(&mut self) -> bool {
        self.possible = false;
        false
    }
}

/// How much is kept on the disk with this directory, in bytes; `None` where that cannot be known. The log gets no longer
/// than that before the file takes it in, so that there is always room for this.
pub(super) fn size_in(directory: &Path) -> Option<u64> {
    measure(directory).map(|(all, _)| (all / SHARE).min(SIZE))
}

fn free_in(directory: &Path) -> Option<u64> {
    measure(directory).map(|(_, free)| free)
}

/// The size of the disk with this directory, and what is free of it, in bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn measure(directory: &Path) -> Option<(u64, u64)> {
    // The directory of a relative path may have no name.
    let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let disk = rustix::fs::statvfs(named).ok()?;
    Some((disk.f_blocks.saturating_mul(disk.f_frsize), disk.f_bavail.saturating_mul(disk.f_frsize)))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn measure(_directory: &Path) -> Option<(u64, u64)> {
    None
}

/// Whether so many bytes can be added without making the store's file grow.
fn has_room(connection: &Connection, bytes: usize) -> bool {
    let pragma = |name: &str| {
        connection.prepare_cached(name)?.query_row([], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    };
    match (pragma("PRAGMA freelist_count"), pragma("PRAGMA page_size")) {
        (Ok(free), Ok(page)) => free >= 2 * bytes as u64 / page.max(1) + PAGES_FOR_WAYS,
        // Whoever goes on will be told why.
        _ => true,
    }
}
