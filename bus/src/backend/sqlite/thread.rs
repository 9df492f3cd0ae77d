//! The thread behind a [writer](super::writer): takes its turns, and answers.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::batch::{Batch, Committed, Failure, commit, gather};
use super::error::{closed, tampered_meanwhile};
use super::opened::Opened;
use super::schema;
use super::transaction::{Known, Tx};
use super::wake::{Teller, Wake};
use super::work::Work;
use super::writer::Message;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// From how many callers on waking them one by one from another thread costs more than handing them over.
const MANY: usize = 8;

/// The thread's own state.
pub(super) struct Thread {
    store: Opened,
    clock: Clock,
    known: Known,
    wake: Arc<Wake>,
    teller: Teller,
    /// That of whoever opened the store.
    runtime: Option<Handle>,
}

impl Thread {
    pub(super) fn new(store: Opened, clock: Clock, wake: Arc<Wake>) -> Self {
        let teller = Teller::of(&wake);
        Thread { store, clock, known: Known::default(), wake, teller, runtime: Handle::try_current().ok() }
    }

    pub(super) fn serve(mut self, mut waiting: mpsc::Receiver<Message>) {
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
        let done = match self.glance(first.as_mut()) {
            Ok(false) => return self.serve_turn(first, waiting),
            Ok(true) => Ok(()),
            Err(e) => Err(e),
        };
        first.answer(done);
        false
    }

    fn glance(&mut self, first: &mut dyn Work) -> Result<bool> {
        let file = self.store.ready()?;
        let mut tx = Tx::new(&file.connection, &mut self.known, &self.clock, file.boot);
        let glanced = first.glance(&mut tx);
        drop(tx);
        glanced.map_err(|e| {
            // Should the tables have been changed beneath us, what failed is only a sequel.
            let changed = self.store.file().and_then(|file| schema::check_unchanged(&file.connection));
            self.store.heed(changed.map_or_else(Failure::from, |()| Failure::of_statement(e)))
        })
    }

    fn serve_turn(&mut self, first: Box<dyn Work>, waiting: &mut mpsc::Receiver<Message>) -> bool {
        let passage = match self.store.pass() {
            Ok(passage) => passage,
            Err(e) => {
                first.answer(Err(e));
                return false;
            }
        };
        let (batch, stop) = gather(first, waiting);
        let (mut batch, refused) = self.store.admit(batch);
        let done = (!batch.is_empty()).then(|| self.commit(&mut batch));
        drop(passage);
        if let Some((refused, error)) = refused {
            self.send_off(Answers::alike(refused, &error));
        }
        if let Some(done) = done {
            self.answer(batch, done);
        }
        stop
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<Committed, Failure> {
        let file = self.store.file()?;
        let committed = commit(file, &mut self.known, &self.clock, batch)?;
        // In a log that nobody else can find it would be lost with this process.
        file.look().map(|_| committed).map_err(|_| tampered_meanwhile().into())
    }

    fn answer(&mut self, batch: Batch, done: Result<Committed, Failure>) {
        match done {
            Ok(Committed { failures, effects }) => {
                let ends = failures.into_iter().map(|failure| failure.map_or(Ok(()), Err));
                self.send_off(Answers(batch.into_iter().zip(ends).collect()));
                for topic in effects.topics() {
                    self.wake.tell_here(topic);
                }
                self.teller.add(&effects);
            }
            Err(failure) => {
                let error = self.store.heed(failure);
                self.send_off(Answers::alike(batch, &error));
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

impl Answers {
    fn alike(batch: Batch, error: &Error) -> Self {
        Answers(batch.into_iter().map(|work| (work, Err(error.clone()))).collect())
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        for (work, end) in self.0.drain(..) {
            work.answer(end);
        }
    }
}
