//! A `modular_*.py` file to start from: what is repeated is inherited, what is new is kept.
//!
//! A class that is its parent under another name becomes a subclass with `pass`; of one that differs
//! only the differing parts stay; a function that is repeated is imported. It is a start: whether the
//! generated model is right is for the tests of the model to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ruff_python_ast::{Alias, Expr, Stmt};
use ruff_text_size::Ranged;
use rustc_hash::FxHashSet;

use super::analysis::{QueryFile, Sources};
use super::definitions::{Definition, Kind};
use super::index::Index;
use super::rank::Candidate;
use super::snippet::{Alignment, Part, Snippet};
use super::source::parse;

/// A parent less similar than this is not inherited from.
pub(crate) const LEAST_SIMILAR_PARENT: f32 = 0.5;

/// Writes the skeleton; `parents` has the candidate for each definition of the query.
pub(crate) fn write(
    query: &QueryFile,
    index: &Index,
    parents: &[Option<Candidate>],
    sources: &mut Sources<'_>,
) -> String {
    let mut parent_imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut body = String::new();
    for (definition, parent) in query.code.definitions.iter().zip(parents) {
        if definition.kind == Kind::Method || definition.conditional {
            continue;
        }
        let Some(own) = query
            .source
            .get(definition.start as usize..definition.end as usize)
        else {
            continue;
        };
        let inherited =
            parent.and_then(|candidate| inherit(query, index, definition, own, candidate, sources));
        match inherited {
            Some(Inherited { text, file, name }) => {
                parent_imports.entry(file).or_default().insert(name);
                if let Some(text) = text {
                    let _ = write!(body, "\n\n{text}\n");
                }
            }
            None => {
                let _ = write!(body, "\n\n{own}\n");
            }
        }
    }
    let (imports, statements) = rest_of_module(query, &body);
    let mut text = imports;
    for (file, names) in parent_imports {
        text.push_str(&import_line(index, &file, &names));
    }
    if !statements.before.is_empty() {
        let _ = write!(text, "\n\n{}", statements.before);
    }
    text.push_str(&body);
    if !statements.all.is_empty() {
        let _ = write!(text, "\n\n{}", statements.all);
    }
    text.trim_start_matches('\n').to_owned()
}

/// A definition taken from another file: its text, unless importing it is enough.
struct Inherited {
    text: Option<String>,
    file: String,
    name: String,
}

fn inherit(
    query: &QueryFile,
    index: &Index,
    definition: &Definition,
    own: &str,
    candidate: Candidate,
    sources: &mut Sources<'_>,
) -> Option<Inherited> {
    let file = index.file(candidate.entry);
    let name = index.definition(candidate.entry).name.clone();
    let inherited = |text| {
        Some(Inherited {
            text,
            file: file.path.clone(),
            name: name.clone(),
        })
    };
    if definition.kind == Kind::Function {
        return if candidate.identical() && name == definition.name {
            inherited(None)
        } else {
            None
        };
    }
    if name == definition.name {
        return None;
    }
    let subclass = format!("class {}({name}):\n    pass", definition.name);
    if candidate.identical() {
        return inherited(Some(subclass));
    }
    if candidate.similarity() < LEAST_SIMILAR_PARENT {
        return None;
    }
    let child = Snippet::new(own);
    let parent = Snippet::new(sources.text(candidate.entry)?);
    let twins = sources.twins(candidate.entry);
    let alignment = Alignment::new(
        (&query.code.names, &definition.name),
        (&file.names, &name),
        &twins,
    );
    if alignment.child(&child.lines()) == alignment.parent(&parent.lines()) {
        return inherited(Some(subclass));
    }
    let (own_parts, parent_parts) = (child.parts()?, parent.parts()?);
    let (kept, shared) = differing_parts(&own_parts, &parent_parts, &alignment);
    if shared == 0 {
        return None;
    }
    let own_decorators = alignment.child(&[child.decorators().to_owned()]);
    let mut text = String::new();
    if own_decorators != alignment.parent(&[parent.decorators().to_owned()])
        && !child.decorators().is_empty()
    {
        text.push_str(child.decorators());
        text.push('\n');
    }
    let _ = write!(text, "class {}({name}):", definition.name);
    for part in &kept {
        let gap = if part.starts_with("def ") || part.starts_with('@') {
            "\n\n    "
        } else {
            "\n    "
        };
        let _ = write!(text, "{gap}{part}");
    }
    if kept.is_empty() {
        text.push_str("\n    pass");
    }
    inherited(Some(text.replacen(":\n\n", ":\n", 1)))
}

/// The parts of a class that its parent does not have in the same form, parts of the parent that it
/// must not have, and how many the two share.
fn differing_parts(
    own: &[Part],
    parent: &[Part],
    alignment: &Alignment<'_>,
) -> (Vec<String>, usize) {
    let mut kept = Vec::new();
    let mut shared = 0;
    for part in own {
        let lines = alignment.child(&part.lines);
        let twin = parent
            .iter()
            .find(|other| other.key == part.key || alignment.parent(&other.lines) == lines);
        if twin.is_some_and(|twin| alignment.parent(&twin.lines) == lines) {
            shared += 1;
        } else {
            kept.push(part.text.clone());
        }
    }
    for part in parent {
        let lines = alignment.parent(&part.lines);
        let gone = !own
            .iter()
            .any(|other| other.key == part.key || alignment.child(&other.lines) == lines);
        if let (true, Some(name)) = (gone, &part.name) {
            kept.push(if part.is_method {
                format!(
                    "def {name}(self):\n        raise AttributeError(\"not part of this model\")"
                )
            } else {
                format!("{name} = AttributeError()")
            });
        }
    }
    (kept, shared)
}

fn import_line(index: &Index, file: &str, names: &BTreeSet<String>) -> String {
    let module = file.trim_end_matches(".py").replace('/', ".");
    let dots = if index.layout().modeling_only {
        ".."
    } else {
        ""
    };
    let one_line = format!(
        "from {dots}{module} import {}\n",
        names.iter().cloned().collect::<Vec<_>>().join(", ")
    );
    if one_line.len() <= 120 {
        return one_line;
    }
    let mut text = format!("from {dots}{module} import (\n");
    for name in names {
        let _ = writeln!(text, "    {name},");
    }
    text.push_str(")\n");
    text
}

/// The statements of the module that are no definitions.
struct Statements {
    /// Assignments whose names the body uses.
    before: String,
    /// The assignment of `__all__`.
    all: String,
}

/// The imports and plain assignments of the query file that the body still needs.
fn rest_of_module(query: &QueryFile, body: &str) -> (String, Statements) {
    let mut imports = String::new();
    let mut statements = Statements {
        before: String::new(),
        all: String::new(),
    };
    let Ok(parsed) = parse(&query.source) else {
        return (imports, statements);
    };
    let mut used: FxHashSet<&str> = words(body).collect();
    let text_of = |statement: &Stmt| {
        query
            .source
            .get(statement.start().to_usize()..statement.end().to_usize())
            .unwrap_or_default()
    };
    for statement in &parsed.syntax().body {
        let Stmt::Assign(assign) = statement else {
            continue;
        };
        let [Expr::Name(target)] = assign.targets.as_slice() else {
            continue;
        };
        let text = text_of(statement);
        if target.id == "__all__" {
            statements.all = format!("{text}\n");
        } else if used.contains(target.id.as_str()) {
            let _ = writeln!(statements.before, "{text}");
            used.extend(words(text));
        }
    }
    for statement in &parsed.syntax().body {
        match statement {
            Stmt::Import(import) => {
                let names = used_aliases(&import.names, &used);
                if !names.is_empty() {
                    let _ = writeln!(imports, "import {}", names.join(", "));
                }
            }
            Stmt::ImportFrom(import) => {
                let names = used_aliases(&import.names, &used);
                if !names.is_empty() {
                    let dots = ".".repeat(import.level as usize);
                    let module = import.module.as_ref().map_or("", |module| module.as_str());
                    let _ = writeln!(imports, "from {dots}{module} import {}", names.join(", "));
                }
            }
            _ => {}
        }
    }
    (imports, statements)
}

fn used_aliases(aliases: &[Alias], used: &FxHashSet<&str>) -> Vec<String> {
    aliases
        .iter()
        .filter_map(|alias| match &alias.asname {
            Some(local) => used
                .contains(local.as_str())
                .then(|| format!("{} as {local}", alias.name)),
            None => {
                let bound = alias.name.split('.').next().unwrap_or_default();
                used.contains(bound).then(|| alias.name.to_string())
            }
        })
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}
