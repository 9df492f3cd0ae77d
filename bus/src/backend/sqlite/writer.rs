//! The writer: one thread per opened store that does everything that is asked of the file.
//!
//! Whatever waits when its turn comes rides together in one transaction, so that a hundred callers share one flush of
//! the disk; nobody waits for a batch to fill. Each caller gets its own answer. The queue is bounded, by what
//! it holds and by its bytes: when the disk cannot follow, callers wait before they are queued.
//!
//! # The life of a piece of work
//!
//! 1. A caller wraps what it wants into a [`Work`]: mostly a closure ([`Call`]), for claims a type of its own, since they
//!    are withdrawn differently. It is queued by [`Writer::submit`]; the caller awaits the answer. Until it is taken,
//!    dropping the caller's future withdraws it.
//! 2. The thread takes the first one in the queue and lets it have a `glance`: whoever only reads, or finds by reading
//!    that there is nothing to do, is answered without a turn to write.
//! 3. Otherwise the thread waits at the [gate](super::gate) for this store's turn among all processes, then
//!    [gathers](super::batch::gather) what has queued up meanwhile. Each is asked to `take`: it is still wanted, and from
//!    here on cannot be withdrawn.
//! 4. All of them `run` in one transaction, each with the same [`Tx`]: the connection, the two clocks as read when the
//!    transaction began, and notes. Notes are names found or made (queues' numbers), which go into [`Known`], what the
//!    connection remembers, only if the commit succeeds; and whom it concerns, which become the batch's
//!    [`Effects`](super::transaction::Effects). If one item fails, all is rolled back and run again, each in a savepoint
//!    of its own: work has to bear being run twice.
//! 5. After the commit each is `answer`ed, those who wait in this process for what has changed are woken, and the
//!    [`Teller`] tells other processes.
//!
//! # When something is wrong with the file
//!
//! Before each turn, again when the turn has come, and once more between commit and answer, the thread looks whether the
//! file and its two companions are where they were ([`place`](super::place)). What follows from a failure is decided in one
//! place ([`opened`](super::opened)):
//!
//! | what | then |
//! |--|--|
//! | the file is away | nothing is done until it is back; see [`Writer::lost`] |
//! | its log or the log's index is away or another one | what only those can see who have them open goes into the file; then the store is lost |
//! | the disk failed | the log goes into the file, which is opened anew; until then nothing is written, so that no answer rests on what may not be on the disk |
//! | the disk is full | the [reserve](super::reserve) is given up: what ends or extends goes on |
//! | the file is damaged, or was brought up to date by a newer program | the store is lost: every caller gets the error, and [`Writer::lost`] answers it |
//! | any other | the batch's callers get the error, and that is all |
//!
//! A panic on the thread, which is a defect, is the end of the store too: what was under way is answered as an unknown
//! outcome, and [`Writer::lost`] answers why.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::error::{broken_off, closed, error, panicked};
use super::file::StoreFile;
use super::opened::Opened;
use super::place::Identity;
use super::thread::Thread;
use super::transaction::Tx;
use super::wake::Wake;
use super::work::{Call, Work};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// How many pieces of work may wait.
const QUEUE: usize = 4096;
/// How many bytes may wait.
const QUEUE_BYTES: u32 = 64 << 20;
/// What has fewer bytes is not counted: of those, no more than the queue is long can wait.
const COUNTED: usize = 4 << 10;
/// How long `close` waits for the thread. It may be waiting for a process that was frozen while it wrote.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a host looks after the file of a store that it wants nothing else of.
const LOOK: Duration = Duration::from_secs(1);

/// What is queued.
pub(super) enum Message {
    Work(Box<dyn Work>),
    Stop,
}

/// What a writer is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Messages,
    Locks,
}

impl Role {
    fn thread_name(self) -> &'static str {
        match self {
            Role::Messages => "bus-sqlite",
            Role::Locks => "bus-sqlite-locks",
        }
    }
}

/// Who opens which file: one at a time.
static OPENINGS: LazyLock<Mutex<HashMap<PathBuf, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

fn turn_to_open(path: &Path) -> Arc<Semaphore> {
    let mut openings = OPENINGS.lock();
    openings.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = openings.get(path).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::new(Semaphore::new(1));
    openings.insert(path.to_owned(), Arc::downgrade(&turn));
    turn
}

/// The writer thread, as seen by those who ask it.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    closed: CancellationToken,
    /// The same, asked for each piece of work: a token has a lock inside.
    closing: AtomicBool,
    /// Fires when the thread has ended.
    ended: CancellationToken,
    /// Why the store cannot be used any more.
    lost: watch::Receiver<Option<Error>>,
    identity: Identity,
    wake: Arc<Wake>,
}

impl Writer {
    /// Opens the file on a thread of its own.
    ///
    /// Dropped before that is done, it leaves the thread behind until it is: a process that was frozen while it wrote may
    /// be what it waits for. Whoever opens the same file meanwhile waits without a thread, so that there is one, however
    /// often it is tried.
    pub(super) async fn open(config: Config, clock: Clock, role: Role) -> Result<Arc<Self>> {
        let turn = turn_to_open(&config.path).acquire_owned().await.map_err(|_| closed())?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (report, opened) = oneshot::channel();
        let (tell_lost, lost) = watch::channel(None);
        let ended = CancellationToken::new();
        let at_end = ended.clone().drop_guard();
        let runtime = Handle::try_current().ok();
        let run = move || {
            let _at_end = at_end;
            // A clock that tests advance can be read within its runtime only.
            let _context = runtime.as_ref().map(Handle::enter);
            let opened = StoreFile::open(&config);
            drop(turn);
            let file = match opened {
                Ok(file) => file,
                Err(e) => return drop(report.send(Err(e))),
            };
            let identity = file.identity().clone();
            let wake = Wake::open(identity.path());
            if report.send(Ok((identity.clone(), Arc::clone(&wake)))).is_ok() {
                let told = tell_lost.clone();
                let thread = Thread::new(Opened::new(config, role, file, tell_lost), clock, wake);
                if catch_unwind(AssertUnwindSafe(|| thread.serve(waiting))).is_err() {
                    let error = panicked(identity.path());
                    tracing::error!(target: "bus::sqlite", event = "store.lost", file = %identity.path().display(), error = ?error, "the store is not used any more");
                    told.send_replace(Some(error));
                }
            }
        };
        std::thread::Builder::new()
            .name(role.thread_name().to_owned())
            .spawn(run)
            .map_err(|e| error(ErrorKind::Unavailable, "cannot start the writer's thread").caused_by(e))?;
        let (identity, wake) = opened.await.unwrap_or_else(|_| Err(broken_off()))?;
        let (closed, closing) = (CancellationToken::new(), AtomicBool::new(false));
        let room = Arc::new(Semaphore::new(usize::try_from(QUEUE_BYTES).unwrap_or(usize::MAX)));
        Ok(Arc::new(Writer { queue, room, closed, closing, ended, lost, identity, wake }))
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Fires when the store is closed.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Waits until the store cannot be used any more by this process, whatever comes: it is damaged, another version has
    /// taken it over, its file has been away for too long, or its thread has panicked.
    pub(super) async fn lost(&self) -> Error {
        let mut lost = self.lost.clone();
        let looks = async {
            loop {
                tokio::time::sleep(LOOK).await;
                // Has the thread look after the file, though nobody wants anything else of it.
                let _ = self.read(|_| Ok(())).await;
            }
        };
        tokio::select! {
            Ok(told) = lost.wait_for(Option::is_some) => told.clone().unwrap_or_else(closed),
            error = looks => error,
        }
    }

    /// Waits until so many bytes may be queued. What has more than the queue ever takes waits until it is empty.
    pub(super) async fn room(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>> {
        if bytes < COUNTED {
            return Ok(None);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(QUEUE_BYTES);
        // Closed by nobody: those who wait when the store is closed learn of it when they submit.
        Arc::clone(&self.room).acquire_many_owned(bytes).await.map(Some).map_err(|_| closed())
    }

    /// Queues a piece of work; waits while the queue is full.
    pub(super) async fn submit(&self, work: Box<dyn Work>) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(closed());
        }
        match self.queue.send(Message::Work(work)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.why_it_ended().await),
        }
    }

    /// Why the thread takes nothing more. Called when it has ended, or is about to.
    async fn why_it_ended(&self) -> Error {
        match self.lost.clone().wait_for(Option::is_some).await {
            Ok(lost) => lost.clone().unwrap_or_else(closed),
            Err(_) => closed(),
        }
    }

    /// The answer to a piece of work, should there be none.
    pub(super) async fn answered<T>(&self, answer: Result<Result<T>, RecvError>) -> Result<T> {
        match answer {
            Ok(answer) => answer,
            Err(_) => Err(broken_off().caused_by(self.why_it_ended().await)),
        }
    }

    /// Has `run` done within a write transaction, and answers what it answered.
    pub(super) async fn write<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (work, answer) = Call::writing(run);
        self.submit(work).await?;
        self.answered(answer.await).await
    }

    /// Has `run` done, which only reads.
    pub(super) async fn read<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (work, answer) = Call::reading(run);
        self.submit(work).await?;
        self.answered(answer.await).await
    }

    /// Takes no more work, has the thread do what is queued, and waits for its end.
    pub(super) async fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.closed.cancel();
        let end = async {
            // An error says that the thread has ended already.
            let _ = self.queue.send(Message::Stop).await;
            self.ended.cancelled().await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, end).await.is_err() {
            tracing::warn!(file = %self.identity.path().display(), "the writer is still waiting for its turn; left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::StoreUrl;

    /// Whoever does not hear of it goes on for ever with a store that does nothing.
    #[tokio::test]
    async fn a_panic_on_the_thread_is_the_end_of_the_store_and_is_said() {
        let directory = std::env::temp_dir().join(format!("bus-writer-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let url = StoreUrl::parse(&format!("sqlite://{}/bus.db", directory.display())).unwrap();
        let config = Config::from_url(&url, true).unwrap();
        let writer = Writer::open(config, Clock::system(), Role::Messages).await.unwrap();
        writer.write(|_| Ok(())).await.unwrap();
        let under_way = writer.write(|_| -> rusqlite::Result<()> { panic!("on purpose") }).await.unwrap_err();
        assert_eq!(under_way.kind(), ErrorKind::OutcomeUnknown, "{under_way:?}");
        let lost = tokio::time::timeout(Duration::from_secs(20), writer.lost()).await.expect("it is noticed");
        assert!(lost.to_string().contains("panicked"), "{lost}");
        assert!(!lost.is_transient(), "waiting does not help");
        let later = writer.write(|_| Ok(())).await.unwrap_err();
        assert_eq!(later.kind(), ErrorKind::Unavailable, "{later:?}");
        writer.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }
}
