//! All files of a scan and how names lead from one to another through imports.
//!
//! Only files below the repository's root are followed; everything else (`unittest`, `pytest`,
//! `torch`) stays an external name. Nothing is executed.

use rayon::prelude::*;
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::{Binding, Class, Function, ImportFrom, Module};
use super::tree::Tree;
use super::{Assumption, Fault};
use crate::python::{SyntaxFault, source_text};

/// The longest chain of re-exports that is followed.
const MAX_HOPS: usize = 64;
/// The most files one scan reads beside the tests themselves.
const MAX_IMPORTED_FILES: usize = 20_000;

/// A class: module and place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClassId {
    pub module: u32,
    pub class: u32,
}

/// A function or method: module and place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FunctionId {
    pub module: u32,
    pub function: u32,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Def<'p> {
    Class(ClassId),
    Function(FunctionId),
    /// A value and the module that holds it.
    Value(u32, Option<&'p Expr>),
    Module(u32),
    /// A dotted name outside of the repository.
    External(String),
    /// The file exists but does not define the name, or imports run in a circle.
    Missing,
    /// No binding in the module: a builtin or a local name.
    Unbound,
}

/// The files of one scan.
pub(crate) struct Project {
    pub modules: Vec<Module>,
    by_path: FxHashMap<Box<str>, u32>,
    pub assumptions: Vec<Assumption>,
    /// Files that were looked for and do not exist.
    absent: FxHashSet<Box<str>>,
}

impl Project {
    /// Reads `roots` and every file of the repository they import names from, level by level.
    pub fn load(
        tree: &dyn Tree,
        roots: &[String],
        assumptions: Vec<Assumption>,
        problems: &mut Vec<Fault>,
    ) -> Self {
        let mut project = Self {
            modules: Vec::new(),
            by_path: FxHashMap::default(),
            assumptions,
            absent: FxHashSet::default(),
        };
        let mut wanted: Vec<String> = roots.to_vec();
        while !wanted.is_empty() {
            let start = project.modules.len();
            let loaded: Vec<Module> = wanted
                .par_iter()
                .map(|path| read_module(tree, path))
                .collect();
            for module in loaded {
                if let Some(error) = &module.error {
                    problems.push(error.clone().at(&*module.path));
                }
                project
                    .by_path
                    .insert(module.path.clone(), project.modules.len() as u32);
                project.modules.push(module);
            }
            wanted = project.wanted_imports(tree, start);
            if project.modules.len() > roots.len() + MAX_IMPORTED_FILES {
                break;
            }
        }
        project
    }

    /// Files that modules from `start` on import from and that are not loaded yet.
    fn wanted_imports(&mut self, tree: &dyn Tree, start: usize) -> Vec<String> {
        let mut wanted = Vec::new();
        let mut seen = FxHashSet::default();
        let mut absent = std::mem::take(&mut self.absent);
        for module in &self.modules[start..] {
            let own_sources = module.path.starts_with("src/");
            let mut consider = |candidates: Vec<String>| {
                for path in candidates {
                    if self.by_path.contains_key(&*path) || seen.contains(&path) {
                        return;
                    }
                    if absent.contains(&*path) {
                        continue;
                    }
                    if tree.is_file(&path) {
                        seen.insert(path.clone());
                        wanted.push(path);
                        return;
                    }
                    absent.insert(path.into());
                }
            };
            for (name, binding) in &module.names {
                match binding {
                    Binding::From(from) => {
                        let used = module.used.contains(name);
                        if !used && (own_sources || !from.is_local()) {
                            continue;
                        }
                        consider(candidates(&module.path, from, used));
                    }
                    Binding::Import(dotted) if dotted.starts_with("tests.") => {
                        consider(files_of(&dotted.replace('.', "/"), false));
                    }
                    _ => {}
                }
            }
            for star in &module.stars {
                if !own_sources && star.is_local() {
                    consider(candidates(&module.path, star, true));
                }
            }
        }
        self.absent = absent;
        wanted.sort();
        wanted
    }

    /// The loaded module at `path`.
    pub fn module_at(&self, path: &str) -> Option<u32> {
        self.by_path.get(path).copied()
    }

    pub fn class(&self, id: ClassId) -> &Class {
        &self.modules[id.module as usize].classes[id.class as usize]
    }

    pub fn function(&self, id: FunctionId) -> &Function {
        &self.modules[id.module as usize].functions[id.function as usize]
    }

    pub fn module(&self, id: u32) -> &Module {
        &self.modules[id as usize]
    }

    /// `path:line` of an offset in a module.
    pub fn place(&self, module: u32, offset: u32) -> String {
        let module = self.module(module);
        format!("{}:{}", module.path, module.line(offset))
    }

    /// What a dotted expression (`name`, `a.b.c`, `Generic[T]`) stands for in `module`.
    pub fn resolve(&self, module: u32, expr: &Expr) -> Def<'_> {
        match expr {
            Expr::Name(name) => self.resolve_name(module, name.id.as_str()),
            Expr::Attribute(attribute) => match self.resolve(module, &attribute.value) {
                Def::External(path) => Def::External(format!("{path}.{}", attribute.attr.as_str())),
                Def::Module(inner) => self.resolve_name(inner, attribute.attr.as_str()),
                _ => Def::Missing,
            },
            Expr::Subscript(subscript) => self.resolve(module, &subscript.value),
            _ => Def::Missing,
        }
    }

    /// What `name` is bound to in `module`, following imports.
    pub fn resolve_name(&self, module: u32, name: &str) -> Def<'_> {
        self.follow(module, name, 0)
    }

    /// Imports that run in a circle end at the limit of `hops`.
    fn follow(&self, module: u32, name: &str, hops: usize) -> Def<'_> {
        if hops > MAX_HOPS {
            return Def::Missing;
        }
        let hops = hops + 1;
        let source = self.module(module);
        match source.names.get(name) {
            Some(Binding::Class(class)) => Def::Class(ClassId {
                module,
                class: *class,
            }),
            Some(Binding::Function(function)) => Def::Function(FunctionId {
                module,
                function: *function,
            }),
            Some(Binding::Value(value)) => match value.as_deref() {
                // `Alias = Other`
                Some(Expr::Name(other)) if source.names.contains_key(other.id.as_str()) => {
                    self.follow(module, other.id.as_str(), hops)
                }
                value => Def::Value(module, value),
            },
            Some(Binding::Import(dotted)) => {
                match files_of(&dotted.replace('.', "/"), false)
                    .iter()
                    .find_map(|path| self.module_at(path))
                {
                    Some(inner) => Def::Module(inner),
                    None => Def::External(dotted.to_string()),
                }
            }
            Some(Binding::From(from)) => self.follow_from(module, from, hops),
            None => {
                for star in &source.stars {
                    if let Some(inner) = candidates(&source.path, star, true)
                        .iter()
                        .find_map(|p| self.module_at(p))
                    {
                        match self.follow(inner, name, hops) {
                            Def::Unbound => {}
                            found => return found,
                        }
                    }
                }
                Def::Unbound
            }
        }
    }

    fn follow_from(&self, module: u32, from: &ImportFrom, hops: usize) -> Def<'_> {
        let source = self.module(module);
        // A submodule: `from . import x`.
        let folder = base_path(&source.path, from);
        if let Some(folder) = &folder {
            let inner = if folder.is_empty() {
                from.name.to_string()
            } else {
                format!("{folder}/{}", from.name)
            };
            let packages = files_of(folder, from.level == 0);
            let package = packages.iter().find_map(|path| self.module_at(path));
            if let Some(package) = package {
                match self.follow(package, &from.name, hops) {
                    Def::Unbound => {}
                    found => return found,
                }
            }
            if let Some(submodule) = files_of(&inner, from.level == 0)
                .iter()
                .find_map(|path| self.module_at(path))
            {
                return Def::Module(submodule);
            }
            if package.is_some() {
                return Def::Missing;
            }
        }
        if from.level > 0 {
            return Def::Missing;
        }
        Def::External(format!("{}.{}", from.module, from.name))
    }

    /// Whether a relative or `tests.` import points at a file that is not there.
    pub fn import_problem(&self, module: u32, name: &str) -> Option<(u32, String)> {
        let source = self.module(module);
        let Some(Binding::From(from)) = source.names.get(name) else {
            return None;
        };
        let inside = from.is_local();
        let dots = ".".repeat(from.level as usize);
        let target = format!("{dots}{}", from.module);
        if candidates(&source.path, from, true)
            .iter()
            .all(|path| self.module_at(path).is_none())
        {
            return inside.then(|| {
                (
                    from.offset,
                    format!("`{name}` is imported from `{target}`, which is not in the repository"),
                )
            });
        }
        match self.resolve_name(module, name) {
            Def::Missing => Some((
                from.offset,
                format!(
                    "`{name}` cannot be found in `{target}`: it is not defined there, or the imports run in a circle"
                ),
            )),
            _ => None,
        }
    }

    /// The value that the user gave for the condition with this source text.
    pub fn assumed(&self, module: u32, expr: &Expr) -> Option<bool> {
        if self.assumptions.is_empty() {
            return None;
        }
        let text = self.module(module).slice(expr.range());
        // `utils.is_torch_available()` is the same condition.
        let known = |text: &str| {
            self.assumptions
                .iter()
                .find(|assumption| {
                    text.strip_suffix(&*assumption.condition)
                        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
                })
                .map(|assumption| assumption.value)
        };
        if text.contains('\n') {
            known(&one_line(text))
        } else {
            known(text)
        }
    }

    /// The source text of an expression, on one line.
    pub fn text(&self, module: u32, expr: &Expr) -> String {
        one_line(self.module(module).slice(expr.range()))
    }
}

/// Joins the lines of an expression.
pub(crate) fn one_line(text: &str) -> String {
    if text.contains('\n') {
        let mut joined = String::with_capacity(text.len());
        for line in text.lines() {
            let line = line.trim();
            if !joined.is_empty()
                && !joined.ends_with(['(', '[', '{'])
                && !line.starts_with([')', ']', '}'])
            {
                joined.push(' ');
            }
            joined.push_str(line);
        }
        joined
    } else {
        text.trim().to_owned()
    }
}

fn read_module(tree: &dyn Tree, path: &str) -> Module {
    match tree.read(path) {
        Ok(bytes) => match source_text(bytes) {
            Ok(text) => Module::new(path, text),
            Err(error) => Module::unreadable(path, error),
        },
        Err(message) => Module::unreadable(
            path,
            SyntaxFault::whole(format!("cannot be read: {message}")),
        ),
    }
}

/// The folder or file stem an import names, from the root; nothing when its dots leave the root.
fn base_path(importer: &str, from: &ImportFrom) -> Option<String> {
    let dotted = from.module.replace('.', "/");
    if from.level == 0 {
        return Some(dotted);
    }
    let mut parts: Vec<&str> = importer.split('/').collect();
    for _ in 0..from.level {
        parts.pop()?;
    }
    if !dotted.is_empty() {
        parts.push(&dotted);
    }
    Some(parts.join("/"))
}

/// The files that may hold `from … import name`, most likely first.
fn candidates(importer: &str, from: &ImportFrom, with_sources: bool) -> Vec<String> {
    let Some(base) = base_path(importer, from) else {
        return Vec::new();
    };
    let mut files = files_of(&base, with_sources && from.level == 0);
    let in_tests = from.level > 0 || base == "tests" || base.starts_with("tests/");
    if !from.name.is_empty() && in_tests {
        let inner = if base.is_empty() {
            from.name.to_string()
        } else {
            format!("{base}/{}", from.name)
        };
        files.push(format!("{inner}.py"));
    }
    files.retain(|path| !path.starts_with('/') && !path.contains("//") && path != "/__init__.py");
    files
}

/// `a/b` as a module or a package, in the root or in the library's sources under `src`.
fn files_of(stem: &str, with_sources: bool) -> Vec<String> {
    if stem.is_empty() {
        return Vec::new();
    }
    let mut files = vec![format!("{stem}.py"), format!("{stem}/__init__.py")];
    if with_sources {
        files.push(format!("src/{stem}.py"));
        files.push(format!("src/{stem}/__init__.py"));
    }
    files
}
