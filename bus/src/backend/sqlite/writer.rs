//! The writer: one thread per opened store that does everything that is asked of the file.
//!
//! Whatever waits when its turn comes rides together in one transaction, so that a hundred callers share one flush of
//! the disk; nobody waits for a batch to fill. Each caller gets its own answer. The queue is bounded: when the disk
//! cannot follow, callers wait before they are queued.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::error::{closed, error, of_commit, of_statement, replaced};
use super::file::{Identity, StoreFile};
use super::transaction::{Effects, Known, Tx};
use super::wake::{Teller, Wake};
use super::work::{Call, Work};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// How many pieces of work may wait.
const QUEUE: usize = 4096;
/// How many ride together at most.
const BATCH: usize = 2048;
/// How many bytes they may write together: a transaction is held in memory until its commit.
const BATCH_BYTES: usize = 32 << 20;
/// From how many callers on waking them one by one from another thread costs more than handing them over.
const MANY: usize = 8;
/// How long `close` waits for the thread. It may be waiting for a process that was frozen while it wrote.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

enum Message {
    Work(Box<dyn Work>),
    Stop,
}

/// The writer thread, as seen by those who ask it.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    closed: CancellationToken,
    /// The same, asked for each piece of work: a token has a lock inside.
    closing: AtomicBool,
    /// Fires when the thread has ended.
    ended: CancellationToken,
    identity: Identity,
    wake: Arc<Wake>,
}

impl Writer {
    /// Opens the file on a thread of its own, named `name`.
    pub(super) async fn open(config: Config, clock: Clock, name: &str) -> Result<Arc<Self>> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (report, opened) = oneshot::channel();
        let ended = CancellationToken::new();
        let at_end = ended.clone().drop_guard();
        let runtime = Handle::try_current().ok();
        let run = move || {
            let _at_end = at_end;
            // A clock that tests advance can be read within its runtime only.
            let _context = runtime.as_ref().map(Handle::enter);
            let file = match StoreFile::open(&config) {
                Ok(file) => file,
                Err(e) => return drop(report.send(Err(e))),
            };
            let identity = file.identity().clone();
            let wake = Wake::open(identity.path());
            if report.send(Ok((identity.clone(), Arc::clone(&wake)))).is_ok() {
                Thread::new(config, clock, file, identity, wake).serve(waiting);
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|e| error(ErrorKind::Unavailable, "cannot start the writer's thread").caused_by(e))?;
        let (identity, wake) = opened.await.unwrap_or_else(|_| Err(closed()))?;
        let (closed, closing) = (CancellationToken::new(), AtomicBool::new(false));
        Ok(Arc::new(Writer { queue, closed, closing, ended, identity, wake }))
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

    /// Queues a piece of work; waits while the queue is full.
    pub(super) async fn submit(&self, work: Box<dyn Work>) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.queue.send(Message::Work(work)).await.map_err(|_| closed())
    }

    /// Has `run` done within a write transaction, and answers what it answered.
    pub(super) async fn write<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (work, answer) = Call::writing(run);
        self.submit(work).await?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Has `run` done, which only reads.
    pub(super) async fn read<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (work, answer) = Call::reading(run);
        self.submit(work).await?;
        answer.await.unwrap_or_else(|_| Err(closed()))
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

/// The thread's own state.
struct Thread {
    config: Config,
    clock: Clock,
    /// `None` after the disk has failed: opened anew for the next batch.
    file: Option<StoreFile>,
    identity: Identity,
    known: Known,
    wake: Arc<Wake>,
    teller: Teller,
    /// That of whoever opened the store.
    runtime: Option<Handle>,
}

type Batch = Vec<Box<dyn Work>>;

/// What became of a batch that was committed: for each item, why it failed alone.
struct Committed {
    failures: Vec<Option<Error>>,
    effects: Effects,
}

/// Why nothing of a batch was committed.
enum Refused {
    /// One item failed, so that the others may yet succeed without it.
    Item(Error),
    /// All have failed alike.
    All(Error),
}

impl Thread {
    fn new(config: Config, clock: Clock, file: StoreFile, identity: Identity, wake: Arc<Wake>) -> Self {
        let teller = Teller::of(&wake);
        let runtime = Handle::try_current().ok();
        Thread { config, clock, file: Some(file), identity, known: Known::default(), wake, teller, runtime }
    }

    fn serve(mut self, mut waiting: mpsc::Receiver<Message>) {
        while let Some(Message::Work(first)) = self.next(&mut waiting) {
            if self.serve_batch(first, &mut waiting) {
                break;
            }
        }
        self.teller.tell();
        waiting.close();
        while let Ok(message) = waiting.try_recv() {
            if let Message::Work(work) = message {
                work.answer(Err(closed()));
            }
        }
    }

    /// The next message. Before a wait, others are told what is still to be told.
    fn next(&mut self, waiting: &mut mpsc::Receiver<Message>) -> Option<Message> {
        if let Ok(message) = waiting.try_recv() {
            return Some(message);
        }
        self.teller.tell();
        waiting.blocking_recv()
    }

    /// Does `first` and what has queued up behind it by the time of its turn; `true` if that was the last.
    fn serve_batch(&mut self, mut first: Box<dyn Work>, waiting: &mut mpsc::Receiver<Message>) -> bool {
        if let Err(e) = self.make_ready() {
            first.answer(Err(e));
            return false;
        }
        let Some(file) = &self.file else { return false };
        let mut tx = Tx::new(&file.connection, &mut self.known, &self.clock, file.boot);
        match first.glance(&mut tx) {
            Ok(false) => {}
            Ok(true) => {
                first.answer(Ok(()));
                return false;
            }
            Err(e) => {
                first.answer(Err(of_statement(e)));
                return false;
            }
        }
        drop(tx);
        let passage = file.gate.pass();
        let (mut batch, stop) = gather(first, waiting);
        if batch.is_empty() {
            return stop;
        }
        let done = commit(file, &mut self.known, &self.clock, &mut batch);
        drop(passage);
        self.answer(batch, done);
        stop
    }

    /// Opens the file anew after a failure, and makes sure that it is still the same.
    fn make_ready(&mut self) -> Result<()> {
        if self.identity.is_replaced() {
            return Err(replaced(self.identity.path()));
        }
        if self.file.is_none() {
            let file = StoreFile::open(&self.config)?;
            if *file.identity() != self.identity {
                return Err(replaced(self.identity.path()));
            }
            self.file = Some(file);
        }
        Ok(())
    }

    fn answer(&mut self, batch: Batch, done: Result<Committed, Error>) {
        match done {
            Ok(Committed { failures, effects }) => {
                let ends = failures.into_iter().map(|failure| failure.map_or(Ok(()), Err));
                self.send_off(Answers(batch.into_iter().zip(ends).collect()));
                for topic in effects.topics() {
                    self.wake.tell_here(topic);
                }
                self.teller.add(&effects);
            }
            Err(e) => {
                // Whatever it was: a fresh connection knows no more than what is on the disk.
                self.file = None;
                self.send_off(Answers(batch.into_iter().map(|work| (work, Err(e.clone()))).collect()));
            }
        }
    }

    /// Wakes the callers: a few from here, many from within their runtime, where waking is cheap.
    fn send_off(&self, answers: Answers) {
        match &self.runtime {
            Some(runtime) if answers.0.len() >= MANY => drop(runtime.spawn(async move { drop(answers) })),
            _ => drop(answers),
        }
    }
}

/// Answers to a batch, given when dropped: even by a runtime that is shut down before it has come to it.
struct Answers(Vec<(Box<dyn Work>, Result<()>)>);

impl Drop for Answers {
    fn drop(&mut self) {
        for (work, end) in self.0.drain(..) {
            work.answer(end);
        }
    }
}

/// Takes what is queued and still wanted; the second answer is whether the end of the queue was reached.
fn gather(first: Box<dyn Work>, waiting: &mut mpsc::Receiver<Message>) -> (Batch, bool) {
    let mut weight = first.weight();
    let mut batch = vec![first];
    let mut stop = false;
    while batch.len() < BATCH && weight < BATCH_BYTES {
        match waiting.try_recv() {
            Ok(Message::Work(work)) => {
                weight += work.weight();
                batch.push(work);
            }
            Ok(Message::Stop) => {
                stop = true;
                break;
            }
            Err(_) => break,
        }
    }
    batch.retain_mut(|work| work.take());
    (batch, stop)
}

/// Commits a batch: all of it at once, and if something fails, again with each item in a savepoint of its own.
fn commit(file: &StoreFile, known: &mut Known, clock: &Clock, batch: &mut Batch) -> Result<Committed> {
    let mut attempt = |careful| {
        let mut tx = Tx::new(&file.connection, known, clock, file.boot);
        let result = attempt(&file.connection, &mut tx, batch, careful);
        match result {
            Ok(failures) => Ok(Committed { failures, effects: tx.committed() }),
            Err(refused) => {
                drop(tx);
                roll_back(&file.connection);
                Err(refused)
            }
        }
    };
    match attempt(false) {
        Err(Refused::Item(_)) => attempt(true),
        other => other,
    }
    .map_err(|(Refused::Item(e) | Refused::All(e))| e)
}

fn attempt(
    connection: &Connection,
    tx: &mut Tx<'_>,
    batch: &mut Batch,
    careful: bool,
) -> Result<Vec<Option<Error>>, Refused> {
    let all = |e| Refused::All(of_statement(e));
    run(connection, "BEGIN IMMEDIATE").map_err(all)?;
    // Only now is it our turn: the time before that may have been long.
    tx.read_clocks();
    let mut failures = Vec::with_capacity(batch.len());
    for work in batch.iter_mut() {
        let failure = if careful {
            run_alone(connection, tx, work.as_mut())?
        } else {
            work.run(tx)
                .map_err(|e| if is_everyones(&e) { all(e) } else { Refused::Item(of_statement(e)) })?;
            None
        };
        failures.push(failure);
    }
    tx.finish().map_err(all)?;
    #[cfg(feature = "failpoints")]
    super::failpoint::reached();
    run(connection, "COMMIT").map_err(|e| Refused::All(of_commit(e)))?;
    Ok(failures)
}

/// Runs one item so that its failure leaves the others untouched.
fn run_alone(
    connection: &Connection,
    tx: &mut Tx<'_>,
    work: &mut dyn Work,
) -> Result<Option<Error>, Refused> {
    let all = |e| Refused::All(of_statement(e));
    run(connection, "SAVEPOINT item").map_err(all)?;
    let failure = match work.run(tx) {
        Ok(()) => None,
        Err(e) if is_everyones(&e) => return Err(all(e)),
        Err(e) => {
            run(connection, "ROLLBACK TO item").map_err(all)?;
            tx.forget();
            Some(of_statement(e))
        }
    };
    run(connection, "RELEASE item").map_err(all)?;
    Ok(failure)
}

/// Whether an error is not the item's own: SQLite has then rolled back the whole transaction, or may have.
fn is_everyones(e: &rusqlite::Error) -> bool {
    matches!(
        e.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::OperationInterrupted
        )
    )
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(e) = run(connection, "ROLLBACK")
    {
        tracing::warn!(error = %e, "a transaction could not be rolled back");
    }
}
