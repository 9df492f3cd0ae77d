//! The one place where errors of the driver and of the server become ours.

use std::borrow::Cow;
use std::time::Duration;

use redis::RedisError;

use crate::contract::Fence;
use crate::error::{Error, ErrorKind};

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("redis")
}

/// What it means for a call that its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The call may be made again.
    Again,
    /// It is not known whether the call has taken effect, and it must not be made again without somebody's knowing.
    Unknown,
}

/// The server's own refusal: nothing was changed.
pub(super) fn of_server(cause: RedisError) -> Error {
    let (kind, message, transient) = match cause.code().unwrap_or_default() {
        "OOM" => {
            (ErrorKind::Unavailable, "the server's memory is full (maxmemory): it takes nothing new", true)
        }
        "READONLY" => (ErrorKind::Unavailable, "the server is a replica: it takes no writes", true),
        "LOADING" => (ErrorKind::Unavailable, "the server is still loading its data", true),
        "BUSY" => (ErrorKind::Unavailable, "the server is busy with a script", true),
        "MISCONF" => {
            (ErrorKind::Unavailable, "the server cannot write to its disk and takes no writes", true)
        }
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" => {
            (ErrorKind::Unavailable, "the server takes no writes for now", true)
        }
        "NOAUTH" | "WRONGPASS" => (ErrorKind::Config, "the server refuses the user or the password", false),
        "NOPERM" => (ErrorKind::Config, "the user lacks a permission on the server", false),
        "MOVED" | "ASK" | "CROSSSLOT" => (ErrorKind::Unsupported, CLUSTER, false),
        "WRONGTYPE" => {
            (ErrorKind::Corrupt, "a key of ours holds something else: is the prefix somebody else's?", false)
        }
        _ if cause.kind() == redis::ErrorKind::AuthenticationFailed => {
            (ErrorKind::Config, "the server refuses the user or the password", false)
        }
        _ => (ErrorKind::Internal, "the server refused a command", false),
    };
    error(kind, message).transient(transient).caused_by(cause)
}

/// The connection broke while an answer was awaited.
pub(super) fn of_broken_connection(cause: RedisError, lost: Lost) -> Error {
    match lost {
        Lost::Again => {
            error(ErrorKind::Unavailable, "the connection broke before the answer came").caused_by(cause)
        }
        Lost::Unknown => unknown().caused_by(cause),
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
pub(super) fn unconnected(server: &str, cause: Option<Error>) -> Error {
    let error = error(ErrorKind::Unavailable, "the server cannot be reached").with("server", server);
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

/// A connection could not be made.
pub(super) fn of_connecting(server: &str, cause: RedisError) -> Error {
    if cause.is_io_error() {
        return error(ErrorKind::Unavailable, "the server cannot be reached")
            .with("server", server)
            .caused_by(cause);
    }
    of_server(cause).with("server", server)
}

/// The store has been closed.
pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the store has been closed")
}

/// The claim named by a receipt is not (any more) in the store.
pub(super) fn receipt_lost() -> Error {
    error(ErrorKind::ReceiptLost, "the claim on the message is no longer ours")
}

/// Another fence is in force than the one that was demanded; none, if the text is empty.
pub(super) fn term_lost(fence: Fence, in_force: &str) -> Error {
    let in_force = if in_force.is_empty() { "none" } else { in_force };
    error(ErrorKind::TermLost, "another fence is in force").with("fence", fence).with("in force", in_force)
}

/// A script answered with something that it never answers.
pub(super) fn unexpected(what: &'static str) -> Error {
    error(ErrorKind::Internal, "a script's answer is not understood").with("answer", what)
}

/// Why a cluster is refused.
pub(super) const CLUSTER: &str = "the server is part of a cluster, whose other servers this backend does not know: \
                                  use one server, with replicas if need be";
