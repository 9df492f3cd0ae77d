//! The one place where errors of the driver and of the server become ours.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::error::{Error, ErrorKind};

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("postgres")
}

/// What the driver said about a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused the statement and is ready for the next one: nothing was changed.
    Refused(tokio_postgres::Error),
    /// The connection is lost, or not to be used again; what was asked may or may not have been done.
    Broken(tokio_postgres::Error),
    /// No answer in time: the same.
    Silent(Duration),
    /// The server was not asked.
    NotAsked(Error),
}

impl Failure {
    /// What an error of the driver means for the connection.
    pub(super) fn of(cause: tokio_postgres::Error) -> Self {
        match cause.code() {
            Some(code) if !ends_the_session(code) => Failure::Refused(cause),
            _ => Failure::Broken(cause),
        }
    }

    /// Whether the connection can be used again.
    pub(super) fn is_clean(&self) -> bool {
        match self {
            // A statement whose plan or tables are not what they were: a fresh session knows better.
            Failure::Refused(cause) => !cause.code().is_some_and(is_outdated),
            Failure::Broken(_) | Failure::Silent(_) => false,
            Failure::NotAsked(_) => true,
        }
    }

    /// The code that the server gave for refusing a statement.
    pub(super) fn refusal(&self) -> Option<&SqlState> {
        match self {
            Failure::Refused(cause) => cause.code(),
            _ => None,
        }
    }

    /// Whether tables or the schema are not there (any more).
    pub(super) fn is_missing_schema(&self) -> bool {
        self.refusal().is_some_and(|code| {
            [
                SqlState::UNDEFINED_TABLE,
                SqlState::INVALID_SCHEMA_NAME,
                SqlState::UNDEFINED_FUNCTION,
                SqlState::UNDEFINED_OBJECT,
            ]
            .contains(code)
        })
    }

    /// As the answer to a call that may safely be repeated.
    pub(super) fn of_repeatable(self) -> Error {
        match self {
            Failure::NotAsked(error) => error,
            Failure::Silent(time) => error(ErrorKind::Timeout, "the server did not answer in time")
                .with("waited", format_args!("{time:?}")),
            Failure::Broken(cause) => unreachable_server("the connection to the server was lost", cause),
            Failure::Refused(cause) => refused(cause),
        }
    }

    /// As the answer to a call that must not be repeated unless it certainly did nothing.
    pub(super) fn of_once(self) -> Error {
        match self {
            Failure::Silent(time) => {
                error(ErrorKind::OutcomeUnknown, "the server did not answer in time: what was asked may or may not have been done")
                    .with("waited", format_args!("{time:?}"))
            }
            Failure::Broken(cause) => error(
                ErrorKind::OutcomeUnknown,
                "the connection was lost before the answer came: what was asked may or may not have been done",
            )
            .caused_by(Said::by(cause)),
            other => other.of_repeatable(),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(cause: tokio_postgres::Error) -> Self {
        Failure::of(cause)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::NotAsked(error)
    }
}

/// The server ends the session with such an error, or is about to.
fn ends_the_session(code: &SqlState) -> bool {
    // Operator intervention but for a cancelled statement; connection exceptions; internal errors.
    (code.code().starts_with("57P")) || code.code().starts_with("08") || code.code().starts_with("XX")
}

/// What a session has prepared does not fit the tables any more, or is not there.
fn is_outdated(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_OBJECT,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::DUPLICATE_PSTATEMENT,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IN_FAILED_SQL_TRANSACTION,
        SqlState::ACTIVE_SQL_TRANSACTION,
    ]
    .contains(code)
}

fn unreachable_server(message: &'static str, cause: tokio_postgres::Error) -> Error {
    error(ErrorKind::Unavailable, message).caused_by(Said::by(cause))
}

/// An error while connecting.
pub(super) fn of_connect(cause: tokio_postgres::Error) -> Error {
    match cause.code() {
        Some(_) => refused(cause),
        None if is_lasting(&cause) => {
            unreachable_server("the server cannot be connected to as the URL says", cause).transient(false)
        }
        None => unreachable_server("cannot connect to the server", cause),
    }
}

/// Whether trying again brings nothing: a password is missing, the server has no TLS, or no certificate that we trust. What
/// the network does to a connection has a cause of the operating system's, or none.
fn is_lasting(cause: &tokio_postgres::Error) -> bool {
    match std::error::Error::source(cause) {
        None => false,
        Some(source) => match source.downcast_ref::<std::io::Error>() {
            Some(io) => io.kind() == std::io::ErrorKind::InvalidData,
            None => true,
        },
    }
}

/// What a refusal by the server means.
fn refused(cause: tokio_postgres::Error) -> Error {
    let code = cause.code().cloned().unwrap_or(SqlState::INTERNAL_ERROR);
    let (kind, transient, message) = match code.code() {
        "28000" | "28P01" => (ErrorKind::Unavailable, false, "the server refused the log-in"),
        "3D000" => (ErrorKind::Unavailable, false, "there is no such database on the server"),
        "42501" => (
            ErrorKind::Unavailable,
            false,
            "the database user may not do this: run the grants of this backend's documentation",
        ),
        "25006" => (ErrorKind::Unavailable, true, "the server is read-only for now, as a standby is"),
        "53300" => (ErrorKind::Unavailable, true, "the server has no connection left"),
        "53100" => (ErrorKind::Unavailable, true, "the server's disk is full"),
        "57014" | "55P03" => {
            (ErrorKind::Timeout, true, "the server gave the statement up after its time limit")
        }
        "54000" | "54001" | "53200" => (ErrorKind::Unavailable, true, "the server is out of memory for this"),
        "42P01" | "3F000" | "42883" | "42703" | "42704" => {
            (ErrorKind::Unavailable, true, "the tables are missing or of another version")
        }
        "26000" | "42P05" | "0A000" => (ErrorKind::Unavailable, true, "a prepared statement is out of date"),
        code if code.starts_with("40") || code.starts_with("25") => {
            (ErrorKind::Unavailable, true, "the statement collided with another one")
        }
        code if code.starts_with("57") || code.starts_with("08") || code.starts_with("53") => {
            (ErrorKind::Unavailable, true, "the server is not available")
        }
        _ => (ErrorKind::Internal, false, "a statement failed"),
    };
    error(kind, message).transient(transient).with("code", code.code()).caused_by(Said::by(cause))
}

/// What the server or the driver said, without the details: there the server quotes values, and bodies among them.
#[derive(Debug)]
struct Said(String);

impl Said {
    fn by(cause: tokio_postgres::Error) -> Box<dyn std::error::Error + Send + Sync> {
        match cause.as_db_error() {
            Some(said) => Box::new(Said(format!("{}: {}", said.severity(), said.message()))),
            None => Box::new(cause),
        }
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Said {}

/// The store has been closed.
pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the store has been closed")
}

/// The claim named by a receipt is not (any more) in the store.
pub(super) fn receipt_lost() -> Error {
    error(ErrorKind::ReceiptLost, "the claim on the message is no longer ours")
}
