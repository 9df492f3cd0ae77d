//! Pieces of work for the writer thread.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::transaction::Tx;
use crate::error::{Error, ErrorKind, Result};

/// Something to be done on the writer thread, together with whatever else is waiting then.
///
/// It may run more than once: when another piece of work fails, the transaction is rolled back and done again.
pub(super) trait Work: Send {
    /// Whether it is still wanted. From here on it cannot be withdrawn.
    fn take(&mut self) -> bool;

    /// Tries to be done by reading alone, without a turn at the gate; `true` if it is.
    fn glance(&mut self, _tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        Ok(false)
    }

    /// Does it, within the write transaction.
    fn run(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()>;

    /// Answers the caller: what `run` has found, or why it was not done.
    fn answer(self: Box<Self>, end: Result<()>);

    /// About how many bytes it writes.
    fn weight(&self) -> usize {
        0
    }

    /// Whether it adds to what is in the store, so that it has to wait while the disk is full.
    fn adds(&self) -> bool {
        false
    }
}

/// A closure as a piece of work. Withdrawn when the caller's future is dropped.
pub(super) struct Call<T, F> {
    run: F,
    reads_only: bool,
    weight: usize,
    adds: bool,
    /// Given back when it is done, or withdrawn.
    _room: Option<OwnedSemaphorePermit>,
    found: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Call<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send,
{
    /// Work that writes.
    pub(super) fn writing(run: F) -> (Box<Self>, oneshot::Receiver<Result<T>>) {
        let (reply, answer) = oneshot::channel();
        let call = Call { run, reads_only: false, weight: 0, adds: false, _room: None, found: None, reply };
        (Box::new(call), answer)
    }

    /// Work that only reads: it does not wait for its turn to write.
    pub(super) fn reading(run: F) -> (Box<Self>, oneshot::Receiver<Result<T>>) {
        let (mut call, answer) = Call::writing(run);
        call.reads_only = true;
        (call, answer)
    }

    /// Says that it adds to what is in the store.
    pub(super) fn adding(mut self: Box<Self>) -> Box<Self> {
        self.adds = true;
        self
    }

    /// Says how many bytes it writes, and takes the room that it has for them.
    pub(super) fn weighing(
        mut self: Box<Self>,
        bytes: usize,
        room: Option<OwnedSemaphorePermit>,
    ) -> Box<Self> {
        self.weight = bytes;
        self._room = room;
        self
    }
}

impl<T, F> Work for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> rusqlite::Result<T> + Send,
{
    fn take(&mut self) -> bool {
        !self.reply.is_closed()
    }

    fn glance(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        if self.reads_only {
            self.found = Some((self.run)(tx)?);
        }
        Ok(self.reads_only)
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.found = Some((self.run)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, end: Result<()>) {
        let Call { found, reply, .. } = *self;
        let answer = end.and_then(|()| found.ok_or_else(not_run));
        // The caller may have gone by now.
        let _ = reply.send(answer);
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn adds(&self) -> bool {
        self.adds
    }
}

/// A transaction was committed without having run this: our own mistake.
pub(super) fn not_run() -> Error {
    super::error::error(ErrorKind::Internal, "the writer did not run what it was given")
}
