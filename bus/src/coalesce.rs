//! Sends that ride together: whatever is queued when the store is free is stored in one call, so that many callers
//! share one round trip and one flush of the disk. Nobody waits for a batch to fill.
//!
//! While the store takes something, callers wait for their turn however long that takes. While it takes nothing, each waits
//! for its turn no longer than the [patience](Limits::patience) of the store, and is then answered that it was not sent.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
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
    /// How long a call waits for its turn while the store takes nothing: from its beginning, or from when the store last
    /// took something. Mostly what a call of the store may take.
    pub patience: Duration,
}

/// Stores a batch: answers for each item, or, if nothing at all was stored, with what went wrong.
///
/// After an error that may be one item's own fault the batch is tried again in halves; after [the store's](is_outage) each
/// item that is left is answered with it, and nothing more of the batch is tried. A panic is answered as an unknown outcome.
pub trait Carry<T, A>: Send + Sync + 'static {
    /// Stores `batch`.
    fn carry<'a>(&'a self, batch: &'a [T]) -> BoxFuture<'a, Result<Vec<Result<A>>>>;
}

/// Whether an error says something about the store, and nothing about what was to be sent.
pub fn is_outage(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::OutcomeUnknown | ErrorKind::Closed
    )
}

/// What is answered for what was not tried, since the store did not take what was before it.
pub fn not_tried(cause: Option<Error>) -> Error {
    let error = Error::new(
        ErrorKind::Unavailable,
        "not sent, since the store did not take what was to be sent before it: send it again",
    );
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

/// What is answered for an event that was to get to several subscriptions, by what became of each copy. If some have it and
/// others do not, it is neither stored nor not: sending it again would double those.
///
/// # Errors
/// [`ErrorKind::OutcomeUnknown`] then, and if it is not known of a copy; else why no subscription has it.
pub fn all_or_unknown<T>(copies: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let (mut stored, mut failed) = (Vec::new(), None);
    for copy in copies {
        match copy {
            Ok(copy) => stored.push(copy),
            Err(unknown) if unknown.kind() == ErrorKind::OutcomeUnknown => return Err(unknown),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    match failed {
        None => Ok(stored),
        Some(error) if stored.is_empty() => Err(error),
        Some(error) => {
            let partly = "some subscriptions have the event, and others do not";
            Err(Error::new(ErrorKind::OutcomeUnknown, partly).caused_by(error))
        }
    }
}

/// When a store last took something: by that, whoever waits for a turn gives up or does not.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    /// In microseconds since then.
    last: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { began: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Progress {
    /// The store has taken something, or said that something is not to be taken.
    pub fn made(&self) {
        self.last
            .store(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When somebody gives up who has waited since then, should nothing be taken until that.
    fn ends(&self, since: Instant, patience: Duration) -> Instant {
        since.max(self.began + Duration::from_micros(self.last.load(Ordering::Relaxed))) + patience
    }

    /// Returns when nothing has been taken for so long, reckoned from `since` on.
    pub async fn stalled(&self, since: Instant, patience: Duration) {
        loop {
            let end = self.ends(since, patience);
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// Gathers the calls of many callers into batches. The items of a call stay together and in order.
pub struct Coalescer<T, A> {
    queue: mpsc::Sender<Call<T, A>>,
    /// The bytes that may still be queued.
    room: Arc<Semaphore>,
    queued_bytes: u32,
    progress: Arc<Progress>,
    patience: Duration,
    closed: CancellationToken,
    ended: CancellationToken,
}

struct Call<T, A> {
    items: Vec<T>,
    bytes: usize,
    since: Instant,
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
        let progress = Arc::new(Progress::default());
        let work = Work {
            limits,
            carrier,
            waiting,
            left_over: None,
            progress: Arc::clone(&progress),
            outage: None,
            closed: closed.clone(),
        };
        let at_end = ended.clone().drop_guard();
        tokio::spawn(async move {
            let _at_end = at_end;
            work.run().await;
        });
        let room = Arc::new(Semaphore::new(usize::try_from(limits.queued_bytes).unwrap_or(usize::MAX)));
        let (queued_bytes, patience) = (limits.queued_bytes, limits.patience);
        Coalescer { queue, room, queued_bytes, progress, patience, closed, ended }
    }

    /// Queues a call and awaits the answers for its items. Dropped before it was taken, it is withdrawn.
    ///
    /// While the store takes nothing, it ends after the patience, or when the batch does that is being carried then, if that
    /// is later; and when its own does, if it was taken.
    pub async fn submit(&self, items: Vec<T>, bytes: usize) -> Vec<Result<A>> {
        let (count, since) = (items.len(), Instant::now());
        match self.queue(items, bytes, since).await {
            Ok(answers) => answers.await.unwrap_or_else(|_| all(count, &closed())),
            Err(error) => all(count, &error),
        }
    }

    async fn queue(
        &self,
        items: Vec<T>,
        bytes: usize,
        since: Instant,
    ) -> Result<oneshot::Receiver<Vec<Result<A>>>> {
        if self.closed.is_cancelled() {
            return Err(closed());
        }
        let room = match bytes < COUNTED {
            true => None,
            false => Some(self.in_time(since, self.room(bytes)).await?.map_err(|_| closed())?),
        };
        let (reply, answers) = oneshot::channel();
        match self.queue.try_send(Call { items, bytes, since, room, reply }) {
            Ok(()) => {}
            Err(TrySendError::Full(call)) => {
                self.in_time(since, self.queue.send(call)).await?.map_err(|_| closed())?;
            }
            Err(TrySendError::Closed(_)) => return Err(closed()),
        }
        Ok(answers)
    }

    /// Waits for something, unless the store takes nothing.
    async fn in_time<R>(&self, since: Instant, wait: impl Future<Output = R>) -> Result<R> {
        tokio::select! {
            biased;
            got = wait => Ok(got),
            () = self.progress.stalled(since, self.patience) => Err(not_tried(None)),
        }
    }

    /// Waits until so many bytes may be queued.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, AcquireError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.queued_bytes);
        Arc::clone(&self.room).acquire_many_owned(bytes).await
    }

    /// Takes no more calls, answers those that wait, and returns when what is under way has ended.
    pub async fn close(&self) {
        self.closed.cancel();
        self.ended.cancelled().await;
    }
}

fn all<A>(count: usize, error: &Error) -> Vec<Result<A>> {
    (0..count).map(|_| Err(error.clone())).collect()
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
    progress: Arc<Progress>,
    /// Why the store takes nothing, if it does not.
    outage: Option<Error>,
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
            let _ = call.reply.send(all(call.items.len(), &closed()));
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

    /// `first` and what has queued up behind it, as far as it is still wanted, has not waited in vain for too long, and
    /// fits.
    fn gather(&mut self, first: Call<T, A>) -> (Vec<T>, Vec<Reply<A>>) {
        let (mut items, mut replies, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        let now = Instant::now();
        while let Some(call) = next.take().or_else(|| self.waiting.try_recv().ok()) {
            if call.reply.is_closed() {
                continue;
            }
            if self.outage.is_some() && self.progress.ends(call.since, self.limits.patience) <= now {
                let _ = call.reply.send(all(call.items.len(), &not_tried(self.outage.clone())));
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
    async fn carry(&mut self, batch: &[T]) -> Vec<Result<A>> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            match self.carry_part(part).await {
                Ok(answered) => {
                    let given = answered.len();
                    answers.extend(answered.into_iter().take(part.len()));
                    let missing = part.len().saturating_sub(given);
                    answers.extend((0..missing).map(|_| Err(too_few())));
                }
                Err(error) if part.len() > 1 && !is_outage(&error) => {
                    let (former, latter) = part.split_at(part.len() / 2);
                    parts.extend([latter, former]);
                }
                Err(error) => answers.extend(all(part.len(), &error)),
            }
            if self.outage.is_some() {
                // The rest would wait as long, part after part.
                let rest: usize = parts.drain(..).map(<[T]>::len).sum();
                answers.extend(all(rest, &not_tried(self.outage.clone())));
            }
        }
        answers
    }

    /// Carries what is to be tried as one, and takes note of whether the store takes anything.
    async fn carry_part(&mut self, part: &[T]) -> Result<Vec<Result<A>>> {
        let carrying = AssertUnwindSafe(async { self.carrier.carry(part).await });
        let carried = carrying.catch_unwind().await.unwrap_or_else(|_| Err(panicked()));
        let of_store = |answer: &Result<A>| answer.as_ref().err().filter(|error| is_outage(error)).cloned();
        self.outage = match &carried {
            Ok(answered) if answered.iter().any(|answer| of_store(answer).is_none()) => None,
            Ok(answered) => answered.iter().find_map(of_store),
            Err(error) => is_outage(error).then(|| error.clone()),
        };
        if self.outage.is_none() {
            self.progress.made();
        }
        carried
    }
}

fn too_few() -> Error {
    Error::new(ErrorKind::Internal, "the store answered for too few items")
}

fn panicked() -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        "what stores messages panicked, which is a defect: they may have been stored, or not",
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

    const PATIENCE: Duration = Duration::from_secs(10);
    const LIMITS: Limits =
        Limits { items: 100, bytes: 1000, queued: 64, queued_bytes: 1 << 20, patience: PATIENCE };

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
        let limits = Limits { items: 3, ..LIMITS };
        let coalescer = Coalescer::start(limits, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let calls = (0..9).map(|n| coalescer.submit(vec![n, n], 2));
        for (n, answers) in (0..9).zip(futures_util::future::join_all(calls).await) {
            assert_eq!(values(answers), [Some(n * 2), Some(n * 2)]);
        }
        assert!(carrier.batches.lock().iter().all(|batch| batch.len() <= 3), "{:?}", carrier.batches.lock());
    }

    /// A store that takes nothing, and needs its whole time to say so; until it is mended.
    #[derive(Default)]
    struct Silent {
        is_mended: std::sync::atomic::AtomicBool,
        carried: Mutex<Vec<usize>>,
    }

    /// What a call of it takes at most.
    const DEADLINE: Duration = Duration::from_secs(10);

    impl Carry<u64, u64> for Silent {
        fn carry<'a>(&'a self, batch: &'a [u64]) -> BoxFuture<'a, Result<Vec<Result<u64>>>> {
            Box::pin(async move {
                self.carried.lock().push(batch.len());
                if self.is_mended.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    return Ok(batch.iter().map(|number| Ok(number * 2)).collect());
                }
                tokio::time::sleep(DEADLINE).await;
                Err(Error::new(ErrorKind::Timeout, "no answer"))
            })
        }
    }

    /// However many there are, and whether they are queued or wait to be: the last is answered about when the first is.
    #[tokio::test(start_paused = true)]
    async fn in_an_outage_everybody_is_answered_in_time() {
        let carrier = Arc::new(Silent::default());
        let coalescer = Coalescer::start(LIMITS, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let began = Instant::now();
        // One too many for a batch; and some with bytes that are counted.
        let call = |n: u64| coalescer.submit(vec![n], if n.is_multiple_of(7) { COUNTED } else { 1 });
        let answers = futures_util::future::join_all((0..10_000).map(call)).await;
        let took = began.elapsed();
        assert!(took <= PATIENCE + DEADLINE + Duration::from_millis(1), "{took:?}");
        let kinds = |kind| {
            answers.iter().flatten().filter(|one| one.as_ref().is_err_and(|e| e.kind() == kind)).count()
        };
        let carried: usize = carrier.carried.lock().iter().sum();
        assert_eq!(kinds(ErrorKind::Timeout), carried, "those were handed over");
        assert_eq!(kinds(ErrorKind::Unavailable), 10_000 - carried, "those were not");
        // The store is asked again for whoever comes next.
        carrier.is_mended.store(true, Ordering::Relaxed);
        assert_eq!(values(coalescer.submit(vec![4], 1).await), [Some(8)]);
    }

    /// A store that is slow is no store that is away: it takes a batch a second, and all get their turn.
    #[tokio::test(start_paused = true)]
    async fn whoever_waits_behind_many_waits_as_long_as_the_store_goes_on() {
        let carrier = Arc::new(Silent::default());
        carrier.is_mended.store(true, Ordering::Relaxed);
        let limits = Limits { items: 10, queued: 10, ..LIMITS };
        let coalescer = Coalescer::start(limits, Arc::clone(&carrier) as Arc<dyn Carry<u64, u64>>);
        let began = Instant::now();
        let calls = (0..1_000).map(|n| coalescer.submit(vec![n], 1));
        for answer in futures_util::future::join_all(calls).await.into_iter().flatten() {
            answer.unwrap();
        }
        assert!(began.elapsed() > 5 * PATIENCE, "{:?}", began.elapsed());
    }

    /// Panics at a 7; refuses a batch with a 13 in it; is away when a 9 is in it.
    struct Moody;

    impl Carry<u64, u64> for Moody {
        fn carry<'a>(&'a self, batch: &'a [u64]) -> BoxFuture<'a, Result<Vec<Result<u64>>>> {
            assert!(!batch.contains(&7), "on purpose");
            let answer = match batch {
                some if some.contains(&13) => Err(Error::new(ErrorKind::Internal, "unlucky")),
                some if some.contains(&9) => Err(Error::new(ErrorKind::Unavailable, "away")),
                others => Ok(others.iter().map(|number| Ok(number * 2)).collect()),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test]
    async fn a_panic_costs_its_batch_and_nothing_after_it() {
        let coalescer = Coalescer::start(LIMITS, Arc::new(Moody));
        assert_eq!(
            coalescer.submit(vec![7], 1).await[0].as_ref().unwrap_err().kind(),
            ErrorKind::OutcomeUnknown
        );
        assert_eq!(values(coalescer.submit(vec![4], 1).await), [Some(8)]);
        coalescer.close().await;
    }

    #[tokio::test]
    async fn after_a_part_that_the_store_did_not_take_the_rest_is_not_tried() {
        let coalescer = Coalescer::start(LIMITS, Arc::new(Moody));
        let answers = coalescer.submit(vec![1, 2, 3, 9, 4, 13], 6).await;
        let text = |answer: Result<u64>| answer.map_err(|error| error.to_string());
        let answers: Vec<_> = answers.into_iter().map(text).collect();
        assert_eq!(answers[..3], [Ok(2), Ok(4), Ok(6)]);
        assert!(answers[3].as_ref().is_err_and(|text| !text.contains("not sent")), "{answers:?}");
        assert!(answers[4..].iter().all(|one| one.as_ref().is_err_and(|text| text.contains("not sent"))));
    }

    #[test]
    fn an_event_is_with_all_its_subscriptions_or_one_cannot_say() {
        let (away, unknown) = (ErrorKind::Unavailable, ErrorKind::OutcomeUnknown);
        let failed = |kind| Err(Error::new(kind, "no"));
        let kind = |copies: Vec<Result<u8>>| all_or_unknown(copies).map_err(|error| error.kind());
        assert_eq!(kind(vec![]), Ok(vec![]));
        assert_eq!(kind(vec![Ok(1), Ok(2)]), Ok(vec![1, 2]));
        assert_eq!(kind(vec![failed(away), failed(away)]), Err(away));
        assert_eq!(kind(vec![failed(away), Ok(1)]), Err(unknown));
        assert_eq!(kind(vec![Ok(1), failed(away)]), Err(unknown));
        assert_eq!(kind(vec![failed(away), failed(unknown)]), Err(unknown), "a copy may be there");
    }
}
