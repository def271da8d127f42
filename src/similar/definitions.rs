//! The definitions of a Python module: its classes and functions, with decorators, and its methods.
//!
//! A definition under `if`, `try`, `with` or a loop counts as one of the module; a definition inside
//! a function does not, for no other model can inherit it.

use ruff_python_ast::statement_visitor::{StatementVisitor, walk_stmt};
use ruff_python_ast::{ModModule, Stmt};
use ruff_text_size::{Ranged, TextRange};
use serde::{Deserialize, Serialize};

use crate::python::LineIndex;

/// What kind of thing a definition is; only equal kinds are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A class.
    Class,
    /// A function of the module.
    Function,
    /// A function of a class.
    Method,
}

/// A definition and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name; a method's is `Class.method`.
    pub name: String,
    /// Class, function or method.
    pub kind: Kind,
    /// The line of its name, counted from one.
    pub line: u32,
    /// The first byte of its name.
    pub name_at: u32,
    /// Its first byte, decorators included.
    pub start: u32,
    /// The byte after its last.
    pub end: u32,
    /// Whether it stands under `if`, `try`, `with`, `match` or a loop.
    pub conditional: bool,
}

/// The definitions of a module in the order of the file; methods if asked for.
pub fn definitions(module: &ModModule, source: &str, methods: bool) -> Vec<Definition> {
    let mut collector = Collector {
        lines: LineIndex::new(source.as_bytes()),
        methods,
        class: None,
        nesting: 0,
        found: Vec::new(),
    };
    collector.visit_body(&module.body);
    collector.found
}

struct Collector {
    lines: LineIndex,
    methods: bool,
    class: Option<String>,
    nesting: u32,
    found: Vec<Definition>,
}

impl Collector {
    fn push(&mut self, name: &str, kind: Kind, range: TextRange, at: u32) {
        let name = match &self.class {
            Some(class) => format!("{class}.{name}"),
            None => name.to_owned(),
        };
        let line = self.lines.line(at as usize);
        self.found.push(Definition {
            name,
            kind,
            line,
            name_at: at,
            start: range.start().to_u32(),
            end: range.end().to_u32(),
            conditional: self.nesting > 0,
        });
    }
}

impl<'a> StatementVisitor<'a> for Collector {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                let kind = match self.class {
                    Some(_) => Kind::Method,
                    None => Kind::Function,
                };
                self.push(
                    &function.name,
                    kind,
                    function.range(),
                    function.name.range.start().to_u32(),
                );
            }
            Stmt::ClassDef(class) => {
                if self.class.is_some() {
                    return;
                }
                self.push(
                    &class.name,
                    Kind::Class,
                    class.range(),
                    class.name.range.start().to_u32(),
                );
                if self.methods {
                    let outside = std::mem::replace(&mut self.nesting, 0);
                    self.class = Some(class.name.to_string());
                    self.visit_body(&class.body);
                    self.class = None;
                    self.nesting = outside;
                }
            }
            other => {
                self.nesting += 1;
                walk_stmt(self, other);
                self.nesting -= 1;
            }
        }
    }
}
