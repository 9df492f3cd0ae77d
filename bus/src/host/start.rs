//! Connects what the plan names, and starts a pump or a candidate for each processor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::candidate::Candidate;
use super::handle::HostHandle;
use super::report;
use super::wiring::{self, Plan, Planned, Source};
use crate::contract::{Consumer, ConsumerSpec, Inspect, LockGuarantees, LockManager, OpenOptions, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Verdict};
use crate::pipeline::{HandlerFn, Middleware, Pipeline};
use crate::processor::Handler;
use crate::pump::{Pump, PumpEnd, PumpSpec, Signals};
use crate::reconnect::Backoff;
use crate::registry;
use crate::scope::HostScope;
use crate::sender::Bus;
use crate::singleton::{Keeper, Term};

/// The transports of a host, opened, by name.
pub(super) type Transports = BTreeMap<String, Arc<dyn Transport>>;

/// What all processors of a running host share.
pub(super) struct Common {
    pub(super) transports: Transports,
    pub(super) scope: Arc<HostScope>,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) clock: crate::clock::Clock,
    pub(super) signals: Signals,
    pub(super) board: Board,
}

/// Shows which messages run where.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<BTreeMap<(&'static str, Endpoint), crate::pump::PumpView>>>);

impl Board {
    fn post(&self, transport: &'static str, endpoint: &Endpoint, pump: &Pump) {
        self.0.lock().insert((transport, endpoint.clone()), pump.view());
    }

    /// What runs, for people: `queue: id, id`.
    pub(super) fn running(&self) -> Vec<String> {
        let board = self.0.lock();
        board
            .iter()
            .filter_map(|((_, endpoint), pump)| {
                let ids: Vec<_> = pump.running().iter().map(ToString::to_string).collect();
                (!ids.is_empty()).then(|| format!("{endpoint}: {}", ids.join(", ")))
            })
            .collect()
    }
}

/// A host that has been started and not yet been stopped.
pub(super) struct Running {
    pub(super) common: Arc<Common>,
    pub(super) bus: Bus,
    pub(super) keeper: Option<Arc<Keeper>>,
    pub(super) locks: Option<Arc<dyn LockManager>>,
    pub(super) runners: JoinSet<PumpEnd>,
    pub(super) grace: Duration,
}

/// Opens everything, and gives up, closing what was opened, at the first thing that fails.
pub(super) async fn start(plan: Plan) -> Result<HostHandle> {
    let mut opened = Opened::default();
    match opened.start(plan).await {
        Ok(running) => Ok(HostHandle::over(running)),
        Err(error) => {
            opened.close().await;
            Err(error)
        }
    }
}

/// What has been opened so far.
#[derive(Default)]
struct Opened {
    transports: Transports,
    keeper: Option<Arc<Keeper>>,
    locks: Option<Arc<dyn LockManager>>,
}

impl Opened {
    async fn start(&mut self, mut plan: Plan) -> Result<Running> {
        let options = OpenOptions::new(plan.clock.clone());
        let locks = self.open_locks(&mut plan, &options).await?;
        self.locks.clone_from(&locks);
        let promised = locks.as_ref().map(|locks| locks.guarantees());
        self.transports = open_transports(&plan.transports, &options).await?;
        check_opened(&plan, &self.transports, promised.as_ref())?;
        prepare(&plan.processors, &self.transports).await?;
        refuse_bound_endpoints(&plan.processors, &self.transports).await?;

        let bus = Bus::over(&self.transports, plan.clock.clone());
        plan.values.insert(Arc::new(bus.clone()));
        let scope = HostScope::build(plan.values, &registry::providers()).await?;
        let guarantees: Vec<_> =
            self.transports.iter().map(|(name, transport)| (name.clone(), transport.guarantees())).collect();
        report::say(&report::lines(&plan.processors, &guarantees, plan.fallback, promised.as_ref()));
        report::warn_if_unheard();
        if let Some(locks) = &promised {
            report::say(&report::permitted(&plan.processors, &guarantees, locks));
        }

        let common = Arc::new(Common {
            transports: self.transports.clone(),
            scope,
            middleware: plan.middleware,
            clock: plan.clock,
            signals: Signals::default(),
            board: Board::default(),
        });
        let mut runners = JoinSet::new();
        for planned in plan.processors {
            match (planned.lock.clone(), &locks, &self.keeper) {
                (Some(lock), Some(locks), Some(keeper)) => {
                    let candidate = Candidate::new(&common, planned, &lock, locks, plan.on_overrun)?;
                    runners.spawn(candidate.run(Arc::clone(keeper)));
                }
                _ => {
                    runners.spawn(plain(Arc::clone(&common), planned));
                }
            }
        }
        Ok(Running { common, bus, keeper: self.keeper.take(), locks, runners, grace: plan.grace })
    }

    /// Starts the keeper, if anything needs one, and opens the lock manager on it.
    async fn open_locks(
        &mut self,
        plan: &mut Plan,
        options: &OpenOptions,
    ) -> Result<Option<Arc<dyn LockManager>>> {
        if plan.processors.iter().all(|planned| planned.lock.is_none()) {
            return Ok(None);
        }
        let Some(source) = plan.locks.take() else { return Ok(None) };
        let keeper = self.keeper.insert(Arc::new(Keeper::start()?));
        let options = options.clone();
        let locks = keeper.run(async move {
            let locks = match source {
                Source::Given(locks) => locks,
                Source::Url(url, scheme) => match scheme.locks {
                    Some(open) => open(&url, &options).await?,
                    None => {
                        return Err(Error::new(
                            ErrorKind::Config,
                            format!("{}:// has no locks", url.scheme()),
                        ));
                    }
                },
            };
            locks.initialize().await?;
            Ok(locks)
        });
        locks.await.map(Some).map_err(|error| error.with("what", "the lock manager"))
    }

    async fn close(self) {
        close_transports(&self.transports).await;
        if let Some(keeper) = self.keeper {
            keeper.close_after(Duration::ZERO, close_locks(self.locks)).await;
        }
    }
}

/// Closes the lock manager, if there is one. To be done in the keeper's runtime.
pub(super) async fn close_locks(locks: Option<Arc<dyn LockManager>>) {
    if let Some(locks) = locks {
        locks.close().await;
    }
}

/// Closes transports, each within a second: a dead broker holds nobody up.
pub(super) async fn close_transports(transports: &Transports) {
    let close = |(name, transport): (&String, &Arc<dyn Transport>)| {
        let (name, transport) = (name.clone(), Arc::clone(transport));
        async move {
            if tokio::time::timeout(Duration::from_secs(1), transport.close()).await.is_err() {
                tracing::warn!(target: "bus::host", transport = name, "the transport did not close within a second");
            }
        }
    };
    futures_util::future::join_all(transports.iter().map(close)).await;
}

pub(super) async fn open_transports(
    sources: &wiring::Transports,
    options: &OpenOptions,
) -> Result<Transports> {
    let mut transports = Transports::new();
    for (name, source) in sources {
        let transport = match source {
            Source::Given(transport) => Arc::clone(transport),
            Source::Url(url, scheme) => match scheme.transport {
                Some(open) => open(url, options).await.map_err(|error| error.with("transport", name))?,
                None => {
                    return Err(Error::new(
                        ErrorKind::Config,
                        format!("{}:// carries no messages", url.scheme()),
                    ));
                }
            },
        };
        transports.insert(name.clone(), transport);
    }
    Ok(transports)
}

/// What only the opened stores could tell: their reach, their powers, the leases that the locks can hold.
fn check_opened(plan: &Plan, transports: &Transports, locks: Option<&LockGuarantees>) -> Result<()> {
    let mut problems = Vec::new();
    for planned in &plan.processors {
        let (processor, settings) = (&planned.processor, &planned.settings);
        let transport = transport_of(transports, planned)?;
        problems.extend(wiring::order_kept(processor, settings, &**transport));
        if let (Some(lock), Some(locks)) = (&planned.lock, locks) {
            let reach = transport.guarantees().reach;
            problems.extend(wiring::too_short(
                processor,
                locks.reach,
                &locks.authority,
                reach,
                plan.locks_reach,
            ));
            let lease = lock.timing.lock_lease();
            if lease < locks.shortest_lease || lease > locks.longest_lease {
                problems.push(format!(
                    "{}: the lock of `{}` lasts {lease:?}, and {} takes {:?} to {:?}: set lock_lease accordingly",
                    wiring::place(processor), processor.name, locks.authority, locks.shortest_lease, locks.longest_lease
                ));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Wiring,
            format!("the host does not start:\n  {}", problems.join("\n  ")),
        )),
    }
}

async fn prepare(processors: &[Planned], transports: &Transports) -> Result<()> {
    for (name, transport) in transports {
        let endpoints: Vec<_> = processors
            .iter()
            .filter(|planned| planned.processor.transport == name)
            .map(|planned| planned.processor.endpoint.clone())
            .collect();
        transport.prepare(&endpoints).await.map_err(|error| error.with("transport", name))?;
    }
    Ok(())
}

/// An endpoint that some fleet reads as a singleton's is not read by a plain processor beside it.
async fn refuse_bound_endpoints(processors: &[Planned], transports: &Transports) -> Result<()> {
    for planned in processors.iter().filter(|planned| planned.lock.is_none()) {
        let processor = &planned.processor;
        let Some(fencing) = transport_of(transports, planned)?.capabilities().fencing else { continue };
        let Some(row) = fencing.row(&processor.endpoint).await? else { continue };
        if !row.bound_for.is_zero() {
            return Err(Error::new(
                ErrorKind::Wiring,
                format!(
                    "{}: `{}` is no singleton, but {} is being read as a singleton's under the lock {} (bound for another {:.0?}): stop that one, or wait as long if it has been stopped",
                    wiring::place(processor),
                    processor.name,
                    processor.endpoint,
                    row.lock,
                    row.bound_for
                ),
            ));
        }
    }
    Ok(())
}

pub(super) fn transport_of<'t>(
    transports: &'t Transports,
    planned: &Planned,
) -> Result<&'t Arc<dyn Transport>> {
    let name = planned.processor.transport;
    transports
        .get(name)
        .ok_or_else(|| Error::new(ErrorKind::UnknownTransport, format!("there is no transport {name:?}")))
}

/// Looks into the store of the transport of that name.
pub(super) fn inspect(transports: &Transports, name: &str) -> Result<Arc<dyn Inspect>> {
    let transport = transports
        .get(name)
        .ok_or_else(|| Error::new(ErrorKind::UnknownTransport, format!("there is no transport {name:?}")))?;
    transport.capabilities().inspect.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("the store of the transport {name:?} cannot be looked into"),
        )
    })
}

/// Pumps a plain processor's endpoint until the host stops; a pump that ends before that is replaced.
async fn plain(common: Arc<Common>, planned: Planned) -> PumpEnd {
    let endpoint = Arc::new(planned.processor.endpoint.clone());
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
    loop {
        let spec = ConsumerSpec::new(Arc::clone(&endpoint), planned.settings.lease);
        match open(&common, &planned, spec).await {
            Ok(consumer) => {
                let mut pump = common.pump(&planned, &endpoint, consumer, common.signals.clone(), None);
                let end = pump.join().await;
                if common.signals.stop.is_cancelled() {
                    return end;
                }
                tracing::error!(target: "bus::host", %endpoint, "the pump ended by itself; starting another");
            }
            Err(error) => {
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
    transport_of(&common.transports, planned)?.consumer(spec).await
}

impl Common {
    /// Starts a pump of `planned`.
    pub(super) fn pump(
        &self,
        planned: &Planned,
        endpoint: &Arc<Endpoint>,
        consumer: Arc<dyn Consumer>,
        signals: Signals,
        term: Option<Term>,
    ) -> Pump {
        let pipeline = Pipeline::new(
            Arc::clone(endpoint),
            planned.settings.clone(),
            self.middleware.clone(),
            handler_in(term.clone(), Arc::clone(&planned.processor.handler)),
            signals.cut.clone(),
        );
        let spec = PumpSpec {
            endpoint: Arc::clone(endpoint),
            transport: planned.processor.transport,
            settings: planned.settings.clone(),
            consumer,
            pipeline,
            host: Arc::clone(&self.scope),
            clock: self.clock.clone(),
            term,
            lock_lease: planned.lock.as_ref().map(|lock| lock.timing.lock_lease()),
        };
        let pump = Pump::start(spec, signals);
        self.board.post(planned.processor.transport, endpoint, &pump);
        pump
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
