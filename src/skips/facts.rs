//! What one Python file says about tests: its names, classes, functions and where bodies may skip.
//!
//! Facts are read from a single parse and hold no judgement: they know neither other files nor
//! which class inherits from which. The syntax tree itself is dropped; only the few expressions
//! that later stages evaluate are kept.

use std::sync::OnceLock;

use ruff_python_ast::{Expr, StmtFunctionDef};
use ruff_text_size::TextRange;
use rustc_hash::{FxHashMap, FxHashSet};

use super::flow::Step;
use crate::python::{LineIndex, SyntaxFault, parse};

/// One parsed file.
#[derive(Debug)]
pub(crate) struct Module {
    /// Path from the repository's root, with forward slashes.
    pub path: Box<str>,
    pub text: String,
    lines: OnceLock<LineIndex>,
    /// What each module-level name is bound to last.
    pub names: FxHashMap<Box<str>, Binding>,
    /// The names in the order they are first bound.
    pub order: Vec<Box<str>>,
    /// `from … import *`.
    pub stars: Vec<ImportFrom>,
    pub classes: Vec<Class>,
    pub functions: Vec<Function>,
    /// Names that decorators and base classes for tests start with: only their imports from the
    /// library's own sources are followed.
    pub used: FxHashSet<Box<str>>,
    /// A module-level `pytest.skip(…, allow_module_level=True)` or `raise SkipTest`.
    pub skip: Option<ModuleSkip>,
    pub error: Option<SyntaxFault>,
}

/// A skip of a whole module.
#[derive(Debug)]
pub(crate) struct ModuleSkip {
    pub offset: u32,
    pub reason: Option<Expr>,
    /// The `if` statement around it.
    pub condition: Option<Expr>,
}

/// Where a `from … import name` points.
#[derive(Clone, Debug)]
pub(crate) struct ImportFrom {
    pub module: Box<str>,
    /// The number of leading dots.
    pub level: u32,
    /// The imported name; empty for a star.
    pub name: Box<str>,
    pub offset: u32,
}

impl ImportFrom {
    /// Whether it points into the tests themselves, not into a library.
    pub fn is_local(&self) -> bool {
        self.level > 0 || &*self.module == "tests" || self.module.starts_with("tests.")
    }
}

/// The value of a module-level name.
#[derive(Debug)]
pub(crate) enum Binding {
    Class(u32),
    Function(u32),
    /// `import a.b as c` (or `import a.b`, which binds `a`).
    Import(Box<str>),
    From(ImportFrom),
    /// An assignment; nothing where the value is too large to keep or is changed later.
    Value(Option<Box<Expr>>),
}

/// A class statement.
#[derive(Debug)]
pub(crate) struct Class {
    pub name: Box<str>,
    pub offset: u32,
    pub decorators: Vec<Expr>,
    pub bases: Vec<Expr>,
    pub members: Vec<Member>,
    /// Attributes that a method other than a test assigns on the instance or the class.
    pub assigned: FxHashSet<Box<str>>,
    /// Its `__init_subclass__` re-assigns every test on each subclass.
    pub pins_tests: bool,
}

impl Class {
    /// The last definition of `name` in the class body.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members
            .iter()
            .rev()
            .find(|member| &*member.name == name)
    }
}

/// A name bound in a class body.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: Box<str>,
    pub offset: u32,
    pub kind: MemberKind,
}

#[derive(Debug)]
pub(crate) enum MemberKind {
    Function(u32),
    Value(Option<Box<Expr>>),
    /// A name that `del` removes again.
    Deleted,
}

/// What the body of a function amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Code,
    /// Only `pass`, `...`, a docstring or a bare `return`.
    Empty,
}

/// A function or method.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: Box<str>,
    pub offset: u32,
    pub decorators: Vec<Expr>,
    pub params: Vec<Box<str>>,
    /// Names assigned in the body; filled only where `steps` is not empty.
    pub locals: FxHashSet<Box<str>>,
    pub steps: Vec<Step>,
    pub body: Body,
    /// Calls of `unittest.skip(…)` as a statement, which do nothing.
    pub idle_skips: Vec<u32>,
    /// The definition itself, kept for module-level functions that may be decorators which skip.
    pub definition: Option<Box<StmtFunctionDef>>,
}

impl Module {
    /// Reads the facts of one file. A file that does not parse has an `error` and no names.
    pub fn new(path: &str, text: String) -> Self {
        let mut module = Self {
            path: path.into(),
            text,
            lines: OnceLock::new(),
            names: FxHashMap::default(),
            order: Vec::new(),
            stars: Vec::new(),
            classes: Vec::new(),
            functions: Vec::new(),
            used: FxHashSet::default(),
            skip: None,
            error: None,
        };
        match parse(&module.text, &super::LIMITS) {
            Ok(parsed) => module.read_block(parsed.suite(), None, 0),
            Err(error) => module.error = Some(error),
        }
        module
    }

    /// A module that could not be read at all.
    pub fn unreadable(path: &str, error: SyntaxFault) -> Self {
        let mut module = Self::new(path, String::new());
        module.error = Some(error);
        module
    }

    /// The line of a byte offset, counted from 1.
    pub fn line(&self, offset: u32) -> u32 {
        self.lines
            .get_or_init(|| LineIndex::new(self.text.as_bytes()))
            .line(offset as usize)
    }

    /// The source text of a node.
    pub fn slice(&self, range: TextRange) -> &str {
        self.text
            .get(range.start().to_usize()..range.end().to_usize())
            .unwrap_or("")
    }
}
