//! The keeper: one thread per host, with a runtime of its own, in which locks are won, renewed and released.
//!
//! Its own, because a lease has to be renewed also while every worker thread of the host is blocked, and because a
//! socket that was opened on a saturated runtime does not answer on another one either. So lock managers are opened
//! and called in here only. It is the last thing in a host that ends: a lock can be released as long as it lives.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::candidate::{HandOver, Lock, Stop};
use super::hold::Hold;
use super::protocol::RunId;
use super::term::Term;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// Where the locks of a host are kept.
#[derive(Debug)]
pub struct Keeper {
    handle: Handle,
    clock: Clock,
    holds: TaskTracker,
    /// The process ends: what still holds a lock lets its lease run out.
    abandon: CancellationToken,
    /// Ends the thread.
    end: CancellationToken,
    /// Fires when the thread has ended.
    ended: CancellationToken,
}

/// How long the lock manager may take to be closed, and the thread to end. A manager that blocks the thread, or waits
/// for a store that stands still, is left behind.
const LAST_MOMENT: Duration = Duration::from_millis(500);

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the system gives no thread or no runtime.
    pub fn start() -> Result<Self> {
        let (end, ended) = (CancellationToken::new(), CancellationToken::new());
        let (told_to_end, at_end) = (end.clone(), ended.clone().drop_guard());
        let refused = |what, source| Error::new(ErrorKind::Internal, what).caused_by(source);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("bus-keeper")
            .build()
            .map_err(|source| refused("no runtime for the keeper of the locks", source))?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("bus-keeper".to_owned())
            .spawn(move || {
                let _at_end = at_end;
                runtime.block_on(told_to_end.cancelled());
                // Whatever a lock manager left behind must not keep the process from ending.
                runtime.shutdown_background();
            })
            .map_err(|source| refused("no thread for the keeper of the locks", source))?;
        Ok(Keeper {
            handle,
            clock: Clock::system(),
            holds: TaskTracker::new(),
            abandon: CancellationToken::new(),
            end,
            ended,
        })
    }

    /// A keeper in the present runtime, for tests whose time is paused. It has none of a keeper's independence.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn in_current_runtime(clock: Clock) -> Self {
        let ended = CancellationToken::new();
        // There is no thread.
        ended.cancel();
        Keeper {
            handle: Handle::current(),
            clock,
            holds: TaskTracker::new(),
            abandon: CancellationToken::new(),
            end: CancellationToken::new(),
            ended,
        }
    }

    /// Does something in the keeper's runtime: opening a lock manager, say.
    ///
    /// # Errors
    ///
    /// What `work` answers, and [`ErrorKind::Closed`] if the keeper has ended, or `work` panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.handle.spawn(async move {
            // Nobody may be waiting any more; then nobody wants to know.
            let _ = answer.send(work.await);
        });
        answered
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the keeper of the locks has ended")))
    }

    /// What makes the keeper forget its locks at once, as the end of the process would: none is given back.
    #[cfg(feature = "testing")]
    pub(crate) fn abandoning(&self) -> CancellationToken {
        self.abandon.clone()
    }

    /// Begins to compete for a lock.
    pub(super) fn enter(&self, lock: Lock, stop: Stop) -> Desk {
        let (starts_sender, starts) = mpsc::unbounded_channel();
        let (ends, ends_receiver) = mpsc::unbounded_channel();
        let hold =
            Hold::new(lock, stop, self.abandon.clone(), self.clock.clone(), starts_sender, ends_receiver);
        self.holds.spawn_on(hold.keep(), &self.handle);
        Desk { starts, ends }
    }

    /// Ends the keeper, last of all: waits until all locks have been given back, but no longer than `patience`; what
    /// is still held then is left to expire.
    pub async fn close(&self, patience: Duration) {
        self.close_after(tokio::time::sleep(patience), std::future::ready(())).await;
    }

    /// The same, with a patience that ends when that future does; and does `last` in the keeper's runtime when all locks
    /// have been given back: closing their manager, say.
    pub async fn close_after(
        &self,
        patience: impl Future<Output = ()>,
        last: impl Future<Output = ()> + Send + 'static,
    ) {
        self.holds.close();
        let given_back = tokio::select! {
            biased;
            () = self.holds.wait() => true,
            () = patience => false,
        };
        let end = async {
            if !given_back {
                self.abandon.cancel();
                self.holds.wait().await;
            }
            // That it panicked is no reason not to end.
            let _ = self.handle.spawn(last).await;
            self.end.cancel();
            self.ended.cancelled().await;
        };
        if tokio::time::timeout(LAST_MOMENT, end).await.is_err() {
            tracing::warn!(target: "bus::singleton", "the lock manager does not come to its end, and is left behind");
        }
        self.end.cancel();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A candidate's end of the two channels to the keeper.
pub(super) struct Desk {
    pub(super) starts: mpsc::UnboundedReceiver<Term>,
    ends: mpsc::UnboundedSender<(RunId, HandOver)>,
}

impl Desk {
    pub(super) fn ended(&self, run: RunId, hand_over: HandOver) {
        // A keeper that has ended has given the lock up already.
        let _ = self.ends.send((run, hand_over));
    }
}
