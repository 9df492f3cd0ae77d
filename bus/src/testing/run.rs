//! What `#[bus::test]` calls.

use std::fmt::Debug;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::faults::hearing_complaints;
use super::host::TestHost;

/// How long work that blocks a thread may keep a test from ending after its last line.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What a test may return.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a test returns `()` or `Result<(), E>`, not `{Self}`",
    label = "cannot be returned by a test",
    note = "`E` is any error that is `Debug`: `bus::Error`, `anyhow::Error`, one of your own"
)]
pub trait Outcome {
    /// Why the test has failed.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<E: Debug> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Runs a test that makes its hosts by itself.
#[doc(hidden)]
pub fn run<F>(test: impl FnOnce() -> F)
where
    F: Future<Output: Outcome>,
{
    let (outcome, complaints) = hearing_complaints(|| in_paused_time(test()));
    if let Some(failure) = outcome.failure() {
        panic!("the test has failed: {failure}");
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Runs a test that is given a host of all processors.
#[doc(hidden)]
pub fn run_with_host<F>(test: impl FnOnce(TestHost) -> F)
where
    F: Future<Output: Outcome>,
{
    run(async || match TestHost::start().await {
        Ok(host) => test(host).await,
        Err(error) => panic!("{error:?}"),
    });
}

fn in_paused_time<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for the test: {error}"));
    Ending(Some(runtime)).block_on(test)
}

/// A runtime that ends in bounded time, also when the test has panicked.
struct Ending(Option<Runtime>);

impl Ending {
    fn block_on<F: Future>(self, test: F) -> F::Output {
        match &self.0 {
            Some(runtime) => runtime.block_on(test),
            None => unreachable!("only its end takes it"),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(LAST_MOMENT);
        }
    }
}
