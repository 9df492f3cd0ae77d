//! What is wrong with a configuration: collected, so that all of it is said at once.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// Where a value was written, for people. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A key of a file.
    File {
        /// The file as it was named.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The whole key, `transports.default`.
        key: String,
    },
    /// An environment variable.
    Variable(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { file, line, key } => write!(f, "{file}:{line}: `{key}`"),
            Place::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// The problems found so far, one line each.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Adds one.
    pub(super) fn add(&mut self, place: impl fmt::Display, what: impl fmt::Display) {
        self.0.push(format!("{place}: {what}"));
    }

    /// Nothing if there is no problem, else one error that says all of them.
    pub(super) fn into_result(mut self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(Error::new(ErrorKind::Config, self.0.remove(0))),
            count => Err(Error::new(ErrorKind::Config, format!("the configuration has {count} problems"))
                .caused_by(self)),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n             "))
    }
}

impl std::error::Error for Problems {}
