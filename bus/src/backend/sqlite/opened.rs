//! The store as a writer's thread has it open, and what becomes of that when its file meets with an accident: waited for,
//! opened anew, or given up for good.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::batch::{Batch, Cause, Failure};
use super::config::Config;
use super::error::{abandoned, away, closed, cut_off, full, gone};
use super::file::{Displaced, StoreFile, checkpoint};
use super::gate::Passage;
use super::log::LogWatch;
use super::place::Identity;
use super::reserve::Reserve;
use super::writer::Role;
use crate::error::{Error, ErrorKind, Result};
use crate::reconnect::Backoff;

/// How long a file may be away before it counts as gone: somebody may be exchanging it, and think better of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between tries to use a store whose disk has failed.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// An open store.
pub(super) struct Opened {
    config: Config,
    role: Role,
    identity: Identity,
    /// `None` between two openings, and when the store is lost.
    file: Option<StoreFile>,
    reserve: Reserve,
    log: LogWatch,
    /// What the last try to make it usable came to, and until when there is no other.
    last_try: Option<(Error, Instant)>,
    pause: Backoff,
    away_since: Option<Instant>,
    /// Why it is not used any more, whatever comes.
    lost: Option<Error>,
    tell_lost: watch::Sender<Option<Error>>,
}

impl Opened {
    pub(super) fn new(
        config: Config,
        role: Role,
        file: StoreFile,
        tell_lost: watch::Sender<Option<Error>>,
    ) -> Self {
        let identity = file.identity().clone();
        let mut reserve = Reserve::beside(identity.path());
        if role == Role::Messages {
            reserve.is_spent();
        }
        Opened {
            config,
            role,
            identity,
            file: Some(file),
            reserve,
            log: LogWatch::default(),
            last_try: None,
            pause: PAUSES,
            away_since: None,
            lost: None,
            tell_lost,
        }
    }

    fn path(&self) -> &Path {
        self.identity.path()
    }

    /// The file, if it is open, still the same, and can be relied on; else why not. Deals with whatever is the matter.
    pub(super) fn ready(&mut self) -> Result<&StoreFile> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        match self.look() {
            Ok(length) => {
                self.is_back();
                if self.file.as_ref().is_none_or(|file| file.is_suspect) {
                    self.open_again()?;
                } else {
                    self.tend_log(length)?;
                }
            }
            Err(Displaced::File) => return Err(self.wait_for_file()),
            Err(Displaced::Emptied) => return Err(self.lose(cut_off().with("file", self.path().display()))),
            Err(Displaced::Companion(_)) => return Err(self.give_up()),
        }
        self.file()
    }

    fn look(&self) -> Result<u64, Displaced> {
        match &self.file {
            Some(file) => file.look(),
            None if self.identity.is_away() => Err(Displaced::File),
            None => Ok(0),
        }
    }

    /// The file, which is [ready](Opened::ready).
    pub(super) fn file(&self) -> Result<&StoreFile> {
        self.file.as_ref().ok_or_else(closed)
    }

    /// Waits for the file's turn to be written to, which may take long: so that it may not be ready any more.
    pub(super) fn pass(&self) -> Result<Passage> {
        let file = self.file()?;
        let passage = file.gate.pass();
        file.look().map_err(|displaced| file.displaced(displaced))?;
        Ok(passage)
    }

    /// What of a batch there is room for, and what has to be refused, with the reason. Called within the gate.
    pub(super) fn admit(&mut self, batch: Batch) -> (Batch, Option<(Batch, Error)>) {
        match (&self.file, self.role) {
            (Some(file), Role::Messages) if !self.reserve.suffices(&file.connection, &batch) => {
                let (refused, admitted) = batch.into_iter().partition(|work| work.adds());
                (admitted, Some((refused, full(self.path()))))
            }
            _ => (batch, None),
        }
    }

    /// Takes note of what a failure says about the file; answers what callers are told.
    pub(super) fn heed(&mut self, failure: Failure) -> Error {
        let error = failure.error.with("file", self.path().display());
        self.note(failure.cause, error)
    }

    fn note(&mut self, cause: Cause, error: Error) -> Error {
        match cause {
            _ if error.kind() == ErrorKind::Corrupt => return self.lose(error),
            Cause::Disk => self.suspect(&error),
            Cause::FullDisk => self.make_do(),
            Cause::Other => {}
        }
        error
    }

    fn suspect(&mut self, error: &Error) {
        let path = self.identity.path().display();
        if let Some(file) = self.file.as_mut().filter(|file| !file.is_suspect) {
            tracing::error!(target: "bus::sqlite", event = "disk.failed", file = %path, error = ?error, "the disk has failed: nothing is written until it is known what is on it");
            file.is_suspect = true;
        }
    }

    /// On a full disk: gives up the reserve, and has the file take in its log while there is room for that.
    fn make_do(&mut self) {
        if self.reserve.spend()
            && let Some(file) = &self.file
            && let Err(e) = checkpoint(&file.connection, "PASSIVE")
        {
            tracing::debug!(target: "bus::sqlite", error = %e, "the log could not be taken in");
        }
    }

    /// Only a store's messages make its log grow.
    fn tend_log(&mut self, length: u64) -> Result<()> {
        if self.role == Role::Messages
            && let Some(file) = &self.file
        {
            self.log.note(length, self.identity.path());
            let shortened = self.log.shorten(file, &self.config);
            shortened.map_err(|e| self.heed(Failure::of_statement(e)))?;
        }
        Ok(())
    }

    /// After the disk has failed: opens the file anew, when everything that was committed is safe in it.
    fn open_again(&mut self) -> Result<()> {
        self.without_haste(|this| {
            if let Some(file) = &this.file {
                file.take_in_log()?;
            }
            this.file = None;
            this.file = Some(StoreFile::open_again(&this.config, &this.identity)?);
            tracing::info!(target: "bus::sqlite", event = "file.reopened", file = %this.path().display(), "the store was opened anew, and goes on");
            Ok(())
        })
    }

    /// After somebody has laid hands on the log: gives the store up, when everything that was committed is safe in the
    /// file. Opening it anew would not help: other connections of this process keep the former index alive for all of them.
    fn give_up(&mut self) -> Error {
        let rescued = self.without_haste(|this| match &this.file {
            Some(file) => file.rescue_log(),
            None => Ok(()),
        });
        match rescued {
            Ok(()) => self.lose(abandoned(self.path())),
            Err(e) => e,
        }
    }

    fn wait_for_file(&mut self) -> Error {
        let path = self.identity.path();
        let since = *self.away_since.get_or_insert_with(|| {
            tracing::error!(target: "bus::sqlite", event = "file.away", file = %path.display(), patience = ?PATIENCE, "the file was replaced or removed while it was open: nothing is read or written until it is back");
            Instant::now()
        });
        match &self.file {
            _ if since.elapsed() >= PATIENCE => self.lose(gone(path)),
            Some(file) => file.displaced(Displaced::File),
            None => away(path),
        }
    }

    fn is_back(&mut self) {
        if self.away_since.take().is_some() {
            tracing::info!(target: "bus::sqlite", event = "file.back", file = %self.path().display(), "the file is back");
        }
    }

    /// Tries something that each piece of work would otherwise try anew, in vain.
    fn without_haste(&mut self, attempt: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some((error, until)) = &self.last_try
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match attempt(self) {
            Ok(()) => {
                self.last_try = None;
                self.pause.reset();
                Ok(())
            }
            Err(e) => {
                let error = self.note(Cause::Other, e);
                self.last_try = Some((error.clone(), Instant::now() + self.pause.next()));
                Err(error)
            }
        }
    }

    /// Has nothing more to do with the store; answers why.
    fn lose(&mut self, error: Error) -> Error {
        tracing::error!(target: "bus::sqlite", event = "store.lost", file = %self.path().display(), error = ?error, "the store is not used any more");
        if let Some(file) = self.file.take() {
            file.leave();
        }
        self.lost = Some(error.clone());
        self.tell_lost.send_replace(Some(error.clone()));
        error
    }
}
