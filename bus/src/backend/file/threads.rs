//! The threads that touch the files: a file system that hangs keeps those who ask it about one lock, and nobody else.
//!
//! Jobs have a lane each: those about one lock are done one after the other, those about several side by side, so that a
//! slow disk flushes for many at once. A call that hangs keeps its lane and one thread; what is asked for in that lane
//! meanwhile waits, and is forgotten when whoever asked has given up. So there are never more threads than locks.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::error::{closed, error};
use crate::error::{ErrorKind, Result};

/// How many threads there are at most. Where so many locks hang, it is the file system that does.
const MOST: usize = 256;
/// When a thread without a job ends.
const IDLE: Duration = Duration::from_secs(10);
/// What a job needs, and some more: there may be many.
const STACK: usize = 512 << 10;

/// What is done, and for whom.
trait Job: Send {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool;
    fn run(self: Box<Self>);
}

struct Asked<F, T> {
    job: F,
    answer: oneshot::Sender<T>,
}

impl<F: FnOnce() -> T + Send, T: Send> Job for Asked<F, T> {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn run(self: Box<Self>) {
        // Whoever has gone meanwhile does not need it.
        let _ = self.answer.send((self.job)());
    }
}

/// What waits in a lane, and whether a thread is in it.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Box<dyn Job>>,
    is_taken: bool,
}

#[derive(Default)]
struct State {
    lanes: HashMap<String, Lane>,
    /// Lanes that have jobs and no thread.
    ready: VecDeque<String>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl State {
    fn queue(&mut self, lane: &str, job: Box<dyn Job>) {
        let jobs = self.lanes.entry(lane.to_owned()).or_default();
        jobs.waiting.retain(|job| job.is_wanted());
        jobs.waiting.push_back(job);
        if !jobs.is_taken && !self.ready.iter().any(|ready| ready == lane) {
            self.ready.push_back(lane.to_owned());
        }
    }

    /// The next job of a lane that no thread is in, which is taken by it.
    fn take(&mut self) -> Option<(String, Box<dyn Job>)> {
        while let Some(name) = self.ready.pop_front() {
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            while let Some(job) = lane.waiting.pop_front() {
                if job.is_wanted() {
                    lane.is_taken = true;
                    return Some((name, job));
                }
            }
            self.lanes.remove(&name);
        }
        None
    }

    /// Leaves a lane, in which something may have queued up.
    fn leave(&mut self, name: String) {
        match self.lanes.get_mut(&name) {
            Some(lane) if !lane.waiting.is_empty() => {
                lane.is_taken = false;
                self.ready.push_back(name);
            }
            _ => drop(self.lanes.remove(&name)),
        }
    }
}

struct Shared {
    state: Mutex<State>,
    has_more: Condvar,
    idle: Duration,
}

impl Shared {
    /// A thread's life.
    fn serve(&self) {
        while let Some((lane, job)) = self.next() {
            // A panic has been reported by its hook, and its caller is told by the answer that never comes.
            let _ = catch_unwind(AssertUnwindSafe(|| job.run()));
            self.state.lock().leave(lane);
        }
    }

    /// The next job; `None` if the thread is to end.
    fn next(&self) -> Option<(String, Box<dyn Job>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(next) = state.take() {
                return Some(next);
            }
            let mut is_over = state.is_closed;
            if !is_over {
                state.idle += 1;
                is_over = self.has_more.wait_for(&mut state, self.idle).timed_out() && state.ready.is_empty();
                state.idle -= 1;
            }
            if is_over {
                state.threads -= 1;
                return None;
            }
        }
    }
}

/// Runs jobs. The threads end when it is closed or dropped, but for those that a file system keeps.
pub(super) struct Threads {
    shared: Arc<Shared>,
    most: usize,
}

impl Threads {
    pub(super) fn new() -> Self {
        Threads::with(MOST, IDLE)
    }

    fn with(most: usize, idle: Duration) -> Self {
        let shared = Shared { state: Mutex::default(), has_more: Condvar::new(), idle };
        Threads { shared: Arc::new(shared), most }
    }

    /// What `job` answers, when its turn in the lane has come. When the future is dropped before the job has begun, it
    /// never does.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        lane: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.queue(lane, Box::new(Asked { job, answer }))?;
        answered.await.map_err(|_| closed())
    }

    fn queue(&self, lane: &str, job: Box<dyn Job>) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.is_closed {
            return Err(closed());
        }
        state.queue(lane, job);
        if state.ready.len() <= state.idle {
            self.shared.has_more.notify_one();
        } else if state.threads < self.most {
            state.threads += 1;
            if let Err(e) = self.start_thread() {
                state.threads -= 1;
                // With no thread at all nobody would ever come to it.
                if state.threads == 0 {
                    state.lanes.clear();
                    state.ready.clear();
                    return Err(error(ErrorKind::Unavailable, "no thread can be started").caused_by(e));
                }
            }
        }
        Ok(())
    }

    fn start_thread(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("bus-file-locks".to_owned()).stack_size(STACK);
        thread.spawn(move || shared.serve()).map(drop)
    }

    /// Takes no more jobs.
    pub(super) fn close(&self) {
        self.shared.state.lock().is_closed = true;
        self.shared.has_more.notify_all();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::poll;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn threads(threads: &Threads) -> usize {
        threads.shared.state.lock().threads
    }

    /// A job that hangs until the sender is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl FnOnce() + Send + 'static) {
        let (go, wait) = mpsc::channel();
        let hang = move || {
            let _ = wait.recv();
        };
        (go, hang)
    }

    #[tokio::test]
    async fn a_job_whose_caller_has_gone_is_not_begun() {
        let pool = Threads::with(4, LONG);
        let (go, hang) = hanging();
        let (done, is_done) = mpsc::channel();
        {
            let mut keeping = Box::pin(pool.run("it", hang));
            assert!(poll!(&mut keeping).is_pending());
            let mut late = Box::pin(pool.run("it", move || done.send(())));
            assert!(poll!(&mut late).is_pending());
        }
        drop(go);
        assert_eq!(pool.run("it", || 7).await.unwrap(), 7);
        assert!(is_done.recv().is_err(), "it was withdrawn");
        pool.close();
        assert_eq!(pool.run("it", || 7).await.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test]
    async fn what_hangs_keeps_its_lane_and_one_thread_however_often_it_is_asked_for() {
        const OTHERS: usize = 3;
        let pool = Threads::with(100, LONG);
        let (go, hang) = hanging();
        let mut kept = Box::pin(pool.run("hangs", hang));
        assert!(poll!(&mut kept).is_pending());
        for n in 0..1000 {
            let mut given_up = Box::pin(pool.run("hangs", || ()));
            assert!(poll!(&mut given_up).is_pending());
            drop(given_up);
            assert_eq!(pool.run(&format!("other {}", n % OTHERS), move || n).await.unwrap(), n);
        }
        assert!(threads(&pool) <= 1 + OTHERS, "{} threads: more than lanes", threads(&pool));
        assert_eq!(pool.shared.state.lock().lanes["hangs"].waiting.len(), 1, "the last one's");
        drop(go);
        kept.await.unwrap();
    }

    #[tokio::test]
    async fn there_are_so_many_threads_and_no_more() {
        let pool = Threads::with(3, LONG);
        let (gos, mut kept): (Vec<_>, Vec<_>) = (0..3)
            .map(|n| {
                let (go, hang) = hanging();
                let pool = &pool;
                (go, Box::pin(async move { pool.run(&format!("{n}"), hang).await }))
            })
            .unzip();
        for one in &mut kept {
            assert!(poll!(one).is_pending());
        }
        let mut waits = Box::pin(pool.run("waits", || 7));
        assert!(poll!(&mut waits).is_pending());
        assert_eq!(threads(&pool), 3);
        drop(gos);
        assert_eq!(waits.await.unwrap(), 7);
        for one in kept {
            one.await.unwrap();
        }
        assert_eq!(threads(&pool), 3);
    }

    #[tokio::test]
    async fn idle_threads_end_and_a_panic_costs_nothing_but_its_answer() {
        let pool = Threads::with(3, Duration::from_millis(1));
        let panics = || panic!("on purpose");
        assert_eq!(pool.run("it", panics).await.unwrap_err().kind(), ErrorKind::Closed);
        for _ in 0..3 {
            assert_eq!(pool.run("it", || 7).await.unwrap(), 7);
            while threads(&pool) > 0 {
                tokio::task::yield_now().await;
            }
        }
        assert!(pool.shared.state.lock().lanes.is_empty());
    }
}
