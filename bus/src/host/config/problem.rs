//! What is wrong with a configuration: collected, so that all of it is said at once.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// Where something was written, for people. Never holds what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file as a whole, or the variable that names it.
    Whole(String),
    /// A line of a file.
    Line {
        /// The file as it was named.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// A key of a file.
    Key {
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

impl Place {
    /// In which order problems are told: the file from its beginning to its end, then the variables.
    pub(super) fn rank(&self) -> usize {
        match self {
            Place::Whole(_) => 0,
            Place::Line { line, .. } | Place::Key { line, .. } => *line,
            Place::Variable(_) => usize::MAX,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole(what) => f.write_str(what),
            Place::Line { file, line } => write!(f, "{file}:{line}"),
            Place::Key { file, line, key } => write!(f, "{file}:{line}: `{key}`"),
            Place::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// The problems found so far, one line each, and how they rank.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<(usize, String)>);

impl Problems {
    /// Adds one.
    pub(super) fn add(&mut self, place: &Place, what: impl fmt::Display) {
        self.0.push((place.rank(), format!("{place}: {what}")));
    }

    /// Nothing if there is no problem, else one error that says all of them, in order.
    pub(super) fn into_result(mut self) -> Result<()> {
        self.0.sort_by_key(|(rank, _)| *rank);
        match self.0.len() {
            0 => Ok(()),
            1 => Err(Error::new(ErrorKind::Config, self.0.remove(0).1)),
            count => Err(Error::new(ErrorKind::Config, format!("the configuration has {count} problems"))
                .caused_by(self)),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<&str> = self.0.iter().map(|(_, problem)| problem.as_str()).collect();
        f.write_str(&lines.join("\n             "))
    }
}

impl std::error::Error for Problems {}
