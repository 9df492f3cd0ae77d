//! The one place where errors of the driver and of the server become ours.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;

use crate::contract::Fence;
use crate::error::{Error, ErrorKind};

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("nats")
}

/// What it means for a call that its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The call may be made again.
    Again,
    /// It is not known whether the call has taken effect, and it must not be made again without somebody's knowing.
    Unknown,
}

/// What JetStream says when it refuses.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

impl Refusal {
    /// There is no such stream, consumer or message.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// The condition of a conditional write does not hold.
    pub(super) fn is_wrong_sequence(&self) -> bool {
        matches!(self.err_code, 10_071 | 10_164)
    }

    /// A stream of that name is there with another configuration, or its subjects are another's.
    pub(super) fn is_stream_there(&self) -> bool {
        self.err_code == 10_058
    }

    /// The subjects of a stream that is to be made are those of one that is there.
    pub(super) fn is_overlap(&self) -> bool {
        self.err_code == 10_065
    }

    /// The message is not there (any more).
    pub(super) fn is_no_message(&self) -> bool {
        let says = |words| self.description.contains(words);
        // Some servers name the number instead: "sequence 7 not found".
        matches!(self.err_code, 10_037 | 10_043 | 10_057)
            && (says("no message found") || (says("sequence") && says("not found")))
    }

    /// A work queue has another consumer already.
    pub(super) fn is_other_consumer_there(&self) -> bool {
        matches!(self.err_code, 10_099 | 10_100)
    }

    /// As an error. Nothing was changed.
    pub(super) fn into_error(self) -> Error {
        let (kind, message) = match (self.code, self.err_code) {
            (_, 10_023 | 10_028 | 10_047 | 10_077) => {
                (ErrorKind::Unavailable, "the server has no room for more: it takes nothing new")
            }
            (_, 10_054) => (ErrorKind::TooLarge, "the stream takes no message of this size"),
            _ if self.is_overlap() => (
                ErrorKind::Config,
                "the subjects belong to somebody else's stream: choose another prefix, or remove it",
            ),
            (_, 10_074) => (ErrorKind::Config, "the server cannot keep so many replicas"),
            (_, 10_039 | 10_076) => (ErrorKind::Unavailable, "JetStream is not ready"),
            (404, _) => (ErrorKind::Unavailable, "a stream or consumer is missing"),
            (500.., _) => (ErrorKind::Unavailable, "JetStream cannot do it now"),
            _ => (ErrorKind::Internal, "JetStream refused a request"),
        };
        error(kind, message).caused_by(std::io::Error::other(format!(
            "{} ({}/{})",
            self.description, self.code, self.err_code
        )))
    }
}

/// The connection broke while an answer was awaited.
pub(super) fn of_broken_connection(lost: Lost) -> Error {
    match lost {
        Lost::Again => error(ErrorKind::Unavailable, "the connection broke before the answer came"),
        Lost::Unknown => unknown(),
    }
}

/// No answer came in time.
pub(super) fn of_silence(waited: Duration, lost: Lost) -> Error {
    let silent = match lost {
        Lost::Again => error(ErrorKind::Timeout, "the server did not answer in time"),
        Lost::Unknown => unknown(),
    };
    silent.with("waited", format!("{waited:?}"))
}

fn unknown() -> Error {
    error(ErrorKind::OutcomeUnknown, "the answer was lost: the message may have been stored or not")
}

/// There is no connection, and none could be made in time: nothing was asked.
pub(super) fn unconnected(server: &str) -> Error {
    error(ErrorKind::Unavailable, "the server cannot be reached").with("server", server)
}

/// A first connection could not be made.
pub(super) fn of_connecting(server: &str, cause: async_nats::ConnectError) -> Error {
    use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation, Tls};
    let (kind, message) = match cause.kind() {
        Authentication | AuthorizationViolation => {
            (ErrorKind::Config, "the server refuses the user or the password")
        }
        Tls => (ErrorKind::Config, "no encrypted connection could be made"),
        _ => (ErrorKind::Unavailable, "the server cannot be reached"),
    };
    error(kind, message).with("server", server).caused_by(cause)
}

/// JetStream did not answer at all.
pub(super) fn no_jetstream() -> Error {
    error(ErrorKind::Unavailable, "JetStream does not answer: is it switched on (nats-server -js)?")
}

/// The store has been closed.
pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the store has been closed")
}

/// The claim named by a receipt is not (any more) ours.
pub(super) fn receipt_lost() -> Error {
    error(ErrorKind::ReceiptLost, "the claim on the message is no longer ours")
}

/// Another fence is in force than the one that was demanded.
pub(super) fn term_lost(fence: Fence, in_force: Option<Fence>) -> Error {
    let in_force = in_force.map_or_else(|| "none".to_owned(), |fence| fence.to_string());
    error(ErrorKind::TermLost, "another fence is in force").with("fence", fence).with("in force", in_force)
}

/// The server answered with something that it never answers.
pub(super) fn unexpected(what: &'static str) -> Error {
    error(ErrorKind::Internal, "the server's answer is not understood").with("answer", what)
}
