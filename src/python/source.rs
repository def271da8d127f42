//! One Python file's text, its line numbers, and parsing with every limit applied.

use ruff_python_ast::ModModule;
use ruff_python_parser::{ParseError, Parsed, parse_module};

use super::nesting::{MAX_NESTING, nesting_exceeds};

/// The largest file that is read. The largest file of transformers has well under 1 MB.
pub const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// Why a file could not be parsed, and on which line (counted from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    /// The line of the first error, counted from 1.
    pub line: usize,
    /// What the parser expected.
    pub message: String,
}

/// Turns the bytes of a file into text: drops a byte order mark and requires UTF-8.
///
/// # Errors
/// [`SyntaxError`] with the line of the first byte that is no UTF-8.
pub fn source_text(bytes: Vec<u8>) -> Result<String, SyntaxError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid]
            .iter()
            .filter(|&&b| b == b'\n')
            .count()
            + 1;
        SyntaxError {
            line,
            message: "the file is not UTF-8 text".into(),
        }
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Parses a whole file.
///
/// # Errors
/// [`SyntaxError`] where the text is no Python, or nests too deeply to be parsed safely.
pub fn parse_source(text: &str) -> Result<Parsed<ModModule>, SyntaxError> {
    if text.len() as u64 > MAX_SOURCE_BYTES {
        return Err(SyntaxError {
            line: 1,
            message: "the file is larger than 16 MiB".into(),
        });
    }
    if nesting_exceeds(text, MAX_NESTING) {
        return Err(SyntaxError {
            line: 1,
            message: "the code nests too deeply".into(),
        });
    }
    parse_module(text).map_err(|error: ParseError| SyntaxError {
        line: LineIndex::new(text).line(error.location.start().to_usize()),
        message: error.error.to_string(),
    })
}

/// The offsets of the line starts of one text.
#[derive(Clone, Debug)]
pub struct LineIndex {
    newlines: Vec<u32>,
}

impl LineIndex {
    /// Indexes `text`, which must be shorter than 4 GiB (longer text keeps its first lines only).
    pub fn new(text: &str) -> Self {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes())
            .map_while(|at| u32::try_from(at).ok())
            .collect();
        Self { newlines }
    }

    /// The line that holds the byte `offset`, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.newlines.partition_point(|&at| (at as usize) < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = parse_source("a = 1\nb = (\n").unwrap_err();
        assert!(error.line >= 2, "{error}");
        let error = source_text(b"a\nb\n\xff".to_vec()).unwrap_err();
        assert_eq!(error.line, 3);
    }

    #[test]
    fn lines_count_from_one() {
        let index = LineIndex::new("a\nbc\n\nd");
        assert_eq!(
            [0, 1, 2, 3, 5, 6].map(|at| index.line(at)),
            [1, 1, 2, 2, 3, 4]
        );
    }
}
