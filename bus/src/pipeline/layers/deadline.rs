//! Ends a run that takes too long, or that must not go on.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind};
use crate::message::Verdict;
use crate::scope::Scope;

/// Runs `run` for at most `limit`: then the scope's cancellation fires, and a tenth of the limit later (at least 1 s)
/// the future is dropped, and the attempt has failed. When `cut` fires it is dropped at once, and counts as none; if it
/// has fired already, `run` is not even begun: a middleware may have held the message up for that long.
///
/// The verdict is returned only after the future has been dropped, so that nothing of the run is left when its message
/// becomes available to others.
pub async fn within(
    run: impl Future<Output = Verdict>,
    limit: Duration,
    scope: &Scope,
    cut: &CancellationToken,
) -> Verdict {
    if cut.is_cancelled() {
        return Verdict::Release;
    }
    let mut run = pin!(run);
    tokio::select! {
        biased;
        verdict = &mut run => return verdict,
        () = cut.cancelled() => return Verdict::Release,
        () = tokio::time::sleep(limit) => scope.cancel(),
    }
    tokio::select! {
        biased;
        verdict = &mut run => verdict,
        () = cut.cancelled() => Verdict::Release,
        () = tokio::time::sleep(patience(limit)) => Verdict::Retry {
            after: None,
            error: Error::new(ErrorKind::Handler, format!("the handler ran longer than its message_lock_timeout of {limit:?}")),
        },
    }
}

/// How long a run may take that has this limit: what goes on after that has not let itself be dropped.
pub fn longest(limit: Duration) -> Duration {
    limit.saturating_add(patience(limit).saturating_mul(2))
}

/// How long a handler has to end by itself after its token fired.
fn patience(limit: Duration) -> Duration {
    (limit / 10).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_token_fires_first_and_the_future_is_dropped_a_tenth_later() {
        let scope = Scope::default();
        let started = Instant::now();
        let marker = Arc::new(());
        let held = Arc::clone(&marker);
        let token = scope.cancellation().clone();
        let watch = tokio::spawn(async move {
            token.cancelled().await;
            started.elapsed()
        });
        let run = async move {
            let _held = held;
            std::future::pending().await
        };
        let verdict = within(run, LIMIT, &scope, &CancellationToken::new()).await;
        assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
        assert_eq!(watch.await.ok(), Some(LIMIT));
        assert_eq!(started.elapsed(), LIMIT + LIMIT / 10);
        assert_eq!(Arc::strong_count(&marker), 1, "the run's values are gone before its verdict is seen");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_run_is_no_attempt() {
        let cut = CancellationToken::new();
        let fire = cut.clone();
        let run = async move {
            fire.cancel();
            std::future::pending().await
        };
        let verdict = within(run, LIMIT, &Scope::default(), &cut).await;
        assert!(matches!(verdict, Verdict::Release), "{verdict:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_cut_before_its_turn_is_not_begun() {
        let cut = CancellationToken::new();
        cut.cancel();
        let run = async { panic!("it was begun") };
        let verdict = within(run, LIMIT, &Scope::default(), &cut).await;
        assert!(matches!(verdict, Verdict::Release), "{verdict:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_by_itself_after_the_token_keeps_its_own_verdict() {
        let scope = Scope::default();
        let token = scope.cancellation().clone();
        let run = async move {
            token.cancelled().await;
            Verdict::Complete
        };
        let verdict = within(run, LIMIT, &scope, &CancellationToken::new()).await;
        assert!(matches!(verdict, Verdict::Complete), "{verdict:?}");
    }
}
