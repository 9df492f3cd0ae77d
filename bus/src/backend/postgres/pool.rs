//! A few sessions, shared by all who have something to ask.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::error::{Failure, closed, error};
use super::session::{Durability, Session};
use crate::error::{Error, ErrorKind, Result};
use crate::reconnect::Outage;

/// Sessions of one kind. They are opened when needed, and again after they were lost.
pub(super) struct Pool {
    config: Arc<Config>,
    durability: Durability,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    closed: CancellationToken,
    outage: Mutex<Option<Outage>>,
}

impl Pool {
    pub(super) fn new(config: Arc<Config>, durability: Durability, connections: usize) -> Arc<Self> {
        Arc::new(Pool {
            config,
            durability,
            permits: Arc::new(Semaphore::new(connections)),
            idle: Mutex::default(),
            closed: CancellationToken::new(),
            outage: Mutex::default(),
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Fires when the pool is closed.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// A session for one call; waits while all are in use. The server is not asked for anything yet.
    pub(super) async fn borrow(self: &Arc<Self>) -> Result<Borrowed> {
        let waiting = tokio::time::timeout(self.config.deadline, Arc::clone(&self.permits).acquire_owned());
        let permit = match waiting.await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(closed()),
            Err(_) => {
                return Err(error(
                    ErrorKind::Timeout,
                    "all connections are busy: raise connections=… in the URL",
                ));
            }
        };
        match self.take_idle() {
            Some(session) => Ok(Borrowed { pool: Arc::clone(self), session, _permit: permit }),
            None => self.connect(permit).await,
        }
    }

    /// A new session. Who waits for it may give up before it is there: it then serves the next.
    async fn connect(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Result<Borrowed> {
        let (give, got) = oneshot::channel();
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            let opened = pool.open().await;
            let borrowed = opened.map(|session| Borrowed { pool, session, _permit: permit });
            if let Err(Ok(unwanted)) = give.send(borrowed) {
                // Nothing was asked of it: it cannot fail.
                let _ = unwanted.end(Ok(()));
            }
        });
        got.await.unwrap_or_else(|_| {
            Err(error(ErrorKind::Internal, "connecting came to a sudden end, which is a defect"))
        })
    }

    fn take_idle(&self) -> Option<Session> {
        let mut idle = self.idle.lock();
        idle.retain(|session| !session.is_closed());
        idle.pop()
    }

    async fn open(&self) -> Result<Session> {
        let opened = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(closed()),
            opened = Session::open(&self.config, self.durability, None) => opened,
        };
        match &opened {
            Ok(_) => self.reached(),
            Err(e) => self.not_reached(e),
        }
        opened
    }

    fn reached(&self) {
        if let Some(outage) = self.outage.lock().take() {
            tracing::info!(target: "bus::postgres", server = self.config.place(), outage = ?outage.length(), "connected again");
        }
    }

    fn not_reached(&self, why: &Error) {
        let mut outage = self.outage.lock();
        let outage = outage.get_or_insert_with(Outage::begin);
        if outage.is_due() {
            tracing::warn!(target: "bus::postgres", error = ?why, since = ?outage.length(), "cannot connect; trying again for as long as it takes");
        }
    }

    /// After a call without an answer no connection is trusted that was made before.
    fn distrust(&self) {
        drop(std::mem::take(&mut *self.idle.lock()));
    }

    /// Gives out no more sessions, and closes those that are idle.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.permits.close();
        self.distrust();
    }
}

/// A session that is in use. It is closed when this is dropped, unless it was [given back](Borrowed::end).
pub(super) struct Borrowed {
    pool: Arc<Pool>,
    session: Session,
    _permit: OwnedSemaphorePermit,
}

impl Deref for Borrowed {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Borrowed {
    /// Gives the session back, if what was done with it has left it usable.
    pub(super) fn end<T>(self, answer: Result<T, Failure>) -> Result<T, Failure> {
        let Borrowed { pool, session, _permit } = self;
        match &answer {
            Err(Failure::Silent(_)) => pool.distrust(),
            Err(failure) if !failure.is_clean() => {}
            _ if pool.closed.is_cancelled() => {}
            _ => pool.idle.lock().push(session),
        }
        answer
    }
}

/// Gives a call to the server its time.
pub(super) async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(time, call).await.unwrap_or(Err(Failure::Silent(time)))
}
