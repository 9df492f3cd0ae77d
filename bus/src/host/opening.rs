//! Opens the stores of a host, each by itself. One that is not there when the host starts is waited for, or ends the start:
//! [`OnStoreDown`] says which. What waiting cannot mend ends it in either case.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::candidate::Candidate;
use super::config::OnStoreDown;
use super::report;
use super::stores::{LOCKS, Stores};
use super::wiring::{self, Planned, Source};
use crate::contract::{
    BoxFuture, LockGuarantees, LockManager, OpenLocks, OpenOptions, Reach, StoreUrl, Transport,
};
use crate::error::{Error, ErrorKind, Result};
use crate::reconnect::Backoff;
use crate::sender::Bus;
use crate::singleton::Keeper;

/// How long a store may take to be opened or prepared in one attempt. Every backend has deadlines of its own; one that
/// forgets them in some place, or a store that a frozen process keeps to itself, is said here and not waited for.
const PATIENCE: Duration = Duration::from_secs(55);
/// How long a store may take before it is said that it is waited for, and everything else begins without it.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// How often it is said again.
const NEXT_WORD: Duration = Duration::from_secs(30);
/// The pauses between attempts: short, so that a store that has come is found soon.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));

/// What is needed to open stores and to judge what they are.
pub(super) struct Wanted {
    pub(super) processors: Vec<Planned>,
    pub(super) locks_reach: Option<Reach>,
    pub(super) on_store_down: OnStoreDown,
    pub(super) store_wait_limit: Option<Duration>,
    pub(super) options: OpenOptions,
    pub(super) stores: Arc<Stores>,
    pub(super) bus: Bus,
    /// One store at a time is judged beside those that are there.
    pub(super) judging: Mutex<()>,
}

/// Stores that are being opened. Dropping it gives up those that are not open.
pub(super) struct Openings {
    tasks: JoinSet<Result<()>>,
    looked: UnboundedReceiver<()>,
    stores: usize,
}

impl Openings {
    /// Begins to open transports, and the lock manager on its keeper.
    pub(super) fn begin(
        wanted: &Arc<Wanted>,
        transports: wiring::Transports,
        locks: Option<(Arc<Keeper>, Source<dyn LockManager>)>,
    ) -> Self {
        let (look, looked) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for (name, source) in transports {
            let what = ("transport", name.clone());
            let waiting = Waiting::new(wanted, &name, what, (source.shown(), source.written()), &look);
            tasks.spawn(transport(Arc::clone(wanted), name, source, waiting));
        }
        if let Some((keeper, source)) = locks {
            let what = ("what", "the lock manager".to_owned());
            let waiting = Waiting::new(wanted, LOCKS, what, (source.shown(), source.written()), &look);
            tasks.spawn(locks_on(keeper, Arc::clone(wanted), source, waiting));
        }
        Openings { stores: tasks.len(), tasks, looked }
    }

    /// Waits until each store is either open, or said to be waited for.
    pub(super) async fn first_look(&mut self) -> Result<()> {
        let mut looked = 0;
        while looked < self.stores {
            tokio::select! {
                // A store that cannot be had is heard of before any that can.
                biased;
                Some(ended) = self.tasks.join_next() => outcome(ended)?,
                Some(()) = self.looked.recv() => looked += 1,
            }
        }
        Ok(())
    }

    /// Waits for a store that waiting does not bring: never, if all are open in the end.
    pub(super) async fn failure(&mut self) -> Error {
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = outcome(ended) {
                return error;
            }
        }
        std::future::pending().await
    }
}

fn outcome(ended: Result<Result<()>, JoinError>) -> Result<()> {
    ended.unwrap_or_else(|e| {
        Err(Error::new(ErrorKind::Internal, "a store's opening ended before it could say how").caused_by(e))
    })
}

async fn transport(
    wanted: Arc<Wanted>,
    name: String,
    source: Source<dyn Transport>,
    mut waiting: Waiting,
) -> Result<()> {
    let transport = match source {
        Source::Given(transport) => transport,
        Source::Url(url, scheme, _) => {
            let open = scheme.transport.ok_or_else(|| {
                Error::new(ErrorKind::Config, format!("{}:// carries no messages", url.scheme()))
            })?;
            waiting.until_done(|| open(&url, &wanted.options)).await?
        }
    };
    let own = |planned: &&Planned| planned.processor.transport == name;
    let processors: Vec<&Planned> = wanted.processors.iter().filter(own).collect();
    let endpoints: Vec<_> = processors.iter().map(|planned| planned.processor.endpoint.clone()).collect();
    let usable = async {
        wanted.judge(Some((&name, &transport)), None, || {})?;
        waiting.until_done(|| transport.prepare(&endpoints)).await?;
        waiting.until_done(|| Box::pin(refuse_bound_endpoints(&processors, &*transport))).await
    };
    if let Err(error) = usable.await {
        // It is nobody's yet.
        let _ = tokio::time::timeout(Duration::from_secs(1), transport.close()).await;
        return Err(error);
    }
    wanted.judge(Some((&name, &transport)), None, || {
        wanted.bus.reached(&name, &transport);
        wanted.stores.reached(&name, Arc::clone(&transport));
    })?;
    if waiting.is_over() {
        report::say(&report::transport(&name, &transport.guarantees(), ""));
        report::say_permitted(&wanted.processors, &wanted.stores);
    }
    Ok(())
}

/// Opens the lock manager, which is called on the keeper only.
async fn locks_on(
    keeper: Arc<Keeper>,
    wanted: Arc<Wanted>,
    source: Source<dyn LockManager>,
    mut waiting: Waiting,
) -> Result<()> {
    let locks = match source {
        Source::Given(locks) => locks,
        Source::Url(url, scheme, _) => {
            let open = scheme
                .locks
                .ok_or_else(|| Error::new(ErrorKind::Config, format!("{}:// has no locks", url.scheme())))?;
            waiting.until_done(|| open_locks(&keeper, open, &url, &wanted.options)).await?
        }
    };
    waiting
        .until_done(|| {
            let locks = Arc::clone(&locks);
            Box::pin(keeper.run(async move { locks.initialize().await }))
        })
        .await?;
    let promised = locks.guarantees();
    wanted.judge(None, Some(&locks), || wanted.stores.locks_reached(Arc::clone(&locks)))?;
    if waiting.is_over() {
        report::say(&report::locks(&promised));
        report::say_permitted(&wanted.processors, &wanted.stores);
    }
    Ok(())
}

fn open_locks<'a>(
    keeper: &'a Keeper,
    open: OpenLocks,
    url: &StoreUrl,
    options: &OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    let (url, options) = (url.clone(), options.clone());
    Box::pin(keeper.run(async move { open(&url, &options).await }))
}

impl Wanted {
    /// What only opened stores can tell: their reach, their powers, the leases that they take. One that has come is judged
    /// beside those that are there; `then` is done if all is well, before another one is judged.
    fn judge(
        &self,
        transport: Option<(&str, &Arc<dyn Transport>)>,
        locks: Option<&Arc<dyn LockManager>>,
        then: impl FnOnce(),
    ) -> Result<()> {
        let _one_at_a_time = self.judging.lock();
        let locks = locks.or(self.stores.locks());
        let promised = locks.map(|locks| locks.guarantees());
        let mut problems = Vec::new();
        for planned in &self.processors {
            let name = planned.processor.transport;
            let there = match transport {
                Some((new, transport)) if new == name => Some(transport),
                Some(_) => None,
                None => self.stores.transport(name).ok(),
            };
            let Some(there) = there else { continue };
            problems.extend(wiring::order_kept(&planned.processor, &planned.settings, &**there));
            problems.extend(wiring::retention_kept(&planned.processor, &planned.settings, &**there));
            if let (Some(lock), Some(locks), Some(promised)) = (&planned.lock, locks, &promised) {
                problems.extend(self.too_short(planned, promised, there.guarantees().reach));
                Candidate::lock(locks, lock, planned.processor.name)?;
            }
        }
        if !problems.is_empty() {
            return Err(Error::new(
                ErrorKind::Wiring,
                format!("the host does not start:\n  {}", problems.join("\n  ")),
            ));
        }
        then();
        Ok(())
    }

    fn too_short(&self, planned: &Planned, locks: &LockGuarantees, messages: Reach) -> Option<String> {
        wiring::too_short(&planned.processor, locks.reach, &locks.authority, messages, self.locks_reach)
    }
}

/// An endpoint that some fleet reads as a singleton's is not read by a plain processor beside it.
async fn refuse_bound_endpoints(processors: &[&Planned], transport: &dyn Transport) -> Result<()> {
    let Some(fencing) = transport.capabilities().fencing else { return Ok(()) };
    for planned in processors.iter().filter(|planned| planned.lock.is_none()) {
        let processor = &planned.processor;
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

/// The wait for one store: until when, and what is said meanwhile.
struct Waiting {
    /// The transport's name, or [`LOCKS`].
    store: String,
    /// The same, as an error says it.
    what: (&'static str, String),
    /// As people may see it.
    address: String,
    /// Where that was written.
    written: Option<String>,
    policy: OnStoreDown,
    began: Instant,
    until: Option<Instant>,
    next_word: Instant,
    said: bool,
    last: Option<Error>,
    pause: Backoff,
    /// To be told once that the store is open, or waited for.
    look: Option<UnboundedSender<()>>,
}

impl Waiting {
    fn new(
        wanted: &Wanted,
        store: &str,
        what: (&'static str, String),
        (address, written): (String, Option<String>),
        look: &UnboundedSender<()>,
    ) -> Self {
        let began = Instant::now();
        Waiting {
            store: store.to_owned(),
            what,
            address,
            written,
            policy: wanted.on_store_down,
            began,
            // One that a clock cannot reckon with is none.
            until: wanted.store_wait_limit.and_then(|limit| began.checked_add(limit)),
            next_word: began + FIRST_WORD,
            said: false,
            last: None,
            pause: PAUSES,
            look: Some(look.clone()),
        }
    }

    /// Does something with the store, again and again until it succeeds, or cannot.
    async fn until_done<'a, T>(&mut self, mut call: impl FnMut() -> BoxFuture<'a, Result<T>>) -> Result<T> {
        loop {
            let attempt = tokio::time::timeout(PATIENCE, call());
            let error =
                match self.beside(async { attempt.await.unwrap_or_else(|_| Err(unanswered())) }).await? {
                    Ok(done) => return Ok(done),
                    Err(error) => of_address(self.named(error), self.written.as_deref()),
                };
            if self.policy == OnStoreDown::Fail || !error.is_transient() {
                return Err(error);
            }
            self.last = Some(error);
            if !self.said {
                self.speak();
            }
            let pause = self.pause.next();
            self.beside(tokio::time::sleep(pause)).await?;
        }
    }

    /// Waits for `work`, and says meanwhile that it is waited for; no longer than the limit.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        tokio::pin!(work);
        loop {
            let until = self.until;
            let limit = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = limit, if self.policy == OnStoreDown::Wait => return Err(self.gave_up()),
                () = tokio::time::sleep_until(self.next_word), if self.policy == OnStoreDown::Wait => self.speak(),
            }
        }
    }

    fn speak(&mut self) {
        self.said = true;
        self.next_word = Instant::now() + NEXT_WORD;
        report::waiting(&self.store, &self.address, self.began.elapsed(), self.last.as_ref());
        self.looked();
    }

    /// The store is open. Answers whether it was said that it is waited for.
    fn is_over(&mut self) -> bool {
        if self.said {
            report::reached(&self.store, &self.address, self.began.elapsed());
        }
        self.looked();
        self.said
    }

    fn looked(&mut self) {
        if let Some(look) = self.look.take() {
            // A start that has been given up does not listen.
            let _ = look.send(());
        }
    }

    fn gave_up(&self) -> Error {
        let error = Error::new(
            ErrorKind::Unavailable,
            format!(
                "the store has not been there for {:.0?}, which is store_wait_limit",
                self.began.elapsed()
            ),
        );
        let error = self.named(error).with("address", &self.address);
        match &self.last {
            Some(last) => error.caused_by(last.clone()),
            None => error,
        }
    }

    fn named(&self, error: Error) -> Error {
        let (key, name) = &self.what;
        error.with(key, name)
    }
}

/// A mistake in an address is looked for where that was written.
fn of_address(error: Error, written: Option<&str>) -> Error {
    match written {
        Some(written) if error.kind() == ErrorKind::Config => error.with("written in", written),
        _ => error,
    }
}

fn unanswered() -> Error {
    Error::new(
        ErrorKind::Timeout,
        format!("the store has not answered within {PATIENCE:?}: see whether it runs, and who keeps it busy"),
    )
}

/// Opens transports for sending alone: all of them, now, or none.
pub(super) async fn transports_now(
    sources: wiring::Transports,
    options: &OpenOptions,
) -> Result<std::collections::BTreeMap<String, Arc<dyn Transport>>> {
    let mut transports = std::collections::BTreeMap::new();
    for (name, source) in sources {
        let transport = match source {
            Source::Given(transport) => transport,
            Source::Url(url, scheme, written) => {
                let open = scheme.transport.ok_or_else(|| {
                    Error::new(ErrorKind::Config, format!("{}:// carries no messages", url.scheme()))
                })?;
                let answer = tokio::time::timeout(PATIENCE, open(&url, options)).await;
                let answer = answer.unwrap_or_else(|_| Err(unanswered()));
                answer.map_err(|error| of_address(error.with("transport", &name), Some(&written)))?
            }
        };
        transports.insert(name, transport);
    }
    Ok(transports)
}
