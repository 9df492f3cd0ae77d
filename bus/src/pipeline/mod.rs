//! Runs a delivery to a verdict, through the layers that every message passes and the middleware that users add.
//!
//! From the outside in: [`layers::span`] (a span for the run), [`layers::scope`] (values disposed of at the end),
//! [`layers::dead_letter`] (how often is too often, and when to try again) and [`layers::before_dead_letter`] (what the
//! processor has done then), [`layers::redact`] (what must not be told), user middleware (the host's, the transport's, the
//! processor's own, each in the order given), [`layers::panics`] (a panic is a failure), [`layers::deadline`] (time-out
//! and cut), the handler. The built-in layers
//! are plain functions around one future, so that they cost no allocation; only middleware is called through `dyn`.
//!
//! A pipeline returns a value and holds no consumer: nothing but the pump can settle a message.

pub mod layers;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::contract::BoxFuture;
use crate::message::{Delivery, Endpoint, Verdict};
use crate::settings::Resolved;
use layers::before_dead_letter::{HookFn, Prepared};
use layers::redact::Redact;

/// Sees every message on its way to the handler, and its verdict on the way back.
///
/// The handler's time is bounded by `message_lock_timeout`, a middleware's own is not: one that never returns keeps its
/// message, and its place among the `max_concurrent_calls`, until the process ends.
///
/// Implemented for every `async fn(Delivery, Next) -> Verdict`:
///
/// ```
/// use bus::prelude::*;
///
/// async fn refuse_strangers(delivery: Delivery, next: Next) -> Verdict {
///     if delivery.envelope.headers.get("tenant").is_none() {
///         return Verdict::DeadLetter { reason: "no tenant".into(), error: None };
///     }
///     next.run(delivery).await
/// }
/// # fn check(_: impl bus::pipeline::Middleware) {}
/// # check(refuse_strangers);
/// ```
#[diagnostic::on_unimplemented(
    message = "this is no middleware",
    label = "no middleware",
    note = "write `async fn f(delivery: Delivery, next: Next) -> Verdict`, whose future is `Send`, or name a value that implements `bus::pipeline::Middleware`"
)]
pub trait Middleware: Send + Sync + 'static {
    /// Handles a message, usually by [`Next::run`]. Not calling it means that the handler does not run.
    fn handle(&self, delivery: Delivery, next: Next) -> BoxFuture<'static, Verdict>;
}

// Not recommended: else the error would speak of the innermost bound on the function instead of what to write.
#[diagnostic::do_not_recommend]
impl<F, Fut> Middleware for F
where
    F: Fn(Delivery, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Verdict> + Send + 'static,
{
    fn handle(&self, delivery: Delivery, next: Next) -> BoxFuture<'static, Verdict> {
        Box::pin(self(delivery, next))
    }
}

/// The innermost part: what calls the user's function.
pub type HandlerFn = Arc<dyn Fn(Delivery) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// The rest of the pipeline, seen from a middleware.
pub struct Next {
    core: Arc<Core>,
    position: usize,
}

impl Next {
    /// Runs the rest.
    pub fn run(mut self, delivery: Delivery) -> BoxFuture<'static, Verdict> {
        match self.core.middleware.get(self.position).map(Arc::clone) {
            Some(middleware) => {
                self.position += 1;
                middleware.handle(delivery, self)
            }
            None => Box::pin(async move { self.core.call(delivery).await }),
        }
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("position", &self.position).finish_non_exhaustive()
    }
}

/// What one processor's messages pass, for one pump.
#[derive(Clone)]
pub struct Pipeline {
    core: Arc<Core>,
}

struct Core {
    endpoint: Arc<Endpoint>,
    settings: Resolved,
    middleware: Vec<Arc<dyn Middleware>>,
    handler: HandlerFn,
    before_dead_letter: Option<HookFn>,
    cut: CancellationToken,
    redact: Redact,
    /// Values are made for its runs.
    is_scoped: bool,
}

impl Core {
    /// The handler within its innermost layers.
    async fn call(&self, delivery: Delivery) -> Verdict {
        let scope = delivery.scope.clone();
        // Panics are caught outside of the deadline, since what it drops has destructors, which may panic as well.
        let run = || {
            let handled = (self.handler)(delivery);
            layers::deadline::within(handled, self.settings.message_lock_timeout, &scope, &self.cut)
        };
        layers::panics::caught("the handler", run).await
    }
}

impl Pipeline {
    /// A pipeline for `endpoint`. `before_dead_letter` is called when a verdict is a dead letter. Whoever fires `cut` makes each run that is under way be dropped, with
    /// [`Verdict::Release`].
    pub fn new(
        endpoint: Arc<Endpoint>,
        settings: Resolved,
        middleware: Vec<Arc<dyn Middleware>>,
        handler: HandlerFn,
        before_dead_letter: Option<HookFn>,
        cut: CancellationToken,
    ) -> Self {
        let core = Core {
            endpoint,
            settings,
            middleware,
            handler,
            before_dead_letter,
            cut,
            redact: Redact::default(),
            is_scoped: false,
        };
        Pipeline { core: Arc::new(core) }
    }

    /// Says whether values are made for its runs, which may take their time to be disposed of.
    #[must_use]
    pub fn scoped(mut self, is_scoped: bool) -> Self {
        if let Some(core) = Arc::get_mut(&mut self.core) {
            core.is_scoped = is_scoped;
        }
        self
    }

    /// Has what the users' code says redacted before anybody is told.
    #[must_use]
    pub fn redacting(mut self, redact: Redact) -> Self {
        if let Some(core) = Arc::get_mut(&mut self.core) {
            core.redact = redact;
        }
        self
    }

    /// How long a run may take; what goes on after that has not let itself be dropped.
    pub fn longest(&self) -> Duration {
        let limit = self.core.settings.message_lock_timeout;
        let hook = self.core.before_dead_letter.as_ref().map_or(Duration::ZERO, |_| limit);
        let disposal = if self.core.is_scoped { layers::scope::DISPOSAL_LIMIT } else { Duration::ZERO };
        layers::deadline::longest(limit).saturating_add(hook).saturating_add(disposal)
    }

    /// Runs a delivery to its verdict. Never panics for a panic of user code; a `Retry` comes back with its `after`
    /// filled in, or as a `DeadLetter` when the limit is reached.
    pub async fn run(&self, delivery: Delivery) -> Verdict {
        let core = &self.core;
        let span = layers::span::of(&core.endpoint, &delivery);
        let attempt = layers::dead_letter::Attempt::of(&delivery);
        let scope = delivery.scope.clone();
        let id = delivery.envelope.id;
        let hook = core.before_dead_letter.as_ref().map(|hook| Prepared::new(hook, &delivery));
        let verdict = if core.middleware.is_empty() {
            layers::span::within(span.clone(), core.call(delivery)).await
        } else {
            let next = Next { core: Arc::clone(core), position: 0 };
            let run = layers::panics::caught("a middleware", || next.run(delivery));
            layers::span::within(span.clone(), run).await
        };
        let verdict = core.redact.verdict(verdict);
        let verdict = layers::dead_letter::judge(verdict, attempt, &core.settings, &core.endpoint, id);
        layers::span::ended(&span, &verdict);
        if let Some(hook) = hook {
            let run = hook.run(&verdict, core.settings.message_lock_timeout, &core.cut, &core.redact);
            layers::span::within(span, run).await;
        }
        layers::scope::finish(&scope, (&core.endpoint, id), &core.cut, &core.redact).await;
        verdict
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("endpoint", &self.core.endpoint)
            .field("middleware", &self.core.middleware.len())
            .finish_non_exhaustive()
    }
}
