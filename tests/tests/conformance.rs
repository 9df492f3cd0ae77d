//! Both conformance suites over every backend of this build. A case that a backend cannot run is shown as ignored, and
//! is a failure with `BUS_TEST_STRICT=1`, as CI sets it.

use std::any::Any;
use std::time::Duration;

use bus::ErrorKind;
use bus::clock::Clock;
use bus::conformance::{Case, Need, Outcome, Setup, Timing, UrlSubject, lock, transport};
use bus::contract::BoxFuture;
use bus_emulators::Azurite;
use bus_emulators::sas;
use bus_tests::nats::{self, Nats};
use bus_tests::pgbouncer::{self, PgBouncer};
use bus_tests::postgres::{self, Database};
use bus_tests::redis::{self, Redis};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

/// A backend, and the runtime that its cases run in.
#[derive(Clone, Copy)]
struct Backend {
    name: &'static str,
    runtime: fn() -> std::io::Result<Runtime>,
    /// A store of its own for each case, and what has to live as long as it.
    open: fn() -> BoxFuture<'static, bus::Result<(UrlSubject, Keep)>>,
}

/// Kept until a case is over.
type Keep = Option<Box<dyn Any>>;

fn backends() -> Vec<Backend> {
    vec![
        Backend { name: "memory", runtime: paused, open: || Box::pin(async { memory() }) },
        Backend { name: "memory-threads", runtime: threads, open: || Box::pin(async { memory() }) },
        Backend { name: "sqlite", runtime: threads, open: || Box::pin(async { sqlite() }) },
        Backend { name: "postgres", runtime: threads, open: || Box::pin(in_postgres()) },
        Backend { name: "postgres-pooled", runtime: threads, open: || Box::pin(in_pooled_postgres()) },
        Backend { name: "nats", runtime: threads, open: || Box::pin(async { in_nats() }) },
        Backend { name: "redis", runtime: threads, open: || Box::pin(async { in_redis() }) },
    ]
}

/// Backends whose messages and locks are opened apart.
fn transports() -> Vec<Backend> {
    vec![Backend { name: "azure_storage", runtime: threads, open: || Box::pin(async { azure_queues() }) }]
}

fn lock_managers() -> Vec<Backend> {
    vec![
        Backend { name: "azure_storage", runtime: threads, open: || Box::pin(async { azure_blobs() }) },
        Backend { name: "file", runtime: threads, open: || Box::pin(async { file("") }) },
        Backend { name: "file-fleet", runtime: threads, open: || Box::pin(async { file(FLEET) }) },
    ]
}

/// What a backend does not have. Its cases are left out instead of being shown as ignored: whatever else
/// does not run is something to look at.
const LACKING: &[(&str, Need)] = &[
    // A blob's lease tells nobody that it was released.
    ("azure_storage", Need::Watch),
    // A queue of Azure's knows messages by their ids, and nothing else: no rows, no transactions.
    ("azure_storage", Need::Fencing),
    // What becomes visible again goes to the end, or nearly so; and it counts what it has, in whatever state.
    ("azure_storage", Need::StrictOrder),
    ("azure_storage", Need::KeptOrder),
    ("azure_storage", Need::ExactDepth),
    // Nobody hears of what other machines write.
    ("file-fleet", Need::Watch),
    // Behind a pooler nobody listens.
    ("postgres-pooled", Need::Watch),
];

fn lacks<S>(backend: Backend, case: &Case<S>) -> bool {
    LACKING.iter().any(|(name, need)| *name == backend.name && case.needs.contains(need))
}

fn memory() -> bus::Result<(UrlSubject, Keep)> {
    Ok((UrlSubject::new(&format!("memory://{}", uuid::Uuid::new_v4()))?, None))
}

fn sqlite() -> bus::Result<(UrlSubject, Keep)> {
    let directory = directory()?;
    let url = format!("sqlite://{}", directory.path().join("bus.db").display());
    Ok((
        UrlSubject::new(&url)?.with_clock(Clock::system()).with_timing(of_real_stores()),
        Some(Box::new(directory)),
    ))
}

/// Leases that a busy machine does not eat up: what is late by a second has missed nothing.
fn of_real_stores() -> Timing {
    Timing::default().lease(Duration::from_secs(2))
}

fn directory() -> bus::Result<tempfile::TempDir> {
    tempfile::tempdir()
        .map_err(|error| bus::Error::new(ErrorKind::Internal, "no directory for the store").caused_by(error))
}

/// The directory is no other machine's, which is not what these cases are about.
const FLEET: &str = "?reach=fleet&file_system=any";

fn file(parameters: &str) -> bus::Result<(UrlSubject, Keep)> {
    let directory = directory()?;
    let url = format!("file://{}{parameters}", directory.path().join("locks").display());
    Ok((
        UrlSubject::new(&url)?.with_clock(Clock::system()).with_timing(of_real_stores()),
        Some(Box::new(directory)),
    ))
}

async fn in_postgres() -> bus::Result<(UrlSubject, Keep)> {
    if postgres::installed().is_none() {
        return Err(bus::Error::new(ErrorKind::Unavailable, "Postgres is not installed"));
    }
    let database = Database::create().await;
    Ok((
        UrlSubject::new(&database.url())?.with_clock(Clock::system()).with_timing(of_real_stores()),
        Some(Box::new(database)),
    ))
}

/// The same behind PgBouncer in transaction mode: M14.
async fn in_pooled_postgres() -> bus::Result<(UrlSubject, Keep)> {
    if postgres::installed().is_none() {
        return Err(bus::Error::new(ErrorKind::Unavailable, "Postgres is not installed"));
    }
    if let Some(missing) = pgbouncer::missing() {
        return Err(bus::Error::new(ErrorKind::Unavailable, missing));
    }
    let database = Database::create().await;
    let pooler = PgBouncer::start(database.port());
    let timing = of_real_stores().histories(6);
    Ok((
        UrlSubject::new(&pooler.url(database.name()))?.with_clock(Clock::system()).with_timing(timing),
        Some(Box::new((pooler, database))),
    ))
}

fn in_nats() -> bus::Result<(UrlSubject, Keep)> {
    if let Some(missing) = nats::missing() {
        return Err(bus::Error::new(ErrorKind::Unavailable, missing));
    }
    let server = Nats::start();
    let subject = UrlSubject::new(&server.url("conformance"))?
        .with_clock(Clock::system())
        .with_timing(of_real_stores());
    Ok((subject, Some(Box::new(server))))
}

fn in_redis() -> bus::Result<(UrlSubject, Keep)> {
    if let Some(missing) = redis::missing() {
        return Err(bus::Error::new(ErrorKind::Unavailable, missing));
    }
    let server = Redis::start(redis::FORGETFUL);
    let subject = UrlSubject::new(&server.url("conformance"))?
        .with_clock(Clock::system())
        .with_timing(of_real_stores());
    Ok((subject, Some(Box::new(server))))
}

/// The shortest lease that Azure gives, and so the longest waits of all.
fn azure_blobs() -> bus::Result<(UrlSubject, Keep)> {
    let azurite = Azurite::shared().map_err(unavailable)?;
    let sas = sas::of_account(azurite.account(), azurite.key(), "rcwl");
    let account = azurite.blob_endpoint().trim_start_matches("http://");
    let url = format!("azblob://{account}/locks-{}?{sas}", uuid::Uuid::new_v4());
    let timing = Timing::default()
        .lease(Duration::from_secs(15))
        .moment(Duration::from_millis(50))
        .patience(Duration::from_secs(90));
    Ok((UrlSubject::new(&url)?.with_clock(Clock::system()).with_timing(timing), None))
}

/// Times in whole seconds, which is what Azure's queues count in; and short queues, since its emulator looks through all
/// messages each time.
fn azure_queues() -> bus::Result<(UrlSubject, Keep)> {
    let azurite = Azurite::shared().map_err(unavailable)?;
    let sas = sas::of_services(azurite.account(), azurite.key(), "bq", "rwdlacup");
    let queues = azurite.queue_endpoint().trim_start_matches("http://");
    let (blobs, _) =
        azurite.blob_endpoint().trim_start_matches("http://").split_once('/').unwrap_or_default();
    let prefix: String = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
    let url = format!("azqueue://{queues}/{prefix}?{sas}&blobs={blobs}&poll=100ms");
    let timing = Timing::default()
        .lease(Duration::from_secs(2))
        .moment(Duration::from_secs(1))
        .patience(Duration::from_secs(60))
        .histories(6)
        .many(400);
    Ok((UrlSubject::new(&url)?.with_clock(Clock::system()).with_timing(timing), None))
}

/// An emulator that this machine cannot have is [`ErrorKind::Unavailable`]: its cases are not run.
fn unavailable(error: bus_emulators::Error) -> bus::Error {
    let kind = if error.is_unavailable() { ErrorKind::Unavailable } else { ErrorKind::Internal };
    bus::Error::new(kind, error.to_string())
}

/// On tokio's virtual time, which takes none.
fn paused() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// On real time and several threads.
fn threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn main() {
    let strict = std::env::var("BUS_TEST_STRICT").is_ok_and(|strict| strict == "1");
    let mut trials = Vec::new();
    for backend in backends().into_iter().chain(transports()) {
        for case in transport::cases().into_iter().filter(|case| !lacks(backend, case)) {
            let name = format!("{}::transport::{}", backend.name, case.name);
            let run = move || run(backend, &case, strict, |subject| subject);
            trials.push(Trial::ignorable_test(name, run));
        }
    }
    for backend in backends().into_iter().chain(lock_managers()) {
        for case in lock::cases().into_iter().filter(|case| !lacks(backend, case)) {
            let name = format!("{}::lock::{}", backend.name, case.name);
            let run = move || run(backend, &case, strict, |subject| subject);
            trials.push(Trial::ignorable_test(name, run));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs one case on a fresh store of a backend.
fn run<S: Setup>(
    backend: Backend,
    case: &Case<S>,
    strict: bool,
    as_subject: fn(&UrlSubject) -> &S::Subject,
) -> Result<Completion, Failed> {
    let runtime = (backend.runtime)()?;
    let outcome = runtime.block_on(async {
        let (subject, _keep) = match (backend.open)().await {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return Ok(Outcome::Unavailable(error.to_string()));
            }
            Err(error) => return Err(Failed::from(error)),
        };
        Ok::<_, Failed>(case.run(as_subject(&subject)).await)
    })?;
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Unavailable(why) if strict => Err(format!("not run: {why}").into()),
        Outcome::Unavailable(why) => Ok(Completion::ignored_with(why)),
        Outcome::Failed(failure) => Err(failure.to_string().into()),
    }
}
