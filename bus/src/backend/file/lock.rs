//! The lock manager: a file per lock, whose record is written only under the condition that it is still what its writer
//! believes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::config::Config;
use super::directory::Directory;
use super::error::{error, too_late};
use super::locked::{Locked, Number, Turn, look};
use super::name;
use super::record::{LONGEST_ID, Record, new_file};
use super::threads::Threads;
use crate::clock::{BootInstant, Clock, clock_id};
use crate::contract::{
    BoxFuture, Durability, Ended, Fence, Grant, LONGEST_LOCK_LEASE, Lease, LockGuarantees, LockId,
    LockManager, LockRecord, OpenOptions, Owner, Reach, Renewal, check_note, try_time,
};
use crate::error::{ErrorKind, Result};
use crate::files::DirectoryWatch;
use crate::observed::{Beat, Held, Observed};
use crate::wake::{Hints, jittered};

/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon to ask again for a turn at a file.
const TURN: Duration = Duration::from_millis(2);

/// What a job answers; `None` if it was somebody else's turn at the file, so that it is to be done again.
type Answer<T> = Result<Option<T>>;

/// Those of all openings, a lane for each directory: one that hangs keeps one thread, however often it is tried again.
static OPENING: LazyLock<Threads> = LazyLock::new(Threads::new);

/// The lane of what concerns the whole directory: no lock's file is called so.
const DIRECTORY: &str = ".";

/// Locks in a directory. Has threads of its own, so that a file system that hangs delays nobody but those who ask it.
pub(super) struct FileLocks {
    files: Arc<Files>,
    threads: Arc<Threads>,
    hints: Arc<Hints<String>>,
    watch: Option<DirectoryWatch>,
    reach: Reach,
    poll: Duration,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching
    /// is not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
}

impl FileLocks {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let hints = Arc::new(Hints::default());
        let lane = config.directory.display().to_string();
        let (reach, poll, clock) = (config.reach, config.poll, options.clock.clone());
        let heard = Arc::clone(&hints);
        let opening = OPENING.run(&lane, move || {
            let directory = Directory::open(&config)?;
            let watch = listen(&directory, heard);
            Ok((directory, watch))
        });
        let opened = tokio::time::timeout(PATIENCE, opening).await.map_err(|_| too_late())??;
        let (directory, watch) = opened?;
        let files = Files { directory, clock, watched_for: poll * 2, observed: Observed::default() };
        Ok(FileLocks {
            files: Arc::new(files),
            threads: Arc::new(Threads::new()),
            hints,
            watch,
            reach,
            poll,
            asked: Mutex::default(),
        })
    }

    async fn do_in<T: Send + 'static>(
        &self,
        lane: &str,
        patience: Duration,
        job: impl Fn(&Files) -> Answer<T> + Clone + Send + 'static,
    ) -> Result<T> {
        do_in(lane, patience, &self.threads, &self.files, job).await
    }
}

/// Listens to what is written in the directory by processes of this machine.
fn listen(directory: &Directory, hints: Arc<Hints<String>>) -> Option<DirectoryWatch> {
    let tell = move |name: Option<&str>| match name {
        Some(name) => hints.tell(&name.to_owned()),
        None => hints.tell_all(),
    };
    match DirectoryWatch::start(directory.path(), "bus-file-wake", tell) {
        Ok(watch) => Some(watch),
        Err(e) if e.kind() == std::io::ErrorKind::Unsupported => None,
        Err(e) => {
            tracing::warn!(
                error = %e,
                "no inotify (fs.inotify.max_user_instances may be used up): a release is found by polling"
            );
            None
        }
    }
}

/// Does a job in its lane, again and again until it had its turn at the file, for so long.
async fn do_in<T: Send + 'static>(
    lane: &str,
    patience: Duration,
    threads: &Threads,
    files: &Arc<Files>,
    job: impl Fn(&Files) -> Answer<T> + Clone + Send + 'static,
) -> Result<T> {
    let doing = async {
        loop {
            let (files, job) = (Arc::clone(files), job.clone());
            if let Some(answer) = threads.run(lane, move || job(&files)).await?? {
                return Ok(answer);
            }
            tokio::time::sleep(jittered(TURN)).await;
        }
    };
    tokio::time::timeout(patience, doing).await.unwrap_or_else(|_| Err(too_late()))
}

/// How long a call about a lock of this lease may take.
fn patience(lock_lease: Duration) -> Duration {
    try_time(lock_lease).min(PATIENCE)
}

/// The files, and what is needed to judge what is in them. Used on the threads only.
struct Files {
    directory: Directory,
    clock: Clock,
    /// For how long a record by another clock is watched at the least: twice as long as from one look to the next.
    watched_for: Duration,
    observed: Observed,
}

/// A term that was taken, and in which file.
struct Taken {
    fence: Fence,
    number: Number,
    beat: u64,
}

impl Files {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Takes a lock, or extends it for the owner that has it already; answers `None` within if somebody else holds it.
    fn take(&self, id: &LockId, lock_lease: Duration, owner: Owner) -> Answer<Option<Taken>> {
        let name = name::of_lock(id);
        self.directory.check()?;
        let Some(seen) = look(&self.path(&name))? else {
            // With its first record in it, the lock is taken as soon as its file is there. Asked for again, it is ours, or
            // that of somebody who was faster.
            self.directory.put(&name, &new_file(&self.first(id, lock_lease, owner)))?;
            return Ok(None);
        };
        if self.is_held_against(id, &seen, owner)? {
            return Ok(Some(None));
        }
        let Turn::Given(mut file) = Locked::ask(self.path(&name))? else { return Ok(None) };
        let newest = file.read()?;
        let last = &newest.record;
        if self.is_held_against(id, last, owner)? {
            return Ok(Some(None));
        }
        let is_same_term = last.owner == owner && last.ended.is_none() && self.held_for(last).is_some();
        let mut next = self.first(id, lock_lease, owner);
        if is_same_term {
            (next.fence, next.beat) = (last.fence, last.beat + 1);
        } else {
            next.fence = Fence::next(Some(last.fence), self.clock.wall());
        }
        next.note.clone_from(&last.note);
        file.write(&newest, &next)?;
        let number = file.number();
        self.confirmed(&file)?;
        self.observed.forget(id);
        Ok(Some(Some(Taken { fence: next.fence, number, beat: next.beat })))
    }

    /// The record of a new term, as if it were the lock's first.
    fn first(&self, id: &LockId, lock_lease: Duration, owner: Owner) -> Record {
        Record {
            id: id.to_string(),
            owner,
            fence: Fence::next(None, self.clock.wall()),
            lock_lease,
            boot: clock_id().to_owned(),
            renewed: self.clock.now().as_nanos(),
            beat: 1,
            ended: None,
            note: Vec::new(),
        }
    }

    /// After a write: that it was made where others look for it.
    fn confirmed(&self, file: &Locked) -> Result<()> {
        match file.is_in_place()? {
            true => self.directory.check(),
            false => Err(error(
                ErrorKind::Unavailable,
                "the lock's file was replaced or removed while it was written",
            )
            .with("directory", self.directory.path().display())),
        }
    }

    fn is_held_against(&self, id: &LockId, record: &Record, owner: Owner) -> Result<bool> {
        if record.id != id.as_str() {
            return Err(error(
                ErrorKind::Corrupt,
                "the lock's file is that of another lock: remove it while nothing runs under either",
            )
            .with("lock", id)
            .with("of", &record.id));
        }
        let is_ours = record.owner == owner && record.ended.is_none();
        Ok(!is_ours && self.held_for_others(id, record))
    }

    /// Whether it is still held, for somebody else who wants it.
    fn held_for_others(&self, id: &LockId, record: &Record) -> bool {
        if has_our_clock(record) || record.ended == Some(Ended::Clean) {
            return self.held_for(record).is_some();
        }
        // Of another machine, another container, or from before a restart: which of them cannot be told, and their clocks
        // say nothing here. Only whether the record changes does.
        let beat = Beat { fence: record.fence.to_string(), beat: record.beat.to_string() };
        let lease = record.lock_lease.min(LONGEST_LOCK_LEASE).max(self.watched_for);
        let now = self.clock.now();
        self.observed.note(id, Held { beat, age_micros: 0, lease }, now);
        self.observed.seen(id, now).is_none_or(|seen| !seen.wait.is_zero())
    }

    /// How long it is still held, at the most; `None` if it is free. A cut frees nothing early.
    fn held_for(&self, record: &Record) -> Option<Duration> {
        let lease = record.lock_lease.min(LONGEST_LOCK_LEASE);
        match has_our_clock(record) {
            _ if record.ended == Some(Ended::Clean) => None,
            false => Some(lease),
            true => {
                let (end, now) = (BootInstant::from_nanos(record.renewed) + lease, self.clock.now());
                (end > now).then(|| end.since(now))
            }
        }
    }

    /// Writes what `change` makes of the record, if it makes anything of it; answers the new beat. Whatever is not as it
    /// was when the lock was taken is a reason not to write.
    fn change(
        &self,
        id: &LockId,
        number: Option<Number>,
        change: impl Fn(&Record) -> Option<Record>,
    ) -> Answer<Option<u64>> {
        let mut file = match Locked::ask(self.path(&name::of_lock(id)))? {
            Turn::Given(file) if number.is_none_or(|number| number == file.number()) => file,
            Turn::Given(_) | Turn::Missing => return Ok(Some(None)),
            Turn::Busy => return Ok(None),
        };
        if !self.directory.is_there()? {
            return Ok(Some(None));
        }
        let newest = match file.read() {
            Ok(newest) if newest.record.id == id.as_str() => newest,
            Err(error) if error.is_transient() => return Err(error),
            // Whatever it is, it is not what we have written.
            Ok(_) | Err(_) => return Ok(Some(None)),
        };
        let Some(mut record) = change(&newest.record) else { return Ok(Some(None)) };
        record.beat = newest.record.beat + 1;
        file.write(&newest, &record)?;
        let is_there = file.is_in_place()? && self.directory.is_there()?;
        Ok(Some(is_there.then_some(record.beat)))
    }

    fn inspect(&self, id: &LockId) -> Answer<Option<LockRecord>> {
        let seen = look(&self.path(&name::of_lock(id)))?;
        Ok(Some(seen.filter(|record| record.id == id.as_str()).map(|record| self.shown(record))))
    }

    fn list(&self, prefix: &str) -> Answer<Vec<LockRecord>> {
        let names = self.directory.names()?.into_iter().filter(|name| name::is_lock(name));
        // One that somebody else has written into hides none of the others.
        let seen = names.filter_map(|name| look(&self.path(&name)).ok()?);
        let mut records: Vec<_> =
            seen.filter(|record| record.id.starts_with(prefix)).map(|record| self.shown(record)).collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(Some(records))
    }

    /// A record for people.
    fn shown(&self, record: Record) -> LockRecord {
        let id = LockId::from(record.id.as_str());
        let mut shown = LockRecord::new(id, record.owner, record.fence, record.lock_lease);
        shown.held_for = self.held_for(&record);
        shown.ended = record.ended;
        shown.note = record.note;
        shown
    }
}

/// Whether the instant in the record can be compared with ours.
fn has_our_clock(record: &Record) -> bool {
    record.boot == clock_id()
}

/// Refuses an id that no record has room for.
fn check_id(id: &LockId) -> Result<()> {
    if id.as_str().len() > LONGEST_ID {
        return Err(error(ErrorKind::InvalidInput, "the lock's id is too long").with("longest", LONGEST_ID));
    }
    Ok(())
}

impl LockManager for FileLocks {
    fn guarantees(&self) -> LockGuarantees {
        let expiry = match self.reach {
            Reach::Fleet => "the candidate's own clock, by how long a record has not changed",
            _ => "the machine's boot clock, which counts suspends",
        };
        // Whatever it is called on each machine, and another one after it was removed and made again.
        let authority = format!("file:{}", self.files.directory.id());
        let mut guarantees = LockGuarantees::new(authority, self.reach, expiry);
        guarantees.watch = self.watch.is_some() && self.reach == Reach::Machine;
        guarantees.durability = Durability::Synced;
        guarantees.poll = self.poll;
        guarantees
    }

    // The directory is made when it is opened, the files when their locks are taken for the first time.
    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.do_in(DIRECTORY, PATIENCE, |files| files.directory.check().map(Some)))
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            check_id(id)?;
            let lock_lease = lock_lease.min(LONGEST_LOCK_LEASE);
            let lane = name::of_lock(id);
            self.asked.lock().insert(id.clone(), self.hints.listen(lane.clone()));
            let asked = id.clone();
            let taking =
                self.do_in(&lane, patience(lock_lease), move |files| files.take(&asked, lock_lease, owner));
            let Some(taken) = taking.await? else { return Ok(None) };
            let lease = FileLease {
                files: Arc::clone(&self.files),
                threads: Arc::clone(&self.threads),
                lane,
                grant: Grant::new(id.clone(), owner, taken.fence, lock_lease),
                number: taken.number,
                beat: Arc::new(AtomicU64::new(taken.beat)),
            };
            Ok(Some(Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        let (id, lane) = (id.clone(), name::of_lock(id));
        let giving_up = move |files: &Files| {
            files.change(&id, None, |record| {
                let is_theirs = record.owner == owner && record.ended.is_none();
                is_theirs.then(|| Record { ended: Some(Ended::Clean), ..record.clone() })
            })
        };
        Box::pin(async move { self.do_in(&lane, PATIENCE, giving_up).await.map(drop) })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let asked = self.asked.lock().remove(id);
            let mut hint = asked.unwrap_or_else(|| self.hints.listen(name::of_lock(id)));
            if hint.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        let (id, lane) = (id.clone(), name::of_lock(id));
        Box::pin(async move { self.do_in(&lane, PATIENCE, move |files| files.inspect(&id)).await })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        let prefix = prefix.to_owned();
        Box::pin(self.do_in(DIRECTORY, PATIENCE, move |files| files.list(&prefix)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.threads.close() })
    }
}

/// A term's hold on a lock.
struct FileLease {
    files: Arc<Files>,
    threads: Arc<Threads>,
    lane: String,
    grant: Grant,
    /// The file in which it was taken.
    number: Number,
    /// The last one that is known to have been written: an earlier one in the file is that of a copy.
    beat: Arc<AtomicU64>,
}

impl FileLease {
    /// Changes the record under the condition that it is still this term's; answers whether it was.
    async fn change(
        &self,
        patience: Duration,
        change: impl Fn(&Files, &Record) -> Option<Record> + Clone + Send + 'static,
    ) -> Result<bool> {
        let Grant { lock_id, owner, fence, .. } = self.grant.clone();
        let (number, last) = (self.number, Arc::clone(&self.beat));
        let changing = move |files: &Files| {
            files.change(&lock_id, Some(number), |record| {
                let is_ours = record.is_running(owner, fence) && record.beat >= last.load(Ordering::Acquire);
                if is_ours { change(files, record) } else { None }
            })
        };
        let beat = do_in(&self.lane, patience, &self.threads, &self.files, changing).await?;
        if let Some(beat) = beat {
            self.beat.fetch_max(beat, Ordering::AcqRel);
        }
        Ok(beat.is_some())
    }

    fn patience(&self) -> Duration {
        patience(self.grant.lock_lease)
    }
}

impl Lease for FileLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let is_held = self.change(self.patience(), |files, record| {
                // Not after it has run out, even if nobody has taken it: only a fresh acquisition has a new fence.
                let is_in_time = has_our_clock(record) && files.held_for(record).is_some();
                is_in_time.then(|| Record { renewed: files.clock.now().as_nanos(), ..record.clone() })
            });
            Ok(if is_held.await? { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            let noting =
                move |_: &Files, record: &Record| Some(Record { note: note.clone(), ..record.clone() });
            self.change(self.patience(), noting).await.map(drop)
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let ending = move |_: &Files, record: &Record| {
                Some(Record { ended: Some(ended.clone()), ..record.clone() })
            };
            self.change(PATIENCE, ending).await.map(drop)
        })
    }
}
