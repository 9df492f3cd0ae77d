//! Calls what a processor has done before one of its messages is dead-lettered, and sees to it that this changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{dead_letter, panics, redact::Redact};
use crate::contract::BoxFuture;
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Verdict};

/// The hook: it gets the delivery, the reason, and the error if there was one. Its verdict is on itself, not on the message.
pub type HookFn = Arc<dyn Fn(Delivery, String, Option<Error>) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// A hook with the delivery that it will be called with, should it come to that.
pub(in crate::pipeline) struct Prepared<'h> {
    hook: &'h HookFn,
    delivery: Delivery,
}

impl<'h> Prepared<'h> {
    /// The middleware and the handler consume their delivery, so that the hook needs one of its own.
    pub(in crate::pipeline) fn new(hook: &'h HookFn, delivery: &Delivery) -> Self {
        Prepared { hook, delivery: delivery.clone() }
    }

    /// Runs it if the verdict is a dead letter, for no longer than `limit` and not beyond `cut`.
    pub(in crate::pipeline) async fn run(
        self,
        verdict: &Verdict,
        limit: Duration,
        cut: &CancellationToken,
        redact: &Redact,
    ) {
        let Verdict::DeadLetter { reason, error } = verdict else { return };
        let (endpoint, id) = (Arc::clone(&self.delivery.endpoint), self.delivery.envelope.id);
        let run = || (self.hook)(self.delivery, reason.clone(), error.clone());
        // What is dropped since it took too long has destructors, which may panic as well.
        let failure = panics::outcome_of(|| async {
            tokio::select! {
                biased;
                verdict = panics::caught("it", run) => match verdict {
                    Verdict::Retry { error, .. } | Verdict::DeadLetter { error: Some(error), .. } => Some(error),
                    _ => None,
                },
                () = cut.cancelled() => Some(Error::new(ErrorKind::Handler, "it was cut off with the run")),
                () = tokio::time::sleep(limit) => {
                    Some(Error::new(ErrorKind::Handler, format!("it ran longer than the processor's message_lock_timeout of {limit:?}")))
                }
            }
        })
        .await;
        let failure = failure.unwrap_or_else(|text| {
            Some(Error::new(ErrorKind::Handler, format!("it panicked while it was dropped: {text}")))
        });
        let Some(failure) = failure else { return };
        let failure = redact.error(failure);
        tracing::error!(target: "bus::pipeline", event = "hook.failed", %endpoint, message_id = %id, error = %dead_letter::for_the_log(&failure), "what is done before the message is dead-lettered has failed; it is dead-lettered all the same");
    }
}
