//! Both conformance suites over every backend of this build. A case that a backend cannot run is shown as ignored, and
//! is a failure with `BUS_TEST_STRICT=1`, as CI sets it.

use bus::clock::Clock;
use bus::conformance::{Case, Outcome, Setup, UrlSubject, lock, transport};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

/// A backend, and the runtime that its cases run in.
#[derive(Clone, Copy)]
struct Backend {
    name: &'static str,
    runtime: fn() -> std::io::Result<Runtime>,
    /// A store of its own for each case, and what has to live as long as it.
    open: fn() -> bus::Result<(UrlSubject, Keep)>,
}

/// Kept until a case is over.
type Keep = Option<tempfile::TempDir>;

fn backends() -> Vec<Backend> {
    vec![
        Backend { name: "memory", runtime: paused, open: memory },
        Backend { name: "memory-threads", runtime: threads, open: memory },
        Backend { name: "sqlite", runtime: threads, open: sqlite },
    ]
}

fn memory() -> bus::Result<(UrlSubject, Keep)> {
    Ok((UrlSubject::new(&format!("memory://{}", uuid::Uuid::new_v4()))?, None))
}

fn sqlite() -> bus::Result<(UrlSubject, Keep)> {
    let directory = tempfile::tempdir().map_err(|error| {
        bus::Error::new(bus::ErrorKind::Internal, "no directory for the store").caused_by(error)
    })?;
    let url = format!("sqlite://{}", directory.path().join("bus.db").display());
    Ok((UrlSubject::new(&url)?.with_clock(Clock::system()), Some(directory)))
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
    for backend in backends() {
        for case in transport::cases() {
            let name = format!("{}::transport::{}", backend.name, case.name);
            let run = move || run(backend, &case, strict, |subject| subject);
            trials.push(Trial::ignorable_test(name, run));
        }
        for case in lock::cases() {
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
        let (subject, _keep) = (backend.open)()?;
        Ok::<_, Failed>(case.run(as_subject(&subject)).await)
    })?;
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Unavailable(why) if strict => Err(format!("not run: {why}").into()),
        Outcome::Unavailable(why) => Ok(Completion::ignored_with(why)),
        Outcome::Failed(failure) => Err(failure.to_string().into()),
    }
}
