//! The one place where what Azure's client and Azure itself answer becomes ours.
//!
//! An error of the client is never shown as it is: it carries the whole answer and, in places, the address with its
//! signature. What is kept of it is what helps: status, Azure's code, the request's id, and what failed below HTTP.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use azure_core::error::ErrorKind as ClientErrorKind;
use azure_core::http::headers::{HeaderName, Headers};

use crate::error::{Error, ErrorKind};

/// What this backend is called in errors.
const BACKEND: &str = "azure_storage";

/// Identifies a request to those who run the service.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

/// Azure's codes that make a difference.
mod code {
    pub(super) const CONTAINER_BEING_DELETED: &str = "ContainerBeingDeleted";
    pub(super) const CONTAINER_NOT_FOUND: &str = "ContainerNotFound";
    pub(super) const CONDITION_NOT_MET: &str = "ConditionNotMet";
    pub(super) const MESSAGE_NOT_FOUND: &str = "MessageNotFound";
    pub(super) const POP_RECEIPT_MISMATCH: &str = "PopReceiptMismatch";
    pub(super) const QUEUE_BEING_DELETED: &str = "QueueBeingDeleted";
    pub(super) const QUEUE_NOT_FOUND: &str = "QueueNotFound";
}

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend(BACKEND)
}

/// What to look at where the service does not let us in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advice {
    /// The credentials are not accepted.
    pub(super) accepted: &'static str,
    /// They are, and do not permit what was asked.
    pub(super) permitted: &'static str,
}

/// Why a request did not succeed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The service answered something else than success.
    Refused { status: u16, code: Option<String>, request_id: Option<String>, retry_after: Option<Duration> },
    /// There was nobody to send it to.
    Unreached(String),
    /// There was no answer, or none that could be read: the request may or may not have been carried out.
    Broken(String),
    /// There was no answer in the time there was.
    Unanswered,
    /// The client itself could not send the request, or not understand the answer.
    Client(String),
}

impl From<azure_core::Error> for Failure {
    fn from(error: azure_core::Error) -> Self {
        match error.kind() {
            ClientErrorKind::HttpResponse { status, error_code, raw_response } => {
                let headers = raw_response.as_ref().map(|answer| answer.headers());
                Failure::Refused {
                    status: u16::from(*status),
                    // Where there is no code, the client gives the status instead.
                    code: error_code
                        .clone()
                        .filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric())),
                    request_id: headers.and_then(|headers| text(headers, &REQUEST_ID)),
                    retry_after: headers
                        .and_then(|headers| text(headers, &RETRY_AFTER)?.parse().ok())
                        .map(Duration::from_secs),
                }
            }
            ClientErrorKind::Connection => Failure::Unreached(innermost(&error)),
            ClientErrorKind::Io => Failure::Broken(innermost(&error)),
            _ => Failure::Client(innermost(&error)),
        }
    }
}

fn text(headers: &Headers, name: &HeaderName) -> Option<String> {
    headers.get_optional_str(name).map(str::to_owned)
}

/// What it was caused by in the end: what stands before it repeats it, or names the request's address.
fn innermost(error: &azure_core::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.last().map_or_else(|| error.kind().to_string(), ToString::to_string)
}

impl Failure {
    fn status(&self) -> Option<u16> {
        match self {
            Failure::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    fn is_code(&self, wanted: &str) -> bool {
        matches!(self, Failure::Refused { code: Some(code), .. } if code == wanted)
    }

    /// It is none: the service answered with another success than the client had expected.
    pub(super) fn is_success(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }

    /// The blob, or the container, is not there.
    pub(super) fn is_missing(&self) -> bool {
        self.status() == Some(404)
    }

    /// The container is not there, as far as that can be told apart.
    pub(super) fn is_missing_container(&self) -> bool {
        self.is_missing() && (self.is_code(code::CONTAINER_NOT_FOUND) || !self.has_code())
    }

    fn has_code(&self) -> bool {
        matches!(self, Failure::Refused { code: Some(_), .. })
    }

    /// What was to be made is there already, be it that somebody has a lease on it by now.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.status(), Some(409 | 412)) && !self.is_being_deleted()
    }

    /// Somebody else has the lease, or nobody has it any more. Other conflicts (a policy that forbids writing, an archived
    /// blob) say nothing about who holds a lock, and would never pass.
    pub(super) fn is_about_lease(&self) -> bool {
        let Failure::Refused { status: 409 | 412, code, .. } = self else { return false };
        code.as_ref().is_none_or(|code| code.starts_with("Lease"))
    }

    /// Azure still deletes the container, or the queue, of that name.
    pub(super) fn is_being_deleted(&self) -> bool {
        self.is_code(code::CONTAINER_BEING_DELETED) || self.is_code(code::QUEUE_BEING_DELETED)
    }

    /// The queue is not there.
    pub(super) fn is_missing_queue(&self) -> bool {
        self.is_missing() && self.is_code(code::QUEUE_NOT_FOUND)
    }

    /// A message is no longer claimed under the pop receipt that the request named: Azure says 404, its emulator also
    /// 400; and neither is one whose queue has gone.
    pub(super) fn is_stale_claim(&self) -> bool {
        let Failure::Refused { status: 400 | 404 | 409, code, .. } = self else { return false };
        match code.as_deref() {
            Some(code) => [
                code::MESSAGE_NOT_FOUND,
                code::POP_RECEIPT_MISMATCH,
                code::QUEUE_NOT_FOUND,
                code::QUEUE_BEING_DELETED,
            ]
            .contains(&code),
            None => self.is_missing(),
        }
    }

    /// The request was not carried out, for certain.
    pub(super) fn is_certain(&self) -> bool {
        match self {
            Failure::Refused { status, .. } => matches!(status, 400..500 | 503) && *status != 408,
            Failure::Unreached(_) => true,
            Failure::Broken(_) | Failure::Unanswered | Failure::Client(_) => false,
        }
    }

    /// The service is away: it was not reached, or did not answer.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Failure::Unreached(_) | Failure::Broken(_) | Failure::Unanswered)
    }

    /// The blob is not as it was when it was read.
    pub(super) fn is_outdated(&self) -> bool {
        self.status() == Some(412) && self.is_code(code::CONDITION_NOT_MET)
    }

    /// The lease that the request named is not ours: for certain, and for ever.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self.status(), Some(404 | 409 | 412))
    }

    /// The same request may succeed in a moment.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Failure::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Failure::Unreached(_) | Failure::Broken(_) => true,
            Failure::Unanswered | Failure::Client(_) => false,
        }
    }

    /// How long the service asks to be left alone.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Failure::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// As an error, for people.
    pub(super) fn into_error(self, advice: Advice) -> Error {
        let described = match &self {
            Failure::Refused { status, code, .. } => {
                let (kind, message) = self.meaning(*status, code.as_deref().unwrap_or_default(), advice);
                // An answer of the service is no passing trouble, unless it says so.
                error(kind, message).transient(self.is_passing() || self.is_being_deleted())
            }
            Failure::Unreached(cause) if is_untrusted(cause) => {
                error(ErrorKind::Unavailable, "this system does not trust the service's certificate")
                    .transient(false)
            }
            Failure::Unreached(_) | Failure::Broken(_) => {
                error(ErrorKind::Unavailable, "the service cannot be reached, or did not answer to the end")
            }
            Failure::Unanswered => error(ErrorKind::Timeout, "the service did not answer in time"),
            Failure::Client(_) => {
                error(ErrorKind::Internal, "the request could not be sent, or the answer not be understood")
            }
        };
        match self {
            Failure::Refused { status, code, request_id, .. } => {
                let mut error = described.with("status", status);
                if let Some(code) = code {
                    error = error.with("code", code);
                }
                match request_id {
                    Some(id) => error.with("request", id),
                    None => error,
                }
            }
            Failure::Unreached(cause) | Failure::Broken(cause) | Failure::Client(cause) => {
                described.caused_by(Cause(cause))
            }
            Failure::Unanswered => described,
        }
    }

    fn meaning(&self, status: u16, code: &str, advice: Advice) -> (ErrorKind, &'static str) {
        match (status, code) {
            (401 | 403, "AccountIsDisabled") => (ErrorKind::Config, "the account is disabled"),
            (401 | 403, "KeyBasedAuthenticationNotPermitted") => (
                ErrorKind::Config,
                "the account takes no account keys: permit them, or use a user delegation SAS",
            ),
            (
                401 | 403,
                "AuthorizationPermissionMismatch"
                | "AuthorizationResourceTypeMismatch"
                | "AuthorizationServiceMismatch"
                | "InsufficientAccountPermissions",
            ) => (ErrorKind::Config, advice.permitted),
            (401 | 403, _) => (ErrorKind::Config, advice.accepted),
            (404, _) => (ErrorKind::NotFound, "what was asked for is not there"),
            _ if self.is_being_deleted() => (
                ErrorKind::Unavailable,
                "one of that name is being deleted, which takes half a minute or more: wait, or name another",
            ),
            (409 | 412, _) => {
                (ErrorKind::Unavailable, "what was asked for is in another state than expected")
            }
            _ if self.is_passing() => (ErrorKind::Unavailable, "the service refuses work for now"),
            _ => (ErrorKind::Internal, "the service refuses the request"),
        }
    }
}

/// Whether a connection failed for its certificate, which no waiting makes a trusted one. The TLS library says so in these
/// words; its error is of a type that only its own crate could name.
fn is_untrusted(cause: &str) -> bool {
    cause.contains("invalid peer certificate")
}

/// What an error was caused by, as text.
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Cause {}
