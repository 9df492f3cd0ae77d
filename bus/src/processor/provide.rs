//! Providers: functions that make the values which handlers ask for.

use std::any::TypeId;
use std::error::Error as StdError;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::About;
use super::container::Container;
use super::dispose::{self, Dispose};
use super::extract::{Dep, Requirement, not_provided};
use super::handler::Args;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Delivery;
use crate::scope::{ByType, Disposal, HostScope, Value, Values};
use crate::sender::Bus;

type HostBuild = dyn Fn(&Values) -> Result<BoxFuture<'static, Result<Value>>> + Send + Sync;
type ScopedBuild = dyn for<'d> Fn(&'d Delivery) -> BoxFuture<'d, Result<Value>> + Send + Sync;

/// A function that makes a value, once per host or once per message.
#[derive(Clone)]
#[non_exhaustive]
pub struct Provider {
    /// Where it stands in the source.
    pub about: About,
    /// What it makes.
    pub provides: Requirement,
    /// What it needs for that.
    pub requires: Vec<Requirement>,
    build: Build,
}

#[derive(Clone)]
enum Build {
    Host(Arc<HostBuild>),
    Scoped(ScopedMaker),
}

/// Makes a message's value, and says how it ends.
#[derive(Clone)]
struct ScopedMaker {
    build: Arc<ScopedBuild>,
    disposal: Option<Disposal>,
    /// The provider's name.
    name: &'static str,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("about", &self.about)
            .field("provides", &self.provides)
            .field("requires", &self.requires)
            .finish_non_exhaustive()
    }
}

/// An argument of a provider that works for the whole host, so that there is no message to take anything from.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a provider for the whole host",
    label = "not available before there is a message",
    note = "`#[provide]` takes `Dep<T>` and `Bus`; for what belongs to one message, write `#[provide(scoped)]`"
)]
pub trait FromHost: Sized + Send + 'static {
    /// Takes it from what the host has so far.
    ///
    /// # Errors
    /// If it is not there.
    fn from_host(values: &Values) -> Result<Self>;

    /// What must be there before.
    fn requires() -> Vec<Requirement> {
        Vec::new()
    }
}

impl<T: Send + Sync + 'static> FromHost for Dep<T> {
    fn from_host(values: &Values) -> Result<Self> {
        values.get().map(Dep).ok_or_else(not_provided::<T>)
    }
    fn requires() -> Vec<Requirement> {
        vec![Requirement::host::<T>()]
    }
}

impl FromHost for Bus {
    fn from_host(values: &Values) -> Result<Self> {
        values.get::<Bus>().map(|bus| Bus::clone(&bus)).ok_or_else(not_provided::<Bus>)
    }
}

/// One argument of a host-wide provider. Its constructor [`host_arg`] alone has the bound on the type, so that a wrong
/// one is one error.
pub struct HostArg<T> {
    requires: fn() -> Vec<Requirement>,
    from_host: fn(&Values) -> Result<T>,
}

impl<T> Clone for HostArg<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for HostArg<T> {}

/// The argument `T` of a host-wide provider.
pub fn host_arg<T: FromHost>() -> HostArg<T> {
    HostArg { requires: T::requires, from_host: T::from_host }
}

/// A chain of arguments: `(A, (B, ()))`.
pub trait HostArgs: Copy + Send + Sync + 'static {
    /// The same chain of values.
    type Values;
    /// What all of them require.
    fn requires(&self) -> Vec<Requirement>;
    /// All of them.
    ///
    /// # Errors
    /// If one is not there.
    fn take(&self, values: &Values) -> Result<Self::Values>;
}

impl HostArgs for () {
    type Values = ();
    fn requires(&self) -> Vec<Requirement> {
        Vec::new()
    }
    fn take(&self, _: &Values) -> Result<()> {
        Ok(())
    }
}

impl<T: 'static, Rest: HostArgs> HostArgs for (HostArg<T>, Rest) {
    type Values = (T, Rest::Values);
    fn requires(&self) -> Vec<Requirement> {
        let mut all = (self.0.requires)();
        all.extend(self.1.requires());
        all
    }
    fn take(&self, values: &Values) -> Result<Self::Values> {
        Ok(((self.0.from_host)(values)?, self.1.take(values)?))
    }
}

/// What a provider returns, the value in it, and how that ends. The constructors alone have the bounds.
pub struct Product<R> {
    id: Requirement,
    value: fn(R) -> Result<Value>,
    disposal: Option<Disposal>,
}

/// A provider that returns its value as it is.
pub fn provides<T: Send + Sync + 'static>() -> Product<T> {
    Product { id: Requirement::host::<T>(), value: |value| Ok(Arc::new(value)), disposal: None }
}

/// A provider that returns a `Result`.
pub fn provides_result<R: ProvidedResult>() -> Product<R> {
    let value = |result| Ok(Arc::new(unwrapped(result)?) as Value);
    Product { id: Requirement::host::<R::Value>(), value, disposal: None }
}

impl<T: Send + Sync + 'static> Product<T> {
    /// What `#[provide(scoped)]` calls for `dispose = function`.
    #[must_use]
    pub fn disposed_by(mut self, function: impl Dispose<T>) -> Self {
        self.disposal = Some(dispose::erased(function));
        self
    }
}

impl<T: Send + Sync + 'static, E> Product<Result<T, E>> {
    /// The same, of a provider that returns a `Result`.
    #[must_use]
    pub fn result_disposed_by(mut self, function: impl Dispose<T>) -> Self {
        self.disposal = Some(dispose::erased(function));
        self
    }
}

fn unwrapped<R: ProvidedResult>(result: R) -> Result<R::Value> {
    result.provided().map_err(|error| match error.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(theirs) => Error::new(ErrorKind::Wiring, "the provider failed").caused_by(theirs),
    })
}

/// `Result<T, E>` with any error.
#[diagnostic::on_unimplemented(
    message = "a provider returns `T` or `Result<T, E>`, not `{Self}`",
    label = "cannot be returned by a provider",
    note = "`T` is shared by threads (`Send + Sync + 'static`); `E` is any error that converts into `Box<dyn Error + Send + Sync>`"
)]
pub trait ProvidedResult: Send + 'static {
    /// What is provided.
    type Value: Send + Sync + 'static;
    /// The value, or why there is none.
    ///
    /// # Errors
    /// The provider's own.
    fn provided(self) -> Result<Self::Value, Box<dyn StdError + Send + Sync>>;
}

// Not recommended: else the error would speak of the innermost bound on `E` instead of what to return.
#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static, E: Into<Box<dyn StdError + Send + Sync>> + Send + 'static> ProvidedResult
    for Result<T, E>
{
    type Value = T;
    fn provided(self) -> Result<T, Box<dyn StdError + Send + Sync>> {
        self.map_err(Into::into)
    }
}

impl Provider {
    /// A provider for the whole host. Its name is to be read in the compiler's error about a future that is not `Send`.
    #[doc(hidden)]
    pub fn for_host_whose_future_is_send<R, A, F, Called>(
        about: About,
        product: Product<R>,
        args: A,
        function: F,
    ) -> Self
    where
        R: 'static,
        A: HostArgs,
        F: Fn(A::Values) -> Called + Send + Sync + 'static,
        Called: Future<Output = R> + Send + 'static,
    {
        let value = product.value;
        Provider {
            about,
            provides: product.id,
            requires: args.requires(),
            build: Build::Host(Arc::new(move |values| Ok(function(args.take(values)?).map(value).boxed()))),
        }
    }

    /// A provider for each message.
    #[doc(hidden)]
    pub fn for_message_whose_future_is_send<R, A, F, Called>(
        about: About,
        product: Product<R>,
        args: A,
        function: F,
    ) -> Self
    where
        R: 'static,
        A: Args,
        F: Fn(A::Values) -> Called + Clone + Send + Sync + 'static,
        Called: Future<Output = R> + Send + 'static,
    {
        let value = product.value;
        Provider {
            provides: Requirement { scoped: true, ..product.id },
            requires: args.requires(),
            build: Build::Scoped(ScopedMaker {
                build: Arc::new(move |delivery| {
                    let function = function.clone();
                    Box::pin(async move { value(function(A::extract(delivery).await?).await) })
                }),
                disposal: product.disposal,
                name: about.name,
            }),
            about,
        }
    }

    fn build_host(&self, values: &Values) -> BoxFuture<'static, Result<Value>> {
        match &self.build {
            Build::Host(build) => build(values).unwrap_or_else(|error| ready(Err(error)).boxed()),
            Build::Scoped(_) => ready(Err(Error::new(ErrorKind::Internal, "not host-wide"))).boxed(),
        }
    }
}

/// What makes per-message values, as one value of the host.
#[derive(Default)]
pub(super) struct ScopedProviders {
    annotated: ByType<ScopedMaker>,
    container: Option<Arc<Container>>,
}

impl ScopedProviders {
    /// The `T` of this delivery's scope, made now if nobody has asked for it yet.
    pub(super) async fn value<T: Send + Sync + 'static>(&self, delivery: &Delivery) -> Result<Arc<T>> {
        let id = TypeId::of::<T>();
        let value = match (self.annotated.get(&id), &self.container) {
            (Some(maker), _) => {
                let build = (maker.build)(delivery);
                let value = delivery.scope.get_or_build(id, maker.disposal.as_ref(), build).await;
                value.map_err(|error| error.with("provider", maker.name))?
            }
            (None, Some(container)) => {
                let value = delivery.scope.get_or_build(id, None, container.value::<T>(delivery)).await;
                value.map_err(|error| error.with("type", std::any::type_name::<T>()))?
            }
            (None, None) => return Err(not_provided::<T>()),
        };
        value.downcast().map_err(|_| not_provided::<T>())
    }
}

impl HostScope {
    /// Builds what `providers` provide, in order of need, on top of `values`. A type that is among `values` already is
    /// not built: what a program gives by hand comes before what it has annotated.
    ///
    /// # Errors
    /// The first provider that fails, by name and place; [`ErrorKind::Wiring`] if some need one another in a circle or
    /// something that nobody provides.
    pub async fn build(mut values: Values, providers: &[Provider]) -> Result<Arc<HostScope>> {
        let scoped = scoped_providers(&values, providers);
        values.insert(Arc::new(scoped));
        let mut waiting: Vec<&Provider> = providers
            .iter()
            .filter(|p| matches!(p.build, Build::Host(_)) && !values.contains(p.provides.id))
            .collect();
        while !waiting.is_empty() {
            let ready = |p: &&Provider| p.requires.iter().all(|r| values.contains(r.id));
            let Some(next) = waiting.iter().position(ready) else {
                return Err(stuck(&waiting));
            };
            let provider = waiting.remove(next);
            let value = provider.build_host(&values).await.map_err(|error| provider.failed(error))?;
            values.insert_erased(provider.provides.id, value, provider.provides.type_name);
        }
        Ok(Arc::new(HostScope::new(values)))
    }
}

fn scoped_providers(values: &Values, providers: &[Provider]) -> ScopedProviders {
    let container = values.get::<Container>();
    let given = |value| container.as_ref().is_some_and(|container| container.provides(value));
    let scoped = providers.iter().filter_map(|p| match &p.build {
        Build::Scoped(maker) if !given(&p.provides) => Some((p.provides.id, maker.clone())),
        _ => None,
    });
    ScopedProviders { annotated: scoped.collect(), container }
}

fn stuck(waiting: &[&Provider]) -> Error {
    let names: Vec<_> = waiting.iter().map(|p| p.about.name).collect();
    Error::new(
        ErrorKind::Wiring,
        "these providers wait for one another, or for something that nobody provides",
    )
    .with("providers", names.join(", "))
}

impl Provider {
    fn failed(&self, error: Error) -> Error {
        let (kind, transient) = (error.kind(), error.is_transient());
        Error::new(kind, format!("the provider `{}` could not make its value", self.about.name))
            .with("type", self.provides.type_name)
            .with("at", format_args!("{}:{}", self.about.file, self.about.line))
            .caused_by(error)
            .transient(transient)
    }
}
