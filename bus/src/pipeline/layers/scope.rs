//! Disposes of what a message's run has put into its scope.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{dead_letter, panics, redact::Redact};
use crate::error::{Error, ErrorKind};
use crate::message::{Endpoint, MessageId, Verdict};
use crate::scope::{Disposal, Left, Scope, Value};

/// How long one value's disposal may take.
pub const DISPOSAL_LIMIT: Duration = Duration::from_secs(5);

/// How long those that are left may take together once the run is cut: its term, or its process, is about to end.
pub const DISPOSAL_AFTER_CUT: Duration = Duration::from_millis(500);

/// Disposes of the scope's own values, those first that were made last. Whatever goes wrong is logged, and changes
/// nothing about the message.
pub(in crate::pipeline) async fn finish(
    scope: &Scope,
    (endpoint, id): (&Endpoint, MessageId),
    cut: &CancellationToken,
    redact: &Redact,
) {
    let all: Vec<Left> = scope.end().collect();
    let mut time = TimeLeft { rest: 0, cut, until: None };
    time.rest = all.iter().filter(|left| left.disposal.is_some()).count();
    for left in all {
        match left.disposal {
            Some(disposal) => {
                let failure = disposed(&disposal, left.value, &mut time).await;
                if let Some(error) = failure.map(|error| redact.error(error)) {
                    tracing::error!(target: "bus::pipeline", event = "disposal.failed", %endpoint, message_id = %id, value = disposal.type_name, error = %dead_letter::for_the_log(&error), "a scoped value could not be disposed of as it should be; the message is not affected");
                }
            }
            None => {
                if catch_unwind(AssertUnwindSafe(|| drop(left.value))).is_err() {
                    tracing::error!(target: "bus::pipeline", event = "disposal.failed", %endpoint, message_id = %id, "a scoped value panicked while it was dropped");
                }
            }
        }
    }
}

/// How long disposals may take.
struct TimeLeft<'c> {
    /// How many there are to come, this one included.
    rest: usize,
    cut: &'c CancellationToken,
    /// When all of them have to be at their end, once the run is cut.
    until: Option<Instant>,
}

impl TimeLeft<'_> {
    /// Waits until the next one has had its share of the time after a cut: one that hangs leaves the others theirs.
    async fn share_is_over(&mut self) {
        self.cut.cancelled().await;
        let now = Instant::now();
        let left = self.until.get_or_insert(now + DISPOSAL_AFTER_CUT).saturating_duration_since(now);
        tokio::time::sleep(left / u32::try_from(self.rest.max(1)).unwrap_or(u32::MAX)).await;
    }
}

/// Disposes of one; answers what went wrong.
async fn disposed(disposal: &Disposal, value: Value, time: &mut TimeLeft<'_>) -> Option<Error> {
    let run = || {
        let run = (disposal.dispose)(value);
        async {
            match run.await {
                Ok(()) => Verdict::Complete,
                Err(error) => Verdict::Retry { after: None, error },
            }
        }
    };
    // What is dropped since it took too long has destructors, which may panic as well.
    let why = panics::outcome_of(|| async {
        tokio::select! {
            biased;
            verdict = panics::caught("it", run) => match verdict {
                Verdict::Retry { error, .. } => Some(error),
                _ => None,
            },
            () = time.share_is_over() => Some(Error::new(ErrorKind::Handler, "it was cut off with the run")),
            () = tokio::time::sleep(DISPOSAL_LIMIT) => {
                Some(Error::new(ErrorKind::Handler, format!("it took longer than {DISPOSAL_LIMIT:?}")))
            }
        }
    })
    .await;
    time.rest -= 1;
    why.unwrap_or_else(|text| {
        Some(Error::new(ErrorKind::Handler, format!("it panicked while it was dropped: {text}")))
    })
}
