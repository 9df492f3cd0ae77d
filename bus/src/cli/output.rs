//! Where answers are written: a table or lines for people, one JSON object a line for programs.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use super::text;
use crate::error::{Error, ErrorKind, Result};

/// Where a command's answer goes, and in which form.
pub(super) struct Output<'w> {
    out: &'w mut (dyn Write + Send),
    json: bool,
    reader_is_gone: bool,
}

/// A line of a listing.
pub(super) trait Record: Serialize {
    /// The headings for people.
    const COLUMNS: &'static [&'static str];

    /// What stands below them.
    fn cells(&self) -> Vec<String>;
}

impl<'w> Output<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send), json: bool) -> Self {
        Output { out, json, reader_is_gone: false }
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nobody reads any more, so that nothing need be said about it either.
    pub(super) fn reader_is_gone(&self) -> bool {
        self.reader_is_gone
    }

    /// Writes a line for people; programs do not get it.
    pub(super) fn say(&mut self, line: impl Display) -> Result<()> {
        if self.json { Ok(()) } else { self.line(line) }
    }

    /// Writes one answer, in whichever form it is wanted.
    pub(super) fn answer(&mut self, answer: &(impl Serialize + Display)) -> Result<()> {
        if self.json { self.object(answer) } else { self.line(answer) }
    }

    fn object(&mut self, object: &impl Serialize) -> Result<()> {
        let json = serde_json::to_string(object).map_err(|error| {
            Error::new(ErrorKind::Internal, "the answer cannot be written as JSON").caused_by(error)
        })?;
        self.line(json)
    }

    fn line(&mut self, line: impl Display) -> Result<()> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(|error| {
            self.reader_is_gone |= error.kind() == std::io::ErrorKind::BrokenPipe;
            Error::new(ErrorKind::Unavailable, "the answer cannot be written").caused_by(error)
        })
    }
}

/// A listing: written at once for programs, as one table at its end for people.
pub(super) struct Listing<'o, 'w, R> {
    output: &'o mut Output<'w>,
    rows: Vec<Vec<String>>,
    is_empty: bool,
    record: std::marker::PhantomData<R>,
}

impl<'o, 'w, R: Record> Listing<'o, 'w, R> {
    pub(super) fn new(output: &'o mut Output<'w>) -> Self {
        Listing { output, rows: Vec::new(), is_empty: true, record: std::marker::PhantomData }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(super) fn add(&mut self, record: &R) -> Result<()> {
        self.is_empty = false;
        if self.output.json {
            return self.output.object(record);
        }
        self.rows.push(record.cells());
        Ok(())
    }

    /// Writes the table, or `nothing` if there is none.
    pub(super) fn end(self, nothing: impl Display) -> Result<()> {
        if self.rows.is_empty() {
            return self.output.say(nothing);
        }
        self.output.say(text::table(R::COLUMNS, &self.rows))
    }
}
