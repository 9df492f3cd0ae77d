//! Why there is no emulator.

use std::fmt;

/// What this package's functions answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an emulator could not be had, or does not do what it was told.
#[derive(Debug, Clone)]
pub struct Error {
    message: String,
    is_unavailable: bool,
}

impl Error {
    /// It cannot be had on this machine as it is.
    pub(crate) fn unavailable(message: impl Into<String>) -> Error {
        Error { message: message.into(), is_unavailable: true }
    }

    /// It is there and does not work.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error { message: message.into(), is_unavailable: false }
    }

    /// Whether the machine lacks something, as opposed to an emulator that does not work. See [`or_skip`].
    pub fn is_unavailable(&self) -> bool {
        self.is_unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Adds what was being done to an error of the system.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::failed(format!("{what}: {error}")))
    }
}

/// The emulator, or `None` where the machine lacks what it takes: the test is to return then, and the reason has been
/// printed.
///
/// # Panics
/// If the emulator is there and does not work. With `BUS_TEST_STRICT=1`, as CI sets it, also if it cannot be had.
#[allow(clippy::print_stderr, reason = "a test that was not run has to say so")]
pub fn or_skip<T>(emulator: Result<T>) -> Option<T> {
    let strict = std::env::var("BUS_TEST_STRICT").is_ok_and(|strict| strict == "1");
    match emulator {
        Ok(emulator) => Some(emulator),
        Err(error) if error.is_unavailable() && !strict => {
            eprintln!("NOT RUN: {error}");
            None
        }
        Err(error) => panic!("no emulator: {error}"),
    }
}
