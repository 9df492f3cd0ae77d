//! Connects what the plan names, and starts a pump or a candidate for each processor.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::around::Around;
use super::attending::Attendant;
use super::board::Board;
use super::candidate::Candidate;
use super::config::OnOverrun;
use super::handle::HostHandle;
use super::health::Monitor;
use super::liveness::{Bound, Liveness};
use super::opening::{Openings, Wanted};
use super::plugin::{Plugin, PluginContext, Plugins};
use super::report;
use super::shutdown;
use super::stores::Stores;
use super::wiring::{Plan, Planned, PlannedLock};
use crate::contract::{Consumer, ConsumerSpec, OpenOptions, Pulse};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Verdict};
use crate::pipeline::layers::before_dead_letter::HookFn;
use crate::pipeline::{HandlerFn, Pipeline};
use crate::processor::Handler;
use crate::pump::{Pump, PumpEnd, PumpSpec, Signals, Throttle};
use crate::reconnect::Backoff;
use crate::scope::HostScope;
use crate::sender::Bus;
use crate::singleton::{Keeper, Term};

/// What all processors of a running host share.
pub(super) struct Common {
    pub(super) stores: Arc<Stores>,
    pub(super) scope: Arc<HostScope>,
    pub(super) around: Around,
    pub(super) clock: crate::clock::Clock,
    pub(super) signals: Signals,
    pub(super) board: Board,
    pub(super) monitor: Arc<Monitor>,
    throttle: Throttle,
}

/// A host that has been started and not yet been stopped.
pub(super) struct Running {
    pub(super) common: Arc<Common>,
    pub(super) bus: Bus,
    pub(super) keeper: Option<Arc<Keeper>>,
    pub(super) runners: JoinSet<PumpEnd>,
    pub(super) plugins: Plugins,
    pub(super) bound: Bound,
    pub(super) grace: Duration,
}

/// Opens everything, and gives up, closing what was opened, at the first thing that fails. `None` if it was called off before
/// anything was consumed; later, the host that is answered is about to stop.
pub(super) async fn start(
    plan: Plan,
    called_off: CancellationToken,
    failing: Failing,
) -> Result<Option<HostHandle>> {
    let stopping = called_off.child_token();
    let bound = Bound::default();
    let plugins = Plugins::prepared(plugins(&plan, &bound, &stopping), plan.around.redact.clone())?;
    let needed = plan.processors.iter().any(|planned| planned.lock.is_some())
        || plan.plugins.iter().any(|plugin| plugin.needs_locks());
    let locks = needed && plan.locks.is_some();
    let opened = Opened {
        stores: Arc::new(Stores::awaited(plan.transports.keys(), locks)),
        keeper: if locks { Some(keeper(&plan)?) } else { None },
        stopping: stopping.clone(),
    };
    let started = tokio::select! {
        biased;
        started = opened.start(plan, (plugins, bound)) => started,
        () = stopping.cancelled() => return Ok(None),
    };
    match started {
        Ok((running, context, openings)) => {
            started_beside(running, context, openings, failing).await.map(Some)
        }
        Err(error) => {
            opened.close().await;
            Err(error)
        }
    }
}

/// What concerns the end of a host whose start has failed although processors were at work already.
#[derive(Clone, Debug, Default)]
pub(super) struct Failing {
    /// Ends its grace period.
    pub(super) hurry: CancellationToken,
    /// Fires if runs were dropped, or could not even be: something of them may be on the runtime's threads.
    pub(super) left_behind: CancellationToken,
}

/// All plugins: first the host's own, so that a probe is answered as soon as possible.
fn plugins(plan: &Plan, bound: &Bound, stopping: &CancellationToken) -> Vec<Arc<dyn Plugin>> {
    let mut plugins: Vec<Arc<dyn Plugin>> = Vec::new();
    if plan.addresses.health.is_some() || plan.addresses.alive.is_some() {
        plugins.push(Arc::new(Liveness::at(plan.addresses, bound.clone(), stopping.clone())));
    }
    plugins.extend(plan.plugins.iter().cloned());
    plugins
}

/// Starts the plugins of a host whose processors are at work. If that fails, or whoever asked for it does not wait any more,
/// the host comes to its end as at any other time.
async fn started_beside(
    mut running: Running,
    context: PluginContext,
    openings: Openings,
    failing: Failing,
) -> Result<HostHandle> {
    if running.plugins.is_empty() {
        // Nothing is waited for, so that what was started is not even polled before its owner has it in hand.
        running.common.monitor.has_started();
        return Ok(HostHandle::over(running, openings));
    }
    let waits = CancellationToken::new();
    let (gone, waits) = (waits.clone(), waits.drop_guard());
    let starting = tokio::spawn(async move {
        let outcome = tokio::select! {
            biased;
            outcome = running.plugins.start(&context) => outcome,
            () = gone.cancelled() => Err(called_off()),
        };
        match outcome {
            Ok(()) => {
                running.common.monitor.has_started();
                Ok(HostHandle::over(running, openings))
            }
            Err(error) => {
                drop(openings);
                // Why it ends is known; how it ended has been told where it went wrong.
                let cut = running.common.signals.cut.clone();
                let ended = shutdown::shut_down(running, failing.hurry).await;
                if ended.is_err() || cut.is_cancelled() {
                    failing.left_behind.cancel();
                }
                Err(error)
            }
        }
    });
    let started = starting.await.unwrap_or_else(|e| {
        Err(Error::new(ErrorKind::Internal, "the host's start ended before it could say how").caused_by(e))
    });
    waits.disarm();
    started
}

/// A start that nobody waits for any more.
pub(super) fn called_off() -> Error {
    Error::new(ErrorKind::Closed, "the host was asked to stop while it was being started")
}

/// Where the locks are kept. Virtual time is a runtime's own: a thread beside it would keep them by another clock.
fn keeper(plan: &Plan) -> Result<Arc<Keeper>> {
    Ok(Arc::new(match plan.clock.is_virtual() {
        true => Keeper::in_current_runtime(plan.clock.clone()),
        false => Keeper::start()?,
    }))
}

/// What is open, or being opened.
struct Opened {
    stores: Arc<Stores>,
    /// There if anything needs locks.
    keeper: Option<Arc<Keeper>>,
    stopping: CancellationToken,
}

impl Opened {
    async fn start(
        &self,
        mut plan: Plan,
        (plugins, bound): (Plugins, Bound),
    ) -> Result<(Running, PluginContext, Openings)> {
        let names = plan.transports.keys().cloned();
        let meter = plan.measuring.meter();
        let bus = Bus::awaiting(names, plan.clock.clone(), meter.clone()).passing(plan.outgoing);
        let addresses: Vec<_> =
            plan.transports.iter().map(|(name, source)| (name.clone(), source.shown())).collect();
        let wanted = Arc::new(Wanted {
            processors: plan.processors,
            locks_reach: plan.locks_reach,
            on_store_down: plan.on_store_down,
            store_wait_limit: plan.store_wait_limit,
            options: OpenOptions::new(plan.clock.clone()),
            stores: Arc::clone(&self.stores),
            bus: bus.clone(),
            judging: Mutex::new(()),
        });
        let locks = self.keeper.clone().zip(plan.locks.take());
        let mut openings = Openings::begin(&wanted, plan.transports, locks);
        openings.first_look().await?;

        plan.values.insert(Arc::new(bus.clone()));
        let scope = HostScope::build(plan.values, &plan.providers).await?;
        report::started(&wanted.processors, &addresses, &self.stores, plan.fallback);

        let board = Board::of(&wanted.processors);
        let monitor = Arc::new(Monitor {
            stores: Arc::clone(&self.stores),
            board: board.clone(),
            depths: Arc::default(),
            clock: plan.clock.clone(),
            throttle: plan.throttle.clone(),
            stopping: self.stopping.clone(),
            started: false.into(),
            meter,
        });
        #[cfg(feature = "opentelemetry")]
        plan.measuring.observe(&monitor);
        let common = Arc::new(Common {
            stores: Arc::clone(&self.stores),
            scope,
            around: plan.around,
            clock: plan.clock,
            signals: Signals::default(),
            board,
            monitor: Arc::clone(&monitor),
            throttle: plan.throttle,
        });
        let mut runners = JoinSet::new();
        runners.spawn(Arc::clone(&monitor.depths).look(Arc::clone(&common)));
        for planned in &wanted.processors {
            let (common, planned) = (Arc::clone(&common), planned.clone());
            match (planned.lock.clone(), &self.keeper) {
                (Some(lock), Some(keeper)) => {
                    runners.spawn(singleton(common, planned, lock, Arc::clone(keeper), plan.on_overrun));
                }
                _ => {
                    runners.spawn(plain(common, planned));
                }
            }
        }
        for transport in self.stores.transport_names() {
            let attendant =
                Attendant::new(&common, &bus, transport, &wanted.processors, plan.warn_unread_after);
            runners.spawn(attendant.run());
        }
        let context = PluginContext {
            bus: bus.clone(),
            scope: Arc::clone(&common.scope),
            stores: Arc::clone(&self.stores),
            monitor,
            keeper: self.keeper.clone(),
            lock_timing: plan.lock_timing,
            on_overrun: plan.on_overrun,
            namespace: plan.namespace,
        };
        let keeper = self.keeper.clone();
        let running = Running { common, bus, keeper, runners, plugins, bound, grace: plan.grace };
        Ok((running, context, openings))
    }

    async fn close(self) {
        self.stores.close_transports().await;
        if let Some(keeper) = self.keeper {
            let stores = self.stores;
            let at_once = std::future::ready(());
            keeper.close_after(at_once, async move { stores.close_locks().await }).await;
        }
    }
}

/// Competes for a singleton's lock, as soon as its stores are there, until the host stops.
async fn singleton(
    common: Arc<Common>,
    planned: Planned,
    lock: PlannedLock,
    keeper: Arc<Keeper>,
    on_overrun: OnOverrun,
) -> PumpEnd {
    let name = planned.processor.name;
    let there = async {
        let locks = common.stores.locks_when_there().await;
        common.stores.transport_when_there(planned.processor.transport).await?;
        Ok::<_, Error>(locks)
    };
    let locks = tokio::select! {
        () = common.signals.stop.cancelled() => return PumpEnd::Clean,
        locks = there => locks,
    };
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        let candidate = locks
            .clone()
            .and_then(|locks| Candidate::new(&common, planned.clone(), &lock, locks, on_overrun));
        let end = match candidate {
            Ok(candidate) => candidate.run(Arc::clone(&keeper)).await,
            Err(error) => {
                // Both were looked at when the stores were opened.
                tracing::error!(target: "bus::host", name, error = ?error, "the singleton cannot be a candidate for its lock");
                return PumpEnd::Failed;
            }
        };
        if common.signals.stop.is_cancelled() {
            return end;
        }
        // Its task on the keeper panicked, which has been reported by its hook; the lock is left to its lease.
        tracing::error!(target: "bus::host", name, "the singleton competes for its lock no more, which is a defect; it begins anew");
        tokio::select! {
            () = common.signals.stop.cancelled() => return end,
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}

/// Pumps a plain processor's endpoint, as soon as its store is there, until the host stops; a pump that ends before that
/// is replaced.
async fn plain(common: Arc<Common>, planned: Planned) -> PumpEnd {
    let endpoint = Arc::new(planned.processor.endpoint.clone());
    tokio::select! {
        () = common.signals.stop.cancelled() => return PumpEnd::Clean,
        // That there is no such transport is said when a consumer is to be opened.
        _ = common.stores.transport_when_there(planned.processor.transport) => {}
    }
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
    loop {
        let spec = ConsumerSpec::new(Arc::clone(&endpoint), planned.settings.lease);
        let pulse = spec.pulse.clone();
        common.board.opens(&planned, common.clock.now());
        let opened = tokio::select! {
            () = common.signals.stop.cancelled() => return PumpEnd::Clean,
            opened = open(&common, &planned, spec) => opened,
        };
        match opened {
            Ok(consumer) => {
                let consumer = (consumer, pulse);
                let mut pump = common.pump(&planned, &endpoint, consumer, common.signals.clone(), None);
                let end = pump.join().await;
                if common.signals.stop.is_cancelled() {
                    return end;
                }
                tracing::error!(target: "bus::host", %endpoint, "the pump ended by itself; starting another");
            }
            Err(error) => {
                common.board.cannot_open(&planned, error.kind());
                tracing::warn!(target: "bus::host", %endpoint, error = ?error, "cannot open a consumer; trying again")
            }
        }
        tokio::select! {
            () = common.signals.stop.cancelled() => return PumpEnd::Clean,
            () = tokio::time::sleep(backoff.next()) => {}
        }
    }
}

/// Opens a consumer for `planned`.
pub(super) async fn open(
    common: &Common,
    planned: &Planned,
    spec: ConsumerSpec,
) -> Result<Arc<dyn Consumer>> {
    let spec = spec.ordered(planned.settings.order);
    let transport = common.stores.transport(planned.processor.transport)?;
    match transport.consumer(spec.clone()).await {
        // Somebody has removed it since it was prepared: a subscription that seemed to be read by nobody, say.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            transport.prepare(std::slice::from_ref(&*spec.endpoint)).await?;
            transport.consumer(spec).await
        }
        opened => opened,
    }
}

impl Common {
    /// Starts a pump of `planned`, whose consumer notes in its pulse that the store answers.
    pub(super) fn pump(
        &self,
        planned: &Planned,
        endpoint: &Arc<Endpoint>,
        (consumer, pulse): (Arc<dyn Consumer>, Pulse),
        signals: Signals,
        term: Option<Term>,
    ) -> Pump {
        let transport = self.stores.transport(planned.processor.transport);
        let fenced = transport.is_ok_and(|transport| transport.capabilities().fencing.is_some());
        let pipeline = Pipeline::new(
            Arc::clone(endpoint),
            planned.settings.clone(),
            self.around.of(&planned.processor),
            handler_in(term.clone(), Arc::clone(&planned.processor.handler)),
            planned.processor.before_dead_letter.clone().map(|hook| hook_in(term.clone(), hook)),
            signals.cut.clone(),
        )
        .redacting(self.around.redact.clone())
        .scoped(planned.processor.requires.iter().any(|need| need.scoped));
        let fence = term.as_ref().map(Term::fence);
        let spec = PumpSpec {
            endpoint: Arc::clone(endpoint),
            transport: planned.processor.transport,
            settings: planned.settings.clone(),
            consumer,
            pipeline,
            host: Arc::clone(&self.scope),
            clock: self.clock.clone(),
            term,
            fenced,
            lock_lease: planned.lock.as_ref().map(|lock| lock.timing.lock_lease()),
            throttle: self.throttle.clone(),
            pulse,
            runs: self.monitor.meter.runs(planned.processor.transport, endpoint),
        };
        let pump = Pump::start(spec, signals);
        self.board.pumps(planned, &pump, fence);
        pump
    }
}

/// What a pipeline calls before a message is dead-lettered: the hook, unless its term has ended.
fn hook_in(term: Option<Term>, hook: HookFn) -> HookFn {
    match term {
        None => hook,
        Some(term) => Arc::new(move |delivery, reason, error| match term.check() {
            Ok(()) => hook(delivery, reason, error),
            Err(_) => Box::pin(std::future::ready(Verdict::Release)),
        }),
    }
}

/// What a pipeline calls at its end: the handler, unless its term has ended while a middleware had the message.
fn handler_in(term: Option<Term>, handler: Arc<dyn Handler>) -> HandlerFn {
    match term {
        None => Arc::new(move |delivery| handler.call(delivery)),
        Some(term) => Arc::new(move |delivery| match term.check() {
            Ok(()) => handler.call(delivery),
            Err(_) => Box::pin(std::future::ready(Verdict::Release)),
        }),
    }
}
