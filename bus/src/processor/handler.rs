//! From a delivery to a verdict: decode, extract the arguments, call, map the result.
//!
//! Everything here is generic over a chain of arguments `(A, (B, ()))`, so that any number of them costs one boxed
//! future per message and nothing else.

use std::error::Error as StdError;
use std::marker::PhantomData;

use futures_util::future::BoxFuture;

use super::extract::{Extract, Requirement, not_provided};
use super::refuse::{NAME_RULE, require};
use crate::error::{Directive, Error, ErrorKind, Result};
use crate::message::name::{ConstName, why_invalid};
use crate::message::{Command, Delivery, Endpoint, Envelope, Event, Headers, Message, Verdict};

/// A processor as the pump calls it: its types are forgotten.
pub trait Handler: Send + Sync {
    /// Works on one message. The future is dropped when the run has to be cut; a panic passes through.
    fn call(&self, delivery: Delivery) -> BoxFuture<'static, Verdict>;
}

/// Which message a processor takes, and from where.
///
/// Holds as values what it needs of `M`, so that the bound on `M` stands in one place, its constructor, and a wrong
/// message is one error.
#[derive(Debug)]
pub struct Source<M> {
    pub(super) endpoint: ConstEndpoint,
    pub(super) transport: &'static str,
    pub(super) message_type: &'static str,
    content_type: &'static str,
    decode: fn(&[u8]) -> Result<M>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ConstEndpoint {
    Queue(ConstName),
    Subscription { topic: ConstName, subscription: ConstName },
}

impl From<ConstEndpoint> for Endpoint {
    fn from(endpoint: ConstEndpoint) -> Self {
        match endpoint {
            ConstEndpoint::Queue(name) => Endpoint::Queue(name.into()),
            ConstEndpoint::Subscription { topic, subscription } => {
                Endpoint::Subscription { topic: topic.into(), subscription: subscription.into() }
            }
        }
    }
}

impl<M> Source<M> {
    /// The queue of a command.
    pub const fn command() -> Self
    where
        M: Command,
    {
        Source::new(ConstEndpoint::Queue(name(M::QUEUE, "its `QUEUE`")))
    }

    /// A subscription of an event's topic.
    pub const fn event(subscription: ConstName) -> Self
    where
        M: Event,
    {
        Source::new(ConstEndpoint::Subscription { topic: name(M::TOPIC, "its `TOPIC`"), subscription })
    }

    const fn new(endpoint: ConstEndpoint) -> Self
    where
        M: Message,
    {
        let _ = name(M::TRANSPORT, "its `TRANSPORT`");
        Source {
            endpoint,
            transport: M::TRANSPORT,
            message_type: M::TYPE,
            content_type: M::CONTENT_TYPE,
            decode: M::decode,
        }
    }
}

impl<M> Source<M> {
    /// The message in an envelope. One that is said to be encoded in another way than ours is not even tried: some
    /// encodings make something of any bytes. Whoever says nothing is taken to have written it as we read it.
    pub(super) fn message(&self, envelope: &Envelope) -> Result<M> {
        let message = match envelope.headers.get(Headers::CONTENT_TYPE) {
            Some(said) if !is_same_media_type(said, self.content_type) => Err(Error::new(
                ErrorKind::Decode,
                "the message is encoded in another way than this processor reads",
            )
            .with("type", self.message_type)
            .with("reads", self.content_type)
            .caused_by(format!("its content-type is {said:?}"))),
            _ => (self.decode)(&envelope.body),
        };
        match envelope.message_type == self.message_type {
            true => message,
            false => message.map_err(|error| error.with("sent as", &envelope.message_type)),
        }
    }
}

/// Whether two media types are the same, parameters (`; charset=utf-8`) aside.
fn is_same_media_type(one: &str, other: &str) -> bool {
    let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    one == other || essence(one) == essence(other)
}

/// Judges a name of a message whose traits were implemented by hand; the derives judge theirs at the literal.
const fn name(name: &'static str, what: &'static str) -> ConstName {
    require(why_invalid(name), what, " is no valid name: ", NAME_RULE);
    ConstName::new(name)
}

impl<M> Clone for Source<M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Source<M> {}

/// One argument, as a link of the chain.
pub trait Arg: Copy + Send + Sync + 'static {
    /// The argument's type.
    type Value: Send;
    /// See [`Extract::requires`].
    fn requires(&self) -> Vec<Requirement>;
    /// See [`Extract::extract`].
    fn extract(delivery: &Delivery) -> impl Future<Output = Result<Self::Value>> + Send;
}

/// Demands that `T` is an extractor for processors of kind `C`: the only place whose error the user is to see.
pub fn extractor<T: Extract<C>, C>() {}

/// Asks whether `T` is an extractor, without an error if it is not: [`Probe::link`](LinkToExtractor::link) finds the link to
/// the extractor if there is one, else the one to nothing.
///
/// A bound on the link itself would be an error in each place where the link is passed on. So the demand is made once,
/// by [`extractor`], and what follows compiles in any case.
pub struct Probe<T, C>(PhantomData<fn() -> (T, C)>);

impl<T, C> Probe<T, C> {
    /// Holds nothing.
    pub const NEW: Self = Probe(PhantomData);
}

/// Tried first for a `&Probe`.
pub trait LinkToExtractor<T, C> {
    /// The argument as an extractor makes it.
    fn link(&self) -> Link<T, C>;
}

impl<T: Extract<C>, C: 'static> LinkToExtractor<T, C> for Probe<T, C> {
    fn link(&self) -> Link<T, C> {
        Link(PhantomData)
    }
}

/// Tried next, since it takes one more reference.
pub trait LinkToNothing<T> {
    /// An argument that cannot be made, of a processor that does not compile.
    fn link(&self) -> NoLink<T>;
}

impl<T, C> LinkToNothing<T> for &Probe<T, C> {
    fn link(&self) -> NoLink<T> {
        NoLink(PhantomData)
    }
}

/// An extractor of kind `C`.
pub struct Link<T, C>(PhantomData<fn() -> (T, C)>);

/// No extractor.
pub struct NoLink<T>(PhantomData<fn() -> T>);

impl<T, C> Clone for Link<T, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, C> Copy for Link<T, C> {}

impl<T> Clone for NoLink<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for NoLink<T> {}

impl<T: Extract<C>, C: 'static> Arg for Link<T, C> {
    type Value = T;
    fn requires(&self) -> Vec<Requirement> {
        T::requires()
    }
    fn extract(delivery: &Delivery) -> impl Future<Output = Result<T>> + Send {
        T::extract(delivery)
    }
}

impl<T: Send + 'static> Arg for NoLink<T> {
    type Value = T;
    fn requires(&self) -> Vec<Requirement> {
        Vec::new()
    }
    async fn extract(_: &Delivery) -> Result<T> {
        Err(not_provided::<T>())
    }
}

/// A chain of arguments: `(A, (B, ()))`.
pub trait Args: Copy + Send + Sync + 'static {
    /// The same chain of values.
    type Values: Send;
    /// What all of them require.
    fn requires(&self) -> Vec<Requirement>;
    /// All of them, from the first to the last; the first that fails ends it.
    fn extract(delivery: &Delivery) -> impl Future<Output = Result<Self::Values>> + Send;
}

impl Args for () {
    type Values = ();
    fn requires(&self) -> Vec<Requirement> {
        Vec::new()
    }
    async fn extract(_: &Delivery) -> Result<()> {
        Ok(())
    }
}

impl<A: Arg, Rest: Args> Args for (A, Rest) {
    type Values = (A::Value, Rest::Values);
    fn requires(&self) -> Vec<Requirement> {
        let mut all = self.0.requires();
        all.extend(self.1.requires());
        all
    }
    async fn extract(delivery: &Delivery) -> Result<Self::Values> {
        let first = A::extract(delivery).await?;
        Ok((first, Rest::extract(delivery).await?))
    }
}

/// What a processor may return: `()`, or `Result<(), E>` with any error.
#[diagnostic::on_unimplemented(
    message = "a processor returns `()` or `Result<(), E>`, not `{Self}`",
    label = "cannot be returned by a processor",
    note = "`E` is any error that converts into `Box<dyn Error + Send + Sync>`: `bus::Error`, `anyhow::Error`, one of your own"
)]
pub trait Outcome: Send {
    /// What is to become of the message.
    fn verdict(self) -> Verdict;
}

impl Outcome for () {
    fn verdict(self) -> Verdict {
        Verdict::Complete
    }
}

// Not recommended: else the error would speak of the innermost bound on `E` instead of what to return.
#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn StdError + Send + Sync>> + Send> Outcome for Result<(), E> {
    fn verdict(self) -> Verdict {
        match self {
            Ok(()) => Verdict::Complete,
            Err(error) => failed(error.into()),
        }
    }
}

/// What an error means for its message: another attempt, unless a directive in its chain of sources says otherwise.
pub(super) fn failed(error: Box<dyn StdError + Send + Sync>) -> Verdict {
    let directive = Directive::find(&*error).cloned();
    let error = match error.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(theirs) => Error::new(ErrorKind::Handler, "the handler failed").caused_by(theirs),
    };
    match directive {
        None => Verdict::Retry { after: None, error },
        Some(Directive::RetryAfter(after)) => Verdict::Retry { after: Some(after), error },
        Some(Directive::DeadLetter(reason)) => Verdict::DeadLetter { reason, error: Some(error) },
    }
}

/// What `R` means for the message. The only place with the bound on what a processor returns: a bound on something that
/// is then passed on would be an error in each place it is passed to.
pub fn outcome<R: Outcome>() -> fn(R) -> Verdict {
    R::verdict
}

/// A function with its message, its arguments and what becomes of its result.
pub(super) struct Typed<M, A, F, R> {
    pub(super) source: Source<M>,
    pub(super) args: PhantomData<fn() -> A>,
    pub(super) function: F,
    pub(super) outcome: fn(R) -> Verdict,
}

impl<M, A, F, Called, R> Handler for Typed<M, A, F, R>
where
    M: Send + 'static,
    A: Args,
    F: Fn(M, A::Values) -> Called + Clone + Send + Sync + 'static,
    Called: Future<Output = R> + Send + 'static,
    R: 'static,
{
    fn call(&self, delivery: Delivery) -> BoxFuture<'static, Verdict> {
        let source = self.source;
        let outcome = self.outcome;
        let function = self.function.clone();
        Box::pin(async move {
            let message = match source.message(&delivery.envelope) {
                Ok(message) => message,
                Err(error) => {
                    return Verdict::DeadLetter { reason: "undecodable".to_owned(), error: Some(error) };
                }
            };
            match A::extract(&delivery).await {
                Ok(values) => outcome(function(message, values).await),
                Err(error) => failed(error.into()),
            }
        })
    }
}
