//! A record as a trace, from a file that is not trusted and may end anywhere.

use std::{io::BufRead, path::Path};

use serde::Deserialize;

use super::{Header, SCHEMA_MAJOR, record::Record};
use crate::{
    format::{Limits, ReadError, error::shorten, open::read_file},
    trace::Trace,
};

/// Reads a record.
///
/// A last line that is cut off is left out and the trace is marked incomplete; lines of kinds that
/// this version does not know are left out with a note.
///
/// # Errors
/// If the file cannot be read, exceeds the limits, has another major schema version, or a line
/// before the last is damaged.
pub fn read(path: &Path, limits: &Limits) -> Result<Trace, ReadError> {
    read_with_header(path, limits).map(|(_, trace)| trace)
}

/// As [`read`], with what the record says about its run.
///
/// # Errors
/// As [`read`].
pub fn read_with_header(path: &Path, limits: &Limits) -> Result<(Header, Trace), ReadError> {
    read_from(&mut read_file(path, limits)?.as_slice(), path)
}

/// Reads a record from any source; the path serves for messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(source: &mut dyn BufRead, path: &Path) -> Result<(Header, Trace), ReadError> {
    let mut lines = Lines {
        source,
        path,
        number: 0,
        line: Vec::new(),
    };
    let header = match lines.next()? {
        Some(_) => header(&lines)?,
        None => {
            return Err(ReadError::NotATrace {
                path: path.to_owned(),
            });
        }
    };
    let mut record = Record::default();
    while let Some(last) = lines.next()? {
        match record.take(&lines.line) {
            Ok(()) => {}
            Err(Fault::Cut(_)) if last => {
                record.cut_off();
            }
            Err(Fault::Cut(message) | Fault::Wrong(message)) => return Err(lines.wrong(&message)),
        }
    }
    let trace = record.into_trace(&header);
    Ok((header, trace))
}

/// The file's lines, one in memory at a time.
struct Lines<'a> {
    source: &'a mut dyn BufRead,
    path: &'a Path,
    number: u64,
    line: Vec<u8>,
}

impl Lines<'_> {
    /// Reads a line and says whether it is the last; `None` at the end.
    fn next(&mut self) -> Result<Option<bool>, ReadError> {
        self.line.clear();
        self.source
            .read_until(b'\n', &mut self.line)
            .map_err(ReadError::io(self.path))?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let rest = self.source.fill_buf().map_err(ReadError::io(self.path))?;
        Ok(Some(rest.is_empty()))
    }

    fn wrong(&self, message: &str) -> ReadError {
        ReadError::Line {
            path: self.path.to_owned(),
            line: self.number,
            message: shorten(message),
        }
    }
}

fn header(lines: &Lines<'_>) -> Result<Header, ReadError> {
    #[derive(Deserialize)]
    struct Version {
        kind: String,
        schema: String,
    }
    let Ok(version) = serde_json::from_slice::<Version>(&lines.line) else {
        return Err(lines.wrong("no whole header: this is no burnscope record"));
    };
    if version.kind != "header" {
        return Err(lines.wrong("a record begins with its header"));
    }
    let major = version.schema.split('.').next().unwrap_or_default();
    if major.parse() != Ok(SCHEMA_MAJOR) {
        return Err(ReadError::Schema {
            path: lines.path.to_owned(),
            found: shorten(&version.schema),
            supported: SCHEMA_MAJOR,
        });
    }
    serde_json::from_slice(&lines.line).map_err(|error| lines.wrong(&error.to_string()))
}

/// Why a line was not taken.
pub(super) enum Fault {
    /// It is no JSON object, as the last line after a crash.
    Cut(String),
    /// It does not fit what came before or its kind.
    Wrong(String),
}

pub(super) fn wrong(message: impl ToString) -> Fault {
    Fault::Wrong(message.to_string())
}
