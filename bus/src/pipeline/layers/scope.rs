//! Disposes of what a message's run has put into its scope.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{dead_letter, panics, redact::Redact};
use crate::error::{Error, ErrorKind};
use crate::message::{Endpoint, MessageId, Verdict};
use crate::scope::{Disposal, Scope, Value};

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
    let mut until = None;
    for left in scope.end() {
        match left.disposal {
            Some(disposal) => {
                let failure = disposed(&disposal, left.value, cut, &mut until).await;
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

/// Disposes of one; answers what went wrong. `until` is set when the run is cut.
async fn disposed(
    disposal: &Disposal,
    value: Value,
    cut: &CancellationToken,
    until: &mut Option<Instant>,
) -> Option<Error> {
    let run = panics::caught("it", || {
        let run = (disposal.dispose)(value);
        async {
            match run.await {
                Ok(()) => Verdict::Complete,
                Err(error) => Verdict::Retry { after: None, error },
            }
        }
    });
    let over = async {
        cut.cancelled().await;
        tokio::time::sleep_until(*until.get_or_insert_with(|| Instant::now() + DISPOSAL_AFTER_CUT)).await;
    };
    let why = tokio::select! {
        biased;
        verdict = run => return match verdict {
            Verdict::Retry { error, .. } => Some(error),
            _ => None,
        },
        () = over => "it was cut off with the run".to_owned(),
        () = tokio::time::sleep(DISPOSAL_LIMIT) => format!("it took longer than {DISPOSAL_LIMIT:?}"),
    };
    Some(Error::new(ErrorKind::Handler, why))
}
