//! Moves one endpoint's messages: receive, run, keep claims alive, **settle** (nothing else does), drain.
//!
//! A pump is four kinds of task around one table of `claims`:
//!
//! * `intake` claims what there is room for, by halves, and hands it to the workers;
//! * `worker`s run the pipeline, one message at a time each, as many as `max_concurrent_calls`;
//! * `settling` ends claims, whatever is ready in one batch;
//! * `keeping` extends all claims in one call, a few times a lease.
//!
//! They note in `vitals` whether the store answers; `throttle` is what they share with the host's other pumps.
//!
//! None of them but the workers runs user code, so a handler that blocks its thread delays no claim's extension as long
//! as one thread is free. Stopping: intake ends and gives back what has not been started; the workers end with what
//! they run; settling ends when all is settled; the pump is over when no claim is left.

mod claims;
mod intake;
mod keeping;
mod settling;
mod throttle;
mod vitals;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, RwLock, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{BootInstant, Clock};
use crate::contract::{Beat, Consumer, FenceGuard, Pulse};
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Endpoint, MessageId, Verdict};
use crate::pipeline::Pipeline;
use crate::scope::HostScope;
use crate::settings::Resolved;
use crate::singleton::Term;
use crate::telemetry::Runs;

pub use throttle::Throttle;
pub use vitals::Unanswered;

use claims::{Claims, Key, Running};
use vitals::Vitals;

/// How a pump is told to come to an end. Cheap to clone.
///
/// | who says it | `stop` | `cancel` | `cut` |
/// |---|---|---|---|
/// | the host, at SIGTERM | at once | when the grace period is over | a second later |
/// | a term that drains (shutdown) | at once | | |
/// | a term that is lost | at once | at once | at ⅞ of the lease |
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Nothing more is claimed or started; what runs goes on to its end.
    pub stop: CancellationToken,
    /// What runs is asked to end: the parent of every message's cancellation.
    pub cancel: CancellationToken,
    /// What runs is dropped.
    pub cut: CancellationToken,
}

/// What a pump works with.
pub struct PumpSpec {
    /// What is read.
    pub endpoint: Arc<Endpoint>,
    /// The transport's name, for what handlers send.
    pub transport: &'static str,
    /// The processor's settings as they are in force.
    pub settings: Resolved,
    /// Where claims come from and are settled; for a singleton, opened for its term.
    pub consumer: Arc<dyn Consumer>,
    /// What a message passes. Its `cut` is that of the signals.
    pub pipeline: Pipeline,
    /// The host's values.
    pub host: Arc<HostScope>,
    /// Where to read the time.
    pub clock: Clock,
    /// A singleton's term.
    pub term: Option<Term>,
    /// Whether the store itself refuses what is done under a term that is over. Where it cannot, what such a run has come
    /// to is discarded here, by the term's clock, and its claims are not kept alive.
    pub fenced: bool,
    /// How long a singleton's lock lasts unless renewed. Its claims are extended often enough for the endpoint to stay
    /// bound to the lock, however long a run takes.
    pub lock_lease: Option<Duration>,
    /// What is shared with other pumps.
    pub throttle: Throttle,
    /// Where the consumer notes that its store answers.
    pub pulse: Pulse,
    /// Where it is counted what is done.
    pub runs: Arc<Runs>,
}

impl PumpSpec {
    /// The shorter one of what each extension prolongs: the claims and, for a singleton, the endpoint's bond to the lock.
    fn shortest_lease(&self) -> Duration {
        let lease = self.settings.lease;
        self.lock_lease.map_or(lease, |lock_lease| lease.min(lock_lease))
    }
}

/// How a pump ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PumpEnd {
    /// Every run ended by itself, and its verdict is with the store or was refused by it.
    Clean,
    /// These messages' runs were dropped.
    Cut(Vec<MessageId>),
    /// The pump itself came to grief, by a panic of its backend or a defect of its own, or what it reads is gone. Nothing runs any more; what was
    /// not settled comes back when its claims run out.
    Failed,
}

/// How many bytes of messages may wait for a worker, whatever `prefetch_count` says: nothing more is claimed while there
/// are as many. What runs is not counted, so that this never keeps a worker idle.
const WAITING_BYTES: usize = 64 << 20;

/// A message on its way to a worker.
struct Job {
    key: Key,
    /// How many bytes it has, counted while it waits.
    bytes: usize,
    delivery: Delivery,
}

/// A verdict on its way to the store.
struct Judged {
    key: Key,
    id: MessageId,
    verdict: Verdict,
}

/// What a pump's tasks share.
struct Shared {
    spec: PumpSpec,
    signals: Signals,
    claims: Claims,
    running: Arc<Running>,
    vitals: Arc<Vitals>,
    cut: parking_lot::Mutex<Vec<MessageId>>,
    /// Claimed and not yet run to a verdict.
    open: AtomicUsize,
    /// The bytes of what no worker has taken yet.
    waiting_bytes: AtomicUsize,
    /// Run to a verdict and not yet settled.
    unsettled: AtomicUsize,
    /// Something of the counts above became less.
    room: Notify,
    /// Held by each run, exclusively by one that is made alone.
    alone: Arc<RwLock<()>>,
    verdicts: mpsc::UnboundedSender<Judged>,
}

/// A pump that has been started.
pub struct Pump {
    shared: Arc<Shared>,
    tasks: JoinSet<bool>,
    settling: JoinSet<()>,
}

impl Pump {
    /// Starts a pump on the current runtime.
    pub fn start(spec: PumpSpec, signals: Signals) -> Self {
        // Its own, so that a pump that fails can stop itself without stopping others.
        let signals = Signals { stop: signals.stop.child_token(), ..signals };
        // Unbounded, yet never longer than the claims held: intake stops when verdicts pile up.
        let (verdicts, judged) = mpsc::unbounded_channel();
        let (jobs, queue) = async_channel::unbounded();
        let vitals = Arc::new(Vitals::of(spec.pulse.clone()));
        let shared = Arc::new(Shared {
            spec,
            signals,
            claims: Claims::default(),
            running: Arc::default(),
            vitals,
            cut: parking_lot::Mutex::default(),
            open: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            unsettled: AtomicUsize::new(0),
            room: Notify::new(),
            alone: Arc::default(),
            verdicts,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(intake::run(Arc::clone(&shared), jobs, queue));
        let mut settling = JoinSet::new();
        settling.spawn(settling::run(Arc::clone(&shared), judged));
        settling.spawn(keeping::run(Arc::clone(&shared)));
        Pump { shared, tasks, settling }
    }

    /// A view of the pump that outlives it.
    pub fn view(&self) -> PumpView {
        PumpView {
            running: Arc::clone(&self.shared.running),
            vitals: Arc::clone(&self.shared.vitals),
            places: self.shared.spec.settings.max_concurrent_calls,
        }
    }

    /// Waits until the pump has come to its end: after [`Signals::stop`], when all that was started has ended and is
    /// settled.
    pub async fn join(&mut self) -> PumpEnd {
        let shared = &self.shared;
        let drained = async {
            let sound = join_all(shared, &mut self.tasks).await;
            shared.drained().await;
            sound
        };
        let sound = tokio::select! {
            biased;
            sound = drained => sound,
            // These two go on until they are told to end: without one of them no claim is settled, or kept alive.
            Some(ended) = self.settling.join_next() => {
                report(shared, &ended);
                shared.signals.stop.cancel();
                join_all(shared, &mut self.tasks).await;
                false
            }
        };
        self.settling.shutdown().await;
        let cut = std::mem::take(&mut *self.shared.cut.lock());
        match sound {
            false => PumpEnd::Failed,
            true if cut.is_empty() => PumpEnd::Clean,
            true => PumpEnd::Cut(cut),
        }
    }
}

/// Waits for all of them; `false` if one did not end as it should.
async fn join_all(shared: &Shared, tasks: &mut JoinSet<bool>) -> bool {
    let mut sound = true;
    while let Some(ended) = tasks.join_next().await {
        report(shared, &ended);
        sound &= ended.unwrap_or(false);
    }
    sound
}

/// Shows what a pump is at.
#[derive(Clone)]
pub struct PumpView {
    running: Arc<Running>,
    vitals: Arc<Vitals>,
    places: usize,
}

impl PumpView {
    /// The messages whose runs are under way.
    pub fn running(&self) -> Vec<MessageId> {
        self.running.ids()
    }

    /// How many runs are under way.
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// How many runs in a row have failed.
    pub fn failed_runs(&self) -> u32 {
        self.vitals.failed_runs()
    }

    /// How many runs go on past their time.
    pub(crate) fn stuck(&self) -> usize {
        self.running.stuck()
    }

    /// Whether every place is taken by a run that goes on past its time: nothing will be run any more.
    pub fn is_stuck(&self) -> bool {
        self.running.stuck() >= self.places
    }

    /// When the store last answered a claim, be it with nothing.
    pub fn last_fetch(&self) -> Option<BootInstant> {
        self.vitals.last_fetch()
    }

    /// What the consumer noted last.
    pub fn last_beat(&self) -> Option<Beat> {
        self.vitals.pulse.last()
    }

    /// Claiming, as far as it is not answered. Nothing, while there is no room for more.
    pub fn receiving(&self) -> Unanswered {
        self.vitals.receive.unanswered()
    }

    /// Settling, as far as it is not answered.
    pub fn settling(&self) -> Unanswered {
        self.vitals.settle.unanswered()
    }

    /// Extending, as far as it is not answered.
    pub fn extending(&self) -> Unanswered {
        self.vitals.extend.unanswered()
    }
}

impl fmt::Debug for PumpView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PumpView").field("running", &self.running()).finish()
    }
}

/// A panic in one of the pump's own tasks is a defect of ours or of a backend: said aloud.
fn report<T>(shared: &Shared, ended: &Result<T, tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(target: "bus::pump", endpoint = %shared.spec.endpoint, %error, "a task of the pump ended unexpectedly");
    }
}

impl Shared {
    /// With more messages open than this nothing is claimed: half of what may wait for a worker still waits.
    fn low_water(&self) -> usize {
        let settings = &self.spec.settings;
        settings.max_concurrent_calls + settings.prefetch_count / 2
    }

    /// How many messages may be claimed now: about half of what may be open, so that the one half runs while the store
    /// is asked for the other. Asked for whatever there is room for, as soon as there is, the store would be at very
    /// many, with nothing left to run meanwhile, and at very few in turns.
    fn room(&self) -> usize {
        let settings = &self.spec.settings;
        let slots = settings.max_concurrent_calls + settings.prefetch_count;
        let (open, unsettled) = (self.open.load(Ordering::Acquire), self.unsettled.load(Ordering::Acquire));
        if self.spec.term.is_some() {
            // A singleton's next message starts only when the verdict on the last one is confirmed by the store.
            slots.saturating_sub(open + unsettled)
        } else if open > self.low_water()
            || unsettled > slots
            || self.waiting_bytes.load(Ordering::Acquire) >= WAITING_BYTES
        {
            // There is enough; or the store takes verdicts, or the workers take messages, more slowly than they come.
            0
        } else {
            let half = slots.div_ceil(2).max(settings.max_concurrent_calls);
            slots.saturating_sub(open).min(half)
        }
    }

    /// A message waits for a worker.
    fn waits(&self, bytes: usize) {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.waiting_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// A worker has taken a message, or it has been given back.
    fn waits_no_more(&self, bytes: usize) {
        if self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel) >= WAITING_BYTES {
            self.room.notify_one();
        }
    }

    /// A verdict has been reached.
    fn judged(&self, key: Key, id: MessageId, verdict: Verdict) {
        self.claims.judged(key);
        // In this order, so that the claim is counted at every moment.
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        if self.open.fetch_sub(1, Ordering::AcqRel) <= self.low_water() + 1 {
            self.room.notify_one();
        }
        // Fails only when settling has ended, which it does after all claims have.
        let _ = self.verdicts.send(Judged { key, id, verdict });
    }

    /// A verdict is with the store, or has been given up on.
    fn settled(&self, key: Key) {
        self.claims.remove(key);
        self.unsettled.fetch_sub(1, Ordering::AcqRel);
        self.room.notify_one();
    }

    /// Waits until nothing is unsettled.
    async fn drained(&self) {
        loop {
            let notified = self.room.notified();
            if self.unsettled.load(Ordering::Acquire) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Takes note of what the store has answered. If it knows of a later term, this one is over, whatever our own clock
    /// says, and the keeper has to know: otherwise it would keep the lock for a pump that gets nothing any more.
    fn heed(&self, error: &Error) {
        if error.kind() == ErrorKind::TermLost
            && let Some(term) = &self.spec.term
        {
            term.fenced_off();
        }
    }

    /// Whether the term is over and nobody but us would notice.
    fn is_late(&self) -> bool {
        !self.spec.fenced && self.spec.term.as_ref().is_some_and(|term| term.check().is_err())
    }

    /// The fence to name in events; 0 for a plain processor.
    fn fence(&self) -> u64 {
        self.spec.term.as_ref().map_or(0, |term| term.fence().get())
    }

    fn guard(&self, term: &Term) -> FenceGuard {
        FenceGuard { endpoint: Arc::clone(&self.spec.endpoint), fence: term.fence() }
    }
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("endpoint", &self.shared.spec.endpoint)
            .field("claims", &self.shared.claims.len())
            .field("running", &self.shared.running.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PumpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PumpSpec").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
