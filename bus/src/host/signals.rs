//! SIGTERM and Ctrl-C, heard on a thread of their own.
//!
//! A runtime whose every worker thread is blocked by a handler delivers no signal and fires no timer. A process that was
//! asked to end has to end all the same, so this thread has a small runtime for itself, and the last word.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::board::Board;
use crate::error::{Error, ErrorKind, Result};

/// How long after the grace period the process is ended from here. All steps of a shutdown take less, if there is a
/// thread to take them (8.5 s at most); and the promise is 10 s.
const BEYOND: Duration = Duration::from_secs(9);

/// A century, which a clock can still add up.
pub(super) const LONGEST_GRACE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Hears signals for as long as it lives.
pub(super) struct Listener {
    /// Fires at the first signal.
    pub(super) asked: CancellationToken,
    /// Fires at the second.
    pub(super) hurried: CancellationToken,
    /// Shows what runs, for the last words.
    pub(super) board: Arc<OnceLock<Board>>,
    left: CancellationToken,
    over: DropGuard,
}

impl Listener {
    /// Begins to listen; `grace` is how long a shutdown may wait for what runs.
    pub(super) async fn start(grace: Duration) -> Result<Self> {
        let [asked, hurried, left, over] = [(); 4].map(|()| CancellationToken::new());
        let board = Arc::new(OnceLock::new());
        let thread = Thread {
            grace,
            asked: asked.clone(),
            hurried: hurried.clone(),
            left: left.clone(),
            over: over.clone(),
            board: Arc::clone(&board),
        };
        let (tell, told) = oneshot::channel();
        let end = asked.clone();
        let spawned = std::thread::Builder::new().name("bus-signals".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| thread.run(tell))).is_err() {
                // Nobody hears a signal any more: better to end now than never.
                end.cancel();
            }
        });
        spawned.map_err(failed)?;
        told.await.map_err(failed)??;
        Ok(Listener { asked, hurried, board, left, over: over.drop_guard() })
    }
}

impl Listener {
    /// Goes on until the process has ended, and ends it if that takes too long, also where nobody has asked for that. For
    /// when something may be left on the runtime's threads, which the runtime itself waits for, however long it takes:
    /// blocking work of a run that was dropped, the address of a server that is still being looked up.
    pub(super) fn stay(self) {
        self.left.cancel();
        self.over.disarm();
    }
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "cannot listen for signals").caused_by(source)
}

/// What the thread works with.
struct Thread {
    grace: Duration,
    asked: CancellationToken,
    hurried: CancellationToken,
    left: CancellationToken,
    over: CancellationToken,
    board: Arc<OnceLock<Board>>,
}

impl Thread {
    fn run(self, tell: oneshot::Sender<Result<()>>) {
        // That nobody waits for the answer any more changes nothing.
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(failed(error)))),
        };
        runtime.block_on(async {
            match Signals::listen() {
                Ok(signals) => {
                    drop(tell.send(Ok(())));
                    self.listen(signals).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
    }

    async fn listen(&self, mut signals: Signals) {
        let given = tokio::select! {
            () = self.over.cancelled() => return,
            () = signals.next() => {
                self.asked.cancel();
                // As far away as can be said, if somebody wants to wait for ever.
                self.grace.min(LONGEST_GRACE) + BEYOND
            }
            // The host has come to its end without being asked to.
            () = self.left.cancelled() => BEYOND,
        };
        let mut end = Instant::now() + given;
        loop {
            tokio::select! {
                () = self.over.cancelled() => return,
                () = tokio::time::sleep_until(end) => self.end_process(),
                () = signals.next() => {
                    self.hurried.cancel();
                    end = end.min(Instant::now() + BEYOND);
                }
            }
        }
    }

    /// The locks of singletons are left to their leases, and messages to those of their claims.
    fn end_process(&self) {
        let running = self.board.get().map(Board::running).unwrap_or_default();
        let what = match running.is_empty() {
            true => "blocking work that a dropped run has left behind".to_owned(),
            false => running.join("; "),
        };
        last_words(&format!(
            "the process was asked to end and does not come to it, since its threads are blocked by {what}: ending it"
        ));
    }
}

/// Ends the process.
pub(super) fn last_words(text: &str) -> ! {
    // A subscriber may panic, and so would `eprintln!` where nobody reads any more: the process ends all the same.
    let _ = catch_unwind(|| tracing::error!(target: "bus::host", "{text}"));
    // The subscriber may not get to write any.
    let _ = writeln!(std::io::stderr(), "bus: {text}");
    std::process::exit(1)
}

/// SIGTERM and Ctrl-C.
struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            term: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn listen() -> Result<Self> {
        Ok(Signals {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
