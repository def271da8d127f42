//! Python source files as the detector reads them: found below a folder, bounded, decoded and parsed.
//!
//! It decides what is readable; what the code means is left to the other modules. Every file is
//! untrusted: size, nesting and number are limited, and what is refused is a [`Fault`], never a panic.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ruff_python_ast::ModModule;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, Parsed, lexer};
use serde::{Deserialize, Serialize};

/// The largest Python file that is read, in bytes.
///
/// The largest modeling file of transformers has about a third of a megabyte.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// The most files that one index takes.
pub const MAX_FILES: usize = 100_000;
/// CPython refuses more levels of indentation than this.
const MAX_INDENTATION: usize = 100;
/// The deepest expression tree that is parsed; bounds the stack that walking and dropping it takes.
const MAX_EXPRESSION_DEPTH: usize = 1_000;

/// One thing that is wrong with the input and did not stop the rest of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The file or folder.
    pub path: String,
    /// The line, counted from one, where one is known.
    pub line: Option<u32>,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Why a source text was not parsed: the line, counted from one, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxFault {
    /// The line, counted from one; `None` for a fault of the file as a whole.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
}

impl SyntaxFault {
    /// The fault with its file's name.
    pub fn at(self, path: impl Into<String>) -> Fault {
        Fault {
            path: path.into(),
            line: self.line,
            message: self.message,
        }
    }

    fn whole(message: impl Into<String>) -> Self {
        Self {
            line: None,
            message: message.into(),
        }
    }
}

/// Reads a Python file as UTF-8 text without its byte order mark.
///
/// # Errors
///
/// A file that cannot be opened, that is larger than [`MAX_FILE_BYTES`] or that is not UTF-8.
pub fn read_source(path: &Path) -> Result<String, SyntaxFault> {
    let file = File::open(path).map_err(|e| SyntaxFault::whole(format!("cannot be read: {e}")))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| SyntaxFault::whole(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(SyntaxFault::whole(format!(
            "is larger than {} MiB and was left out",
            MAX_FILE_BYTES >> 20
        )));
    }
    match String::from_utf8(bytes) {
        Ok(text) => match text.strip_prefix('\u{feff}') {
            Some(rest) => Ok(rest.to_owned()),
            None => Ok(text),
        },
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            Err(SyntaxFault {
                line: Some(line_of(error.as_bytes(), valid)),
                message: "is not UTF-8".to_owned(),
            })
        }
    }
}

/// Parses a module, refusing what would need an unbounded stack.
///
/// # Errors
///
/// The first syntax error, or nesting beyond what CPython itself takes.
pub fn parse(source: &str) -> Result<Parsed<ModModule>, SyntaxFault> {
    check_nesting(source)?;
    ruff_python_parser::parse_module(source).map_err(|error| SyntaxFault {
        line: Some(line_of(
            source.as_bytes(),
            error.location.start().to_usize(),
        )),
        message: format!("does not parse: {}", error.error),
    })
}

/// The line, counted from one, of a byte offset.
pub fn line_of(bytes: &[u8], offset: usize) -> u32 {
    let newlines = bytes.iter().take(offset).filter(|&&b| b == b'\n').count();
    u32::try_from(newlines).unwrap_or(u32::MAX - 1) + 1
}

/// Bounds the depth of the tree that the parser would build, from the tokens alone.
///
/// A syntax tree gets deeper by a bracket, an operator, a keyword of an expression or a block. What a
/// comma or the end of a statement separates lies side by side, save the parameters of a lambda.
fn check_nesting(source: &str) -> Result<(), SyntaxFault> {
    #[derive(Default, Clone, Copy)]
    struct Level {
        operators: usize,
        lambdas: usize,
    }
    let mut lexer = lexer::lex(source, Mode::Module);
    let mut levels = vec![Level::default()];
    let mut depth = 0usize;
    let mut blocks = 0usize;
    loop {
        let kind = lexer.next_token();
        let top = levels.len() - 1;
        match kind {
            TokenKind::EndOfFile => return Ok(()),
            TokenKind::Indent => {
                blocks += 1;
                if blocks > MAX_INDENTATION {
                    return Err(SyntaxFault::whole("has too many levels of indentation"));
                }
            }
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi => {
                levels.clear();
                levels.push(Level::default());
                depth = 0;
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                levels[top].operators += 1;
                levels.push(Level::default());
                depth += 1;
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd
                if top > 0 =>
            {
                let closed = levels[top];
                depth -= closed.operators + closed.lambdas;
                levels.pop();
            }
            TokenKind::Comma => {
                depth -= levels[top].operators;
                levels[top].operators = 0;
            }
            TokenKind::Lambda => {
                levels[top].lambdas += 1;
                depth += 1;
            }
            kind if kind.is_operator() || kind.is_keyword() => {
                levels[top].operators += 1;
                depth += 1;
            }
            _ => {}
        }
        if depth > MAX_EXPRESSION_DEPTH {
            return Err(SyntaxFault::whole("has an expression nested too deeply"));
        }
    }
}

/// The Python files below a folder, and what of it could not be walked.
#[derive(Debug, Default)]
pub struct Walk {
    /// Paths relative to the folder, with `/`, in the order of their names.
    pub files: Vec<String>,
    /// Folders that could not be read, names that are not UTF-8, files beyond [`MAX_FILES`].
    pub faults: Vec<Fault>,
}

/// Collects the regular files below `root` whose name satisfies `keep`; links are not followed.
pub fn walk(root: &Path, keep: impl Fn(&str) -> bool) -> Walk {
    let mut found = Walk::default();
    let walker = ignore::WalkBuilder::new(root)
        .standard_filters(false)
        .hidden(true)
        .follow_links(false)
        .sort_by_file_name(|a, b| a.cmp(b))
        .build();
    for entry in walker {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.faults.push(Fault {
                    path: root.display().to_string(),
                    line: None,
                    message: error.to_string(),
                });
                continue;
            }
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Some(name) = entry.file_name().to_str() else {
            if entry.path().extension().is_some_and(|e| e == "py") {
                found.faults.push(Fault {
                    path: entry.path().display().to_string(),
                    line: None,
                    message: "has a name that is not UTF-8".to_owned(),
                });
            }
            continue;
        };
        if !keep(name) {
            continue;
        }
        let Some(relative) = entry.path().strip_prefix(root).ok().and_then(slashed) else {
            continue;
        };
        if found.files.len() == MAX_FILES {
            found.faults.push(Fault {
                path: root.display().to_string(),
                line: None,
                message: format!("has more than {MAX_FILES} files; the rest was left out"),
            });
            break;
        }
        found.files.push(relative);
    }
    found
}

/// A relative path with `/` between its parts, or `None` if a part is not plain UTF-8.
fn slashed(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.to_str()?),
            _ => return None,
        }
    }
    Some(parts.join("/"))
}

/// Where the code of a repository lies and which files of it are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The folder that names are relative to.
    pub root: PathBuf,
    /// Whether only `modeling_*.py` is read, or every Python file.
    pub modeling_only: bool,
    /// The folder of the documentation's model pages, where there is one.
    pub model_pages: Option<PathBuf>,
}

impl Layout {
    /// Recognises a transformers checkout, the models folder of one, or any folder of Python files.
    pub fn of(folder: &Path) -> Self {
        let models = folder.join("src/transformers/models");
        if models.is_dir() {
            let pages = folder.join("docs/source/en/model_doc");
            return Self {
                root: models,
                modeling_only: true,
                model_pages: pages.is_dir().then_some(pages),
            };
        }
        let pages = folder.join("../../../docs/source/en/model_doc");
        let is_models = folder.ends_with("src/transformers/models");
        let modeling_only = is_models || !walk(folder, is_modeling).files.is_empty();
        Self {
            root: folder.to_path_buf(),
            modeling_only,
            model_pages: (is_models && pages.is_dir()).then_some(pages),
        }
    }

    /// Whether a file of this name is compared.
    pub fn takes(&self, name: &str) -> bool {
        if self.modeling_only {
            is_modeling(name)
        } else {
            name.ends_with(".py") && !is_modular(name)
        }
    }
}

fn is_modeling(name: &str) -> bool {
    name.starts_with("modeling_") && name.ends_with(".py")
}

/// Whether a file of this name states what a model inherits from.
pub fn is_modular(name: &str) -> bool {
    name.starts_with("modular_") && name.ends_with(".py")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_that_would_overflow_a_stack_is_refused() {
        let deep: [(&str, String); 9] = [
            (
                "brackets",
                format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000)),
            ),
            ("unary", format!("x = {}1", "-".repeat(5000))),
            ("not", format!("x = {}1", "not ".repeat(5000))),
            ("sum", format!("x = 1{}", " + 1".repeat(5000))),
            ("lambda", format!("x = {}1", "lambda a, b: ".repeat(5000))),
            ("attributes", format!("x = a{}", ".b".repeat(5000))),
            ("calls", format!("x = a{}", "()".repeat(5000))),
            (
                "conditional",
                format!("x = {}1", "1 if a else ".repeat(5000)),
            ),
            (
                "f-string",
                format!("x = f\"{{{}1{}}}\"", "(".repeat(5000), ")".repeat(5000)),
            ),
        ];
        for (name, source) in deep {
            let fault = parse(&source).expect_err(name);
            assert!(
                fault.message.contains("nested too deeply"),
                "{name}: {}",
                fault.message
            );
        }
        let mut blocks = String::new();
        for level in 0..150 {
            blocks.push_str(&" ".repeat(level));
            blocks.push_str("if a:\n");
        }
        blocks.push_str(&" ".repeat(150));
        blocks.push_str("pass\n");
        assert!(
            parse(&blocks)
                .expect_err("blocks")
                .message
                .contains("indentation")
        );
    }

    #[test]
    fn long_but_flat_code_parses() {
        let table = format!("x = [{}]", "a.b + 1, ".repeat(50_000));
        parse(&table).expect("a long table");
        let lines = "x = f(a)[0].b - 1\n".repeat(50_000);
        parse(&lines).expect("many statements");
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let fault = parse("x = 1\n\ndef f(:\n    pass\n").expect_err("no parse");
        assert_eq!(fault.line, Some(3));
    }
}
