//! Requests that are made again where that may help, each call with a deadline.

use std::time::Duration;

use tokio::time::Instant;

use super::error::Failure;
use crate::reconnect::Backoff;

/// How often a request is made before its failure is told. Whoever keeps a lock, or a claim, tries again by himself.
const TRIES: u32 = 3;
/// The pauses between: short, since a lease runs.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a call answers: `Err` is an answer too, and what it means is for the caller to say.
pub(super) type Answer<T> = std::result::Result<T, Failure>;

/// What may be done to get an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// When no answer is of use any more.
    pub(super) deadline: Instant,
    /// How long one try may take.
    pub(super) each: Duration,
    /// Whether the request may be made again although the last one may have been carried out.
    pub(super) again: bool,
}

/// An answer, and what it may hide.
pub(super) struct Called<T> {
    pub(super) answer: Answer<T>,
    /// A try before the last one may have been carried out, and nobody heard of it.
    pub(super) perhaps_before: bool,
}

/// Makes a request that may be made twice, and again where it may succeed in a moment, until the deadline.
pub(super) async fn call<T, F>(deadline: Instant, request: impl FnMut() -> F) -> Answer<T>
where
    F: Future<Output = azure_core::Result<T>>,
{
    let each = deadline.saturating_duration_since(Instant::now());
    call_with(Effort { deadline, each, again: true }, request).await.answer
}

/// Makes a request, and again where it may succeed in a moment and where that is allowed, until the deadline.
pub(super) async fn call_with<T, F>(effort: Effort, mut request: impl FnMut() -> F) -> Called<T>
where
    F: Future<Output = azure_core::Result<T>>,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let (mut tried, mut perhaps_before) = (0, false);
    loop {
        tried += 1;
        let until = effort.deadline.min(Instant::now() + effort.each);
        let failure = match tokio::time::timeout_at(until, request()).await {
            Ok(Ok(answer)) => return Called { answer: Ok(answer), perhaps_before },
            Ok(Err(error)) => Failure::from(error),
            Err(_) => Failure::Unanswered,
        };
        let may_pass = failure.is_passing() || matches!(failure, Failure::Unanswered);
        let may_repeat = may_pass && tried < TRIES && (effort.again || failure.is_certain());
        // As long as the service says, which may be longer than a clock can count.
        let pause = backoff.next().max(failure.retry_after());
        let next = Instant::now().checked_add(pause).filter(|next| *next < effort.deadline);
        let Some(next) = next.filter(|_| may_repeat) else {
            return Called { answer: Err(failure), perhaps_before };
        };
        perhaps_before |= !failure.is_certain();
        tokio::time::sleep_until(next).await;
    }
}
