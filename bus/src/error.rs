//! The one error type of the crate.
//!
//! Code decides by [`ErrorKind`] and [`Error::is_transient`]; people read the text. `Display` is one line, for logs;
//! `Debug` is the whole report (what happened, where, what it was caused by), because that is what Rust prints when
//! `main` returns an error. Neither ever contains a message body, a URL's password or a key.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// `Result` with this crate's [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for code to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration cannot be read or has a value that is not allowed.
    Config,
    /// The binary's handlers, providers, transports and locks do not fit together.
    Wiring,
    /// A name, duration or other argument is outside what is allowed.
    InvalidInput,
    /// A message could not be turned into bytes.
    Encode,
    /// Bytes could not be turned into a message.
    Decode,
    /// The message is larger than the transport takes.
    TooLarge,
    /// No transport of that name is configured.
    UnknownTransport,
    /// The backend cannot do what was asked.
    Unsupported,
    /// What was asked for is not there.
    NotFound,
    /// The host or the connection has been closed.
    Closed,
    /// The store cannot be reached or refuses work for now.
    Unavailable,
    /// The store did not answer in time; the call changed nothing or may safely be repeated.
    Timeout,
    /// The connection was lost while the store may have been committing: the call may or may not have taken effect.
    OutcomeUnknown,
    /// The claim on a message is no longer ours; nothing was changed.
    ReceiptLost,
    /// The singleton's term is over, or its fence is no longer the highest; nothing was changed.
    TermLost,
    /// The store's content is not what this version understands, or is damaged.
    Corrupt,
    /// A handler failed or panicked.
    Handler,
    /// A defect of this crate or of a backend.
    Internal,
}

/// What a handler's error asks the bus to do with the message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Directive {
    /// Try again after this time, whatever the retry policy says. Counts as a failed attempt.
    RetryAfter(Duration),
    /// Do not try again: put the message into the dead letters with this reason.
    DeadLetter(String),
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Directive::RetryAfter(after) => write!(f, "retry after {after:?}"),
            Directive::DeadLetter(reason) => write!(f, "dead letter: {reason}"),
        }
    }
}

impl StdError for Directive {}

impl Directive {
    /// Finds a directive anywhere in the chain of sources of `error`, so that it is recognised however many error
    /// types of the user's (`thiserror`, `anyhow`) it has been wrapped in.
    pub fn find<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Directive> {
        std::iter::successors(Some(error), |e| (*e).source()).find_map(|e| e.downcast_ref())
    }
}

/// How many causes of an error are kept in words. A chain may have no end.
const MOST_CAUSES: usize = 64;

/// What an error has said, and those that caused it.
#[derive(Debug)]
struct Words {
    text: String,
    next: Option<Arc<Words>>,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Words {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.next.as_deref().map(|next| next as &(dyn StdError + 'static))
    }
}

/// An error and all that caused it.
fn causes_from<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |e| (*e).source())
}

/// A chain of causes that are texts.
fn in_words(texts: Vec<String>) -> Option<Arc<dyn StdError + Send + Sync>> {
    let words = texts.into_iter().rev().fold(None, |next, text| Some(Arc::new(Words { text, next })));
    words.map(|words| words as Arc<dyn StdError + Send + Sync>)
}

/// Anything that can go wrong in `bus`.
#[derive(Clone)]
pub struct Error {
    // Shared, since one failure may be the answer to many callers whose messages travelled together.
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    transient: bool,
    message: Cow<'static, str>,
    backend: Option<&'static str>,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn StdError + Send + Sync + 'static>>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let transient = matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout);
        Error {
            inner: Arc::new(Inner {
                kind,
                transient,
                message: message.into(),
                backend: None,
                context: Vec::new(),
                source: None,
            }),
        }
    }

    /// A handler's way to ask for another attempt after `after`, instead of what its retry policy says.
    ///
    /// ```
    /// # use std::time::Duration;
    /// async fn handle() -> bus::Result<()> {
    ///     Err(bus::Error::retry_after(Duration::from_secs(90)))
    /// }
    /// ```
    pub fn retry_after(after: Duration) -> Self {
        Error::new(ErrorKind::Handler, "the handler asked for another attempt later")
            .caused_by(Directive::RetryAfter(after))
    }

    /// A handler's way to put its message into the dead letters at once, with `reason`.
    pub fn dead_letter(reason: impl Into<String>) -> Self {
        Error::new(ErrorKind::Handler, "the handler refused the message")
            .caused_by(Directive::DeadLetter(reason.into()))
    }

    /// Names the backend in which it happened.
    #[must_use]
    pub fn in_backend(mut self, backend: &'static str) -> Self {
        Arc::make_mut(&mut self.inner).backend = Some(backend);
        self
    }

    /// Adds a fact for people: `key` is a short noun (`queue`, `file`, `lock`).
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        Arc::make_mut(&mut self.inner).context.push((key, value.to_string()));
        self
    }

    /// Adds what this was caused by.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync + 'static>>) -> Self {
        Arc::make_mut(&mut self.inner).source = Some(Arc::from(source.into()));
        self
    }

    /// Says whether the same call may succeed later without anyone changing anything.
    #[must_use]
    pub fn transient(mut self, transient: bool) -> Self {
        Arc::make_mut(&mut self.inner).transient = transient;
        self
    }

    /// The error and all that caused it, on one line: for a store that keeps it with a dead letter.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        for cause in std::iter::successors(self.source(), |e| (*e).source()) {
            text.push_str(": ");
            text.push_str(&cause.to_string());
        }
        text
    }

    /// The same error with its causes as text. A cause of the user's own may panic when it is shown or dropped: whoever
    /// calls this catches that, and nobody else meets with it.
    pub(crate) fn in_words(mut self) -> Self {
        let causes = self.source().into_iter().flat_map(causes_from);
        let words = in_words(causes.take(MOST_CAUSES).map(ToString::to_string).collect());
        if words.is_some() {
            Arc::make_mut(&mut self.inner).source = words;
        }
        self
    }

    /// The same error with each of its texts, and those of its causes, put in other words.
    pub(crate) fn reworded(mut self, reword: impl Fn(&str) -> String) -> Self {
        self = self.in_words();
        let inner = Arc::make_mut(&mut self.inner);
        inner.message = reword(&inner.message).into();
        for (_, value) in &mut inner.context {
            *value = reword(value);
        }
        let causes = inner.source.iter().flat_map(|source| causes_from(&**source));
        let words = in_words(causes.map(|cause| reword(&cause.to_string())).collect());
        inner.source = words;
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the same call may succeed later without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        self.inner.transient
    }

    /// The backend in which it happened, where it was one.
    pub fn backend(&self) -> Option<&'static str> {
        self.inner.backend
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.inner.backend {
            write!(f, "{backend}: ")?;
        }
        f.write_str(&self.inner.message)?;
        for (i, (key, value)) in self.inner.context.iter().enumerate() {
            write!(f, "{}{key}: {value}", if i == 0 { " (" } else { ", " })?;
        }
        if !self.inner.context.is_empty() {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        for cause in std::iter::successors(self.source(), |e| (*e).source()) {
            write!(f, "\n  caused by: {cause}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapper(Error);
    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
    impl StdError for Wrapper {
        // What `thiserror`'s `#[error(transparent)]` does: it skips the wrapped error itself.
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.0.source()
        }
    }

    #[test]
    fn a_directive_is_found_through_a_transparent_wrapper() {
        let error = Wrapper(Error::dead_letter("no such tenant"));
        assert_eq!(Directive::find(&error), Some(&Directive::DeadLetter("no such tenant".into())));
        assert_eq!(Directive::find(&Error::new(ErrorKind::Handler, "plain")), None);
    }

    #[test]
    fn in_words_an_error_says_the_same() {
        let middle =
            Wrapper(Error::new(ErrorKind::Timeout, "late").caused_by(std::io::Error::other("asleep")));
        let error = Error::new(ErrorKind::Handler, "it failed").with("queue", "q").caused_by(middle);
        let words = error.clone().in_words();
        assert_eq!(words.kind(), error.kind());
        assert_eq!((words.with_causes(), format!("{words:?}")), (error.with_causes(), format!("{error:?}")));
        assert!(words.source().is_some_and(|source| source.downcast_ref::<Wrapper>().is_none()));
    }

    #[test]
    fn display_is_one_line_and_debug_is_the_report() {
        let error = Error::new(ErrorKind::Unavailable, "cannot open the store")
            .in_backend("sqlite")
            .with("file", "bus.db")
            .caused_by(std::io::Error::other("disk on fire"));
        assert_eq!(error.to_string(), "sqlite: cannot open the store (file: bus.db)");
        assert_eq!(
            format!("{error:?}"),
            "sqlite: cannot open the store (file: bus.db)\n  caused by: disk on fire"
        );
        assert!(error.is_transient());
    }
}
