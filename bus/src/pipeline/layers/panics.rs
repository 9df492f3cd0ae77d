//! A panic of user code is a failed attempt, not the end of the process.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::error::{Error, ErrorKind};
use crate::message::Verdict;

/// Runs the future that `start` makes and turns a panic of either into a failed attempt. `who` names what panicked. An
/// error of the user's is put in words here: that may panic, too, and must not later, in a store's hands.
///
/// `AssertUnwindSafe` holds because nothing that the panic may have left half-changed is used afterwards: the future
/// is dropped, and what it shared with others is the user's own.
pub async fn caught<F>(who: &'static str, start: impl FnOnce() -> F) -> Verdict
where
    F: Future<Output = Verdict>,
{
    let outcome = outcome_of(|| {
        let run = start();
        async { in_words(run.await) }
    });
    outcome.await.unwrap_or_else(|text| Verdict::Retry {
        after: None,
        error: Error::new(ErrorKind::Handler, format!("{who} panicked: {text}")),
    })
}

/// Runs the future that `start` makes; answers what a panic of either has said.
pub async fn outcome_of<F: Future>(start: impl FnOnce() -> F) -> Result<F::Output, String> {
    let outcome = match catch_unwind(AssertUnwindSafe(start)) {
        Ok(run) => AssertUnwindSafe(run).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    outcome.map_err(|panic| text_of(panic.as_ref()).to_owned())
}

fn in_words(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Retry { after, error } => Verdict::Retry { after, error: error.in_words() },
        Verdict::DeadLetter { reason, error } => {
            Verdict::DeadLetter { reason, error: error.map(Error::in_words) }
        }
        other => other,
    }
}

/// What a panic said, where it said anything.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_before_and_after_the_first_await_is_a_failure() {
        for late in [false, true] {
            let verdict = caught("the handler", || async move {
                if late {
                    tokio::task::yield_now().await;
                }
                panic!("no more {}", "tea")
            })
            .await;
            let Verdict::Retry { after: None, error } = verdict else { panic!("{verdict:?}") };
            assert_eq!(error.to_string(), "the handler panicked: no more tea");
        }
    }
}
