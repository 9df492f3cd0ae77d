//! Sends that ride together: whatever is queued when the store is free is stored in one call, so that many callers
//! share one round trip and one flush of the disk. Nobody waits for a batch to fill.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::contract::BoxFuture;
use crate::error::{Error, ErrorKind, Result};

/// Calls of fewer bytes are bounded by their number alone.
const COUNTED: usize = 4 << 10;

/// How much rides together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many items at most; a call that brings more goes whole all the same.
    pub items: usize,
    /// How many bytes at most, likewise.
    pub bytes: usize,
    /// How many calls may wait. When the store cannot follow, callers wait before they are queued.
    pub queued: usize,
    /// How many bytes may wait; a call that brings more waits until it is alone.
    pub queued_bytes: u32,
}

/// Stores a batch: answers for each item, or, if nothing at all was stored, with what went wrong.
///
/// After an error that may be one item's own fault the batch is tried again in halves; so it is not after
/// [`Unavailable`](ErrorKind::Unavailable), [`Timeout`](ErrorKind::Timeout),
/// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) and [`Closed`](ErrorKind::Closed), which each item is answered with.
pub trait Carry<T, A>: Send + Sync + 'static {
    /// Stores `batch`.
    fn carry<'a>(&'a self, batch: &'a [T]) -> BoxFuture<'a, Result<Vec<Result<A>>>>;
}

/// Gathers the calls of many callers into batches. The items of a call stay together and in order.
pub struct Coalescer<T, A> {
    queue: mpsc::Sender<Call<T, A>>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    queued_bytes: u32,
    closed: CancellationToken,
    ended: CancellationToken,
}

struct Call<T, A> {
    items: Vec<T>,
    bytes: usize,
    /// Given back when the call has been answered.
    room: Option<OwnedSemaphorePermit>,
    reply: oneshot::Sender<Vec<Result<A>>>,
}

/// Whom to answer, for how many items.
struct Reply<A> {
    count: usize,
    reply: oneshot::Sender<Vec<Result<A>>>,
    room: Option<OwnedSemaphorePermit>,
}

impl<T, A> fmt::Debug for Coalescer<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").field("closed", &self.closed.is_cancelled()).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static, A: Send + 'static> Coalescer<T, A> {
    /// Starts the task that carries. Call it within a runtime.
    pub fn start(limits: Limits, carrier: Arc<dyn Carry<T, A>>) -> Self {
        let (queue, waiting) = mpsc::channel(limits.queued);
        let (closed, ended) = (CancellationToken::new(), CancellationToken::new());
        let work = Work { limits, carrier, waiting, left_over: None, closed: closed.clone() };
        let at_end = ended.clone().drop_guard();
        tokio::spawn(async move {
            let _at_end = at_end;
            work.run().await;
        });
        let room = Arc::new(Semaphore::new(usize::try_from(limits.queued_bytes).unwrap_or(usize::MAX)));
        Coalescer { queue, room, queued_bytes: limits.queued_bytes, closed, ended }
    }

    /// Queues a call and awaits the answers for its items. Dropped before it was taken, it is withdrawn.
    pub async fn submit(&self, items: Vec<T>, bytes: usize) -> Vec<Result<A>> {
        let count = items.len();
        let all = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
        if self.closed.is_cancelled() {
            return all(closed());
        }
        let Ok(room) = self.room(bytes).await else { return all(closed()) };
        let (reply, answers) = oneshot::channel();
        if self.queue.send(Call { items, bytes, room, reply }).await.is_err() {
            return all(closed());
        }
        answers.await.unwrap_or_else(|_| all(closed()))
    }

    /// Waits until so many bytes may be queued.
    async fn room(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, AcquireError> {
        if bytes < COUNTED {
            return Ok(None);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.queued_bytes);
        Arc::clone(&self.room).acquire_many_owned(bytes).await.map(Some)
    }

    /// Takes no more calls, answers those that wait, and returns when what is under way has ended.
    pub async fn close(&self) {
        self.closed.cancel();
        self.ended.cancelled().await;
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store has been closed")
}

struct Work<T, A> {
    limits: Limits,
    carrier: Arc<dyn Carry<T, A>>,
    waiting: mpsc::Receiver<Call<T, A>>,
    /// Did not fit into the last batch.
    left_over: Option<Call<T, A>>,
    closed: CancellationToken,
}

impl<T: Send + Sync + 'static, A: Send + 'static> Work<T, A> {
    async fn run(mut self) {
        while let Some(first) = self.next().await {
            let (items, replies) = self.gather(first);
            if items.is_empty() {
                continue;
            }
            let mut answers = self.carry(&items).await.into_iter();
            for Reply { count, reply, room } in replies {
                drop(room);
                // The caller may have gone by now.
                let _ = reply.send(answers.by_ref().take(count).collect());
            }
        }
        self.waiting.close();
        let left_over = self.left_over.take();
        for call in left_over.into_iter().chain(std::iter::from_fn(|| self.waiting.try_recv().ok())) {
            let _ = call.reply.send(call.items.iter().map(|_| Err(closed())).collect());
        }
    }

    async fn next(&mut self) -> Option<Call<T, A>> {
        if self.closed.is_cancelled() {
            return None;
        }
        if let Some(call) = self.left_over.take() {
            return Some(call);
        }
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            call = self.waiting.recv() => call,
        }
    }

    /// `first` and what has queued up behind it, as far as it is still wanted and fits.
    fn gather(&mut self, first: Call<T, A>) -> (Vec<T>, Vec<Reply<A>>) {
        let (mut items, mut replies, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(call) = next.take().or_else(|| self.waiting.try_recv().ok()) {
            if call.reply.is_closed() {
                continue;
            }
            let fits = items.len() + call.items.len() <= self.limits.items
                && bytes + call.bytes <= self.limits.bytes;
            if !items.is_empty() && !fits {
                self.left_over = Some(call);
                break;
            }
            bytes += call.bytes;
            replies.push(Reply { count: call.items.len(), reply: call.reply, room: call.room });
            items.extend(call.items);
            if items.len() >= self.limits.items || bytes >= self.limits.bytes {
                break;
            }
        }
        (items, replies)
    }

    /// Carries a batch, in halves if one of it spoils the whole.
    async fn carry(&self, batch: &[T]) -> Vec<Result<A>> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            match self.carrier.carry(part).await {
                Ok(answered) => {
                    let given = answered.len();
                    answers.extend(answered.into_iter().take(part.len()));
                    let missing = part.len().saturating_sub(given);
                    answers.extend((0..missing).map(|_| Err(too_few())));
                }
                Err(error) if part.len() > 1 && may_be_ones_own(&error) => {
                    let (former, latter) = part.split_at(part.len() / 2);
                    parts.extend([latter, former]);
                }
                Err(error) => answers.extend(part.iter().map(|_| Err(error.clone()))),
            }
        }
        answers
    }
}

fn too_few() -> Error {
    Error::new(ErrorKind::Internal, "the store answered for too few items")
}

fn may_be_ones_own(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::OutcomeUnknown | ErrorKind::Closed
    )
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Answers each number with its double; refuses the whole batch if there is a 13 in it.
    #[derive(Default)]
    struct Doubling {
        batches: Mutex<Vec<Vec<u64>>>,
        gate: Option<Arc<tokio::sync::Semaphore>>,
        down: bool,
    }

    impl Carry<u64, u64> for Doubling {
        fn carry<'a>(&'a self, batch: &'a [u64]) -> BoxFuture<'a, Result<Vec<Result<u64>>>> {
            Box::pin(async move {
                if let Some(gate) = &self.gate {
                    gate.acquire().await.unwrap().forget();
                }
                self.batches.lock().push(batch.to_vec());
                if self.down {
                    return Err(Error::new(ErrorKind::OutcomeUnknown, "lost"));
                }
                if batch.contains(&13) {
                    return Err(Error::new(ErrorKind::Internal, "unlucky"));
                }
                Ok(batch.iter().map(|number| Ok(number * 2)).collect())
            })
        }
    }

    const LIMITS: Limits = Limits { items: 100, bytes: 1000, queued: 64, queued_bytes: 1 << 20 };

    fn values(answers: Vec<Result<u64>>) -> Vec<Option<u64>> {
        answers.into_iter().map(Result::ok).collect()
    }

    #[tokio::test]
    async fn callers_ride_together_and_each_gets_its_own_answers() {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let carrier = Arc::new(Doubling { gate: Some(Arc::clone(&gate)), ..Doubling::default() });
        let coalescer = Coalescer::start(LIMITS, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let calls = (0..20).map(|n| coalescer.submit(vec![n * 10, n * 10 + 1], 2));
        let open = async { gate.add_permits(100) };
        let (answers, ()) = futures_util::join!(futures_util::future::join_all(calls), open);
        for (n, answers) in (0..20).zip(answers) {
            assert_eq!(values(answers), [Some(n * 20), Some(n * 20 + 2)]);
        }
        assert!(carrier.batches.lock().len() <= 2, "{:?}", carrier.batches.lock());
    }

    #[tokio::test]
    async fn one_that_spoils_the_batch_fails_alone() {
        let carrier = Arc::new(Doubling::default());
        let coalescer = Coalescer::start(LIMITS, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let answers = coalescer.submit((10..20).collect(), 10).await;
        let expected: Vec<_> = (10..20).map(|n| (n != 13).then_some(n * 2)).collect();
        assert_eq!(values(answers), expected);
    }

    #[tokio::test]
    async fn what_may_have_been_stored_is_never_sent_again() {
        let carrier = Arc::new(Doubling { down: true, ..Doubling::default() });
        let coalescer = Coalescer::start(LIMITS, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        for answer in coalescer.submit(vec![1, 2, 3], 3).await {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        }
        assert_eq!(*carrier.batches.lock(), [vec![1, 2, 3]]);
    }

    #[tokio::test]
    async fn a_call_dropped_before_it_was_taken_is_withdrawn() {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let carrier = Arc::new(Doubling { gate: Some(Arc::clone(&gate)), ..Doubling::default() });
        let coalescer = Coalescer::start(LIMITS, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let mut first = Box::pin(coalescer.submit(vec![1], 1));
        let mut dropped = Box::pin(coalescer.submit(vec![2], 1));
        let mut kept = Box::pin(coalescer.submit(vec![3], 1));
        assert!(futures_util::future::poll_immediate(&mut first).await.is_none());
        tokio::task::yield_now().await;
        for call in [&mut dropped, &mut kept] {
            assert!(futures_util::future::poll_immediate(call).await.is_none());
        }
        drop(dropped);
        gate.add_permits(10);
        assert_eq!((values(first.await), values(kept.await)), (vec![Some(2)], vec![Some(6)]));
        assert_eq!(*carrier.batches.lock(), [vec![1], vec![3]]);
    }

    #[tokio::test]
    async fn what_waits_when_it_is_closed_is_told_so() {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let carrier = Arc::new(Doubling { gate: Some(Arc::clone(&gate)), ..Doubling::default() });
        let coalescer = Coalescer::start(LIMITS, carrier);
        let mut first = Box::pin(coalescer.submit(vec![1], 1));
        assert!(futures_util::future::poll_immediate(&mut first).await.is_none());
        tokio::task::yield_now().await;
        let mut second = Box::pin(coalescer.submit(vec![2], 1));
        assert!(futures_util::future::poll_immediate(&mut second).await.is_none());
        let close = coalescer.close();
        let open = async { gate.add_permits(1) };
        let (first, second, (), ()) = futures_util::join!(first, second, close, open);
        assert_eq!(values(first), [Some(2)], "what was under way is done");
        assert_eq!(second[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(coalescer.submit(vec![3], 1).await[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test]
    async fn a_batch_keeps_its_limits() {
        let carrier = Arc::new(Doubling::default());
        let limits = Limits { items: 3, bytes: 1000, queued: 64, queued_bytes: 1 << 20 };
        let coalescer = Coalescer::start(limits, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let calls = (0..9).map(|n| coalescer.submit(vec![n, n], 2));
        for (n, answers) in (0..9).zip(futures_util::future::join_all(calls).await) {
            assert_eq!(values(answers), [Some(n * 2), Some(n * 2)]);
        }
        assert!(carrier.batches.lock().iter().all(|batch| batch.len() <= 3), "{:?}", carrier.batches.lock());
    }
}
