//! One Python file's text, its line numbers, and parsing with every limit applied.

use ruff_python_ast::ModModule;
use ruff_python_parser::{Parsed, parse_module};

use super::{SyntaxFault, nesting::check_nesting};

/// The bounds that a scanner keeps on untrusted files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest file that is read, in bytes.
    pub file_bytes: u64,
    /// The deepest expression tree that is parsed; bounds the stack that walking and dropping it takes.
    pub expression_depth: usize,
    /// The most levels of indentation; CPython refuses more than 100.
    pub indentation: usize,
}

/// Turns the bytes of a file into text: drops a byte order mark and requires UTF-8.
///
/// # Errors
/// [`SyntaxFault`] with the line of the first byte that is no UTF-8.
pub fn source_text(bytes: Vec<u8>) -> Result<String, SyntaxFault> {
    let text = String::from_utf8(bytes).map_err(|error| SyntaxFault {
        line: Some(LineIndex::new(error.as_bytes()).line(error.utf8_error().valid_up_to())),
        message: "is not UTF-8".into(),
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Parses a whole file, refusing what would need an unbounded stack.
///
/// # Errors
/// [`SyntaxFault`] where the text is no Python, too large, or nests too deeply to be parsed safely.
pub fn parse(text: &str, limits: &Limits) -> Result<Parsed<ModModule>, SyntaxFault> {
    if text.len() as u64 > limits.file_bytes {
        return Err(too_large(limits));
    }
    check_nesting(text, limits)?;
    parse_module(text).map_err(|error| SyntaxFault {
        line: Some(LineIndex::new(text.as_bytes()).line(error.location.start().to_usize())),
        message: format!("does not parse: {}", error.error),
    })
}

/// What is said of a file with more bytes than the limit.
pub(crate) fn too_large(limits: &Limits) -> SyntaxFault {
    SyntaxFault::whole(format!(
        "is larger than {} MiB and was left out",
        limits.file_bytes >> 20
    ))
}

/// The offsets of the line starts of one text.
#[derive(Clone, Debug)]
pub struct LineIndex {
    newlines: Vec<u32>,
}

impl LineIndex {
    /// Indexes a text, which must be shorter than 4 GiB (longer text keeps its first lines only).
    pub fn new(text: &[u8]) -> Self {
        let newlines = memchr::memchr_iter(b'\n', text)
            .map_while(|at| u32::try_from(at).ok())
            .collect();
        Self { newlines }
    }

    /// The line that holds the byte `offset`, counted from 1.
    pub fn line(&self, offset: usize) -> u32 {
        // As many lines as newlines of the first 4 GiB: it fits.
        self.newlines.partition_point(|&at| (at as usize) < offset) as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_names_its_line() {
        let limits = Limits {
            file_bytes: 1 << 20,
            expression_depth: 1_000,
            indentation: 100,
        };
        let fault = parse("a = 1\nb = (\n", &limits).unwrap_err();
        assert!(fault.line >= Some(2), "{fault:?}");
        let fault = parse("x = 1\n\ndef f(:\n    pass\n", &limits).unwrap_err();
        assert_eq!(fault.line, Some(3));
        let fault = source_text(b"a\nb\n\xff".to_vec()).unwrap_err();
        assert_eq!(fault.line, Some(3));
    }

    #[test]
    fn lines_count_from_one() {
        let index = LineIndex::new(b"a\nbc\n\nd");
        assert_eq!(
            [0, 1, 2, 3, 5, 6].map(|at| index.line(at)),
            [1, 1, 2, 2, 3, 4]
        );
    }
}
