//! Processors: annotated functions, their types forgotten, as the rest of the crate works with them.
//!
//! `#[processor]` writes what this module takes: the function, which message it takes from where, and how each of its
//! arguments is made. From that comes a [`Handler`], which turns a [`Delivery`](crate::message::Delivery) into a
//! [`Verdict`]: decode, extract, call, map the result.

mod before_dead_letter;
pub(crate) mod container;
mod dispose;
mod extract;
pub(crate) mod handler;
pub(crate) mod provide;
pub(crate) mod refuse;

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

pub use before_dead_letter::{BeforeDeadLetter, DeadLettering};
pub use container::{MessageScope, ScopeProvider};
pub use dispose::Dispose;
pub use extract::{DeliveryCount, Dep, Extract, HasTerm, Plain, Requirement, Scoped, Singleton};
pub use handler::{Handler, Outcome};
pub use provide::{FromHost, Provider};

use crate::message::{Endpoint, Verdict};
use crate::pipeline::Middleware;
use crate::pipeline::layers::before_dead_letter::HookFn;
use crate::settings::{Order, Resolved, Tuned};
use handler::{Args, Source, Typed};

/// Where an annotated function stands in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The function's name.
    pub name: &'static str,
    /// The crate it is in, as the source writes it (`my_handlers`, not `my-handlers`).
    pub krate: &'static str,
    /// The module it is in.
    pub module_path: &'static str,
    /// The file it is in.
    pub file: &'static str,
    /// The line it is on.
    pub line: u32,
    /// The identity of the function's own type: every function has one that no other has.
    pub function: TypeId,
}

impl About {
    /// What the macros know about `function`.
    #[doc(hidden)]
    pub fn new<F: 'static>(
        _function: &F,
        name: &'static str,
        module_path: &'static str,
        file: &'static str,
        line: u32,
    ) -> Self {
        let krate = module_path.split("::").next().unwrap_or(module_path);
        About { name, krate, module_path, file, line, function: TypeId::of::<F>() }
    }
}

/// A function that processes messages.
#[derive(Clone)]
#[non_exhaustive]
pub struct Processor {
    /// The function's name.
    pub name: &'static str,
    /// The crate it is in, as the source writes it (`my_handlers`, not `my-handlers`).
    pub krate: &'static str,
    /// The module it is in.
    pub module_path: &'static str,
    /// The file it is in.
    pub file: &'static str,
    /// The line it is on.
    pub line: u32,
    /// The identity of the function's own type: every function has one that no other has.
    pub function: TypeId,
    /// Where its messages are received from.
    pub endpoint: Endpoint,
    /// The name of the transport that carries them.
    pub transport: &'static str,
    /// [`Message::TYPE`](crate::Message::TYPE) of its message.
    pub message_type: &'static str,
    /// Whether it runs on one host at a time.
    pub singleton: bool,
    /// Its settings, defaults filled in.
    pub settings: Resolved,
    /// What the source calls its settings, for people.
    pub settings_name: &'static str,
    /// What must be provided for its arguments.
    pub requires: Vec<Requirement>,
    /// The function itself.
    pub handler: Arc<dyn Handler>,
    /// What is called before one of its messages is dead-lettered, where something is.
    pub before_dead_letter: Option<HookFn>,
    /// Its own middleware, the outermost first. That of the host and of the transport is outside of it.
    pub middleware: Vec<Arc<dyn Middleware>>,
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor")
            .field("name", &self.name)
            .field("module_path", &self.module_path)
            .field("file", &self.file)
            .field("line", &self.line)
            .field("endpoint", &self.endpoint)
            .field("transport", &self.transport)
            .field("message_type", &self.message_type)
            .field("singleton", &self.singleton)
            .field("settings", &self.settings)
            .field("settings_name", &self.settings_name)
            .field("requires", &self.requires)
            .field("before_dead_letter", &self.before_dead_letter.is_some())
            .field("middleware", &self.middleware.len())
            .finish_non_exhaustive()
    }
}

/// How a processor is tuned, as the macro has read it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Tuning {
    singleton: bool,
    settings: Resolved,
    settings_name: &'static str,
}

impl Tuning {
    /// What `#[processor]` calls.
    pub fn new(tuned: Tuned, singleton: bool, order: Order, settings_name: &'static str) -> Self {
        let settings = Resolved { order, ..tuned.resolve(singleton) };
        Tuning { singleton, settings, settings_name }
    }
}

impl Processor {
    /// What `#[processor]` calls, in a name that is to be read in the compiler's error about a future that is not.
    #[doc(hidden)]
    pub fn whose_future_is_send<M, A, F, Called, R>(
        about: About,
        source: Source<M>,
        tuning: Tuning,
        args: A,
        outcome: fn(R) -> Verdict,
        function: F,
    ) -> Self
    where
        M: Send + 'static,
        A: Args,
        F: Fn(M, A::Values) -> Called + Clone + Send + Sync + 'static,
        Called: Future<Output = R> + Send + 'static,
        R: 'static,
    {
        Processor {
            name: about.name,
            krate: about.krate,
            module_path: about.module_path,
            file: about.file,
            line: about.line,
            function: about.function,
            endpoint: source.endpoint.into(),
            transport: source.transport,
            message_type: source.message_type,
            singleton: tuning.singleton,
            settings: tuning.settings,
            settings_name: tuning.settings_name,
            requires: args.requires(),
            handler: Arc::new(Typed { source, args: PhantomData::<fn() -> A>, function, outcome }),
            before_dead_letter: None,
            middleware: Vec::new(),
        }
    }

    /// What `#[processor]` calls for `before_dead_letter = function`.
    #[doc(hidden)]
    #[must_use]
    pub fn before_dead_letter<C, M, Arguments, F>(mut self, source: Source<M>, function: F) -> Self
    where
        M: Send + 'static,
        F: BeforeDeadLetter<M, C, Arguments>,
    {
        self.requires.extend(F::requires());
        self.before_dead_letter = Some(before_dead_letter::erased(source, function));
        self
    }

    /// What `#[processor]` calls for each `middleware = middleware`.
    #[doc(hidden)]
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }
}
