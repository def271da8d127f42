//! A JSON tree as a trace, from a file that is not trusted.

use std::{cell::RefCell, collections::BTreeSet, fmt, path::Path};

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{
    CallCount,
    value::{InputsSeed, OptionalSeed, ValueSeed},
};
use crate::{
    format::{Limits, MAX_CALL_DEPTH, ReadError, error::shorten, open::read_file},
    trace::{Node, Trace},
};

/// Reads a FULL_TENSORS or SUMMARY tree.
///
/// # Errors
/// If the file cannot be read, exceeds the limits, or is no debug tree; the message says the line
/// and the module.
pub fn read(path: &Path, limits: &Limits) -> Result<Trace, ReadError> {
    read_from_slice(&read_file(path, limits)?, path)
}

/// Reads a tree from memory; the path serves for messages and for the trace's name.
///
/// # Errors
/// If the bytes are no debug tree.
pub fn read_from_slice(bytes: &[u8], path: &Path) -> Result<Trace, ReadError> {
    let context = Context::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    // The seeds below bound the depth themselves, and serde_json skips what is unknown iteratively.
    json.disable_recursion_limit();
    let parsed = NodeSeed {
        context: &context,
        depth: 0,
        place: Place::First,
    }
    .deserialize(&mut json)
    .and_then(|parsed| json.end().map(|()| parsed))
    .map_err(|error| ReadError::Tree {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
        node: context.place(),
        message: shorten(&without_position(&error)),
    })?;
    let mut roots = parsed.calls;
    roots.insert(0, parsed.call);
    Ok(assemble(roots, path, context.unknown.into_inner()))
}

/// serde_json's message without the position, which the caller says itself.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message
        .strip_suffix(&position)
        .map_or_else(|| message.clone(), str::to_owned)
}

/// Numbers the calls and names the trace.
fn assemble(roots: Vec<Call>, path: &Path, unknown: BTreeSet<String>) -> Trace {
    let mut order = 0;
    let mut step = 0;
    let mut complete = true;
    let roots: Vec<Node> = roots
        .into_iter()
        .map(|call| {
            step = call.step.unwrap_or(step);
            let root = number(call, step, &mut order, &mut CallCount::default());
            complete &= root.complete;
            step = step.saturating_add(1);
            root
        })
        .collect();
    let first = roots.first().map_or("", |root| root.path.as_str());
    Trace {
        name: trace_name(first, path),
        source: "transformers".to_owned(),
        complete,
        notes: unknown
            .into_iter()
            .map(|key| format!("skipped the unknown key `{}`", shorten(&key)))
            .collect(),
        roots,
        ops: Vec::new(),
    }
}

/// A node as the file has it, its number not known yet.
#[derive(Default)]
struct Call {
    node: Node,
    children: Vec<Call>,
    step: Option<u64>,
    call: Option<u64>,
}

fn number(call: Call, step: u64, order: &mut u64, calls: &mut CallCount) -> Node {
    let mut node = call.node;
    node.step = step;
    node.call = call.call.unwrap_or_else(|| calls.expected(&node.path));
    node.order = *order;
    *order += 1;
    calls.note(&node);
    node.children = call
        .children
        .into_iter()
        .map(|child| number(child, step, order, calls))
        .collect();
    node
}

/// The class, which a root's path begins with: what the file is named after, or up to the first dot.
fn trace_name(root: &str, path: &Path) -> String {
    let file = path.file_name().and_then(|name| name.to_str());
    let stem = file.and_then(|file| {
        [super::Tree::Full, super::Tree::Summary]
            .iter()
            .find_map(|tree| file.strip_suffix(tree.file_suffix()))
    });
    match stem {
        Some(stem)
            if root
                .strip_prefix(stem)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) =>
        {
            stem.to_owned()
        }
        _ => root.split('.').next().unwrap_or(root).to_owned(),
    }
}

/// What the reader tells beside the tree: where an error is, and which keys it does not know.
#[derive(Default)]
pub(super) struct Context {
    /// From the inside out, filled as an error makes its way up.
    path: RefCell<Vec<Segment>>,
    unknown: RefCell<BTreeSet<String>>,
}

/// One step of the way to an error.
pub(super) enum Segment {
    Module(String),
    Key(String),
    Index(usize),
}

impl Context {
    /// Reads what lies at a segment; the segment is made only if that fails.
    pub(super) fn within<T, E>(
        &self,
        segment: impl FnOnce() -> Segment,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        read().inspect_err(|_| self.path.borrow_mut().push(segment()))
    }

    fn key<T, E>(&self, key: &str, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.within(|| Segment::Key(key.to_owned()), read)
    }

    /// The innermost module and the keys below it.
    fn place(&self) -> String {
        let mut module = None;
        let mut below = Vec::new();
        for segment in self.path.borrow().iter() {
            match segment {
                Segment::Module(path) => {
                    module = Some(shorten(path));
                    break;
                }
                Segment::Key(key) => below.push(format!(".{key}")),
                Segment::Index(index) => below.push(format!("[{index}]")),
            }
        }
        below.reverse();
        let below = below.concat();
        let below = shorten(below.trim_start_matches('.'));
        match module {
            Some(module) if below.is_empty() => module,
            Some(module) => format!("{module}, {below}"),
            None => below,
        }
    }

    fn skip(&self, key: String) {
        const REMEMBERED: usize = 16;
        let mut unknown = self.unknown.borrow_mut();
        if unknown.len() < REMEMBERED {
            unknown.insert(key);
        }
    }
}

/// A root with the later root calls that it carries.
#[derive(Default)]
struct Parsed {
    path: Option<String>,
    call: Call,
    calls: Vec<Call>,
}

/// Where a node stands, which decides the keys it may have.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The file's outermost object.
    First,
    /// A later root call.
    Later,
    /// A call inside a call.
    Inner,
}

#[derive(Clone, Copy)]
struct NodeSeed<'c> {
    context: &'c Context,
    depth: usize,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Parsed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        if self.depth >= MAX_CALL_DEPTH {
            return Err(D::Error::custom(format_args!(
                "calls nest deeper than {MAX_CALL_DEPTH}"
            )));
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a module call, as an object with `module_path`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parsed, A::Error> {
        let mut parsed = Parsed::default();
        let result = self.read_keys(map, &mut parsed);
        if let (Err(_), Some(module)) = (&result, &parsed.path) {
            let segment = Segment::Module(module.clone());
            self.context.path.borrow_mut().push(segment);
        }
        result?;
        parsed.call.node.path = parsed
            .path
            .take()
            .ok_or_else(|| A::Error::custom("no `module_path`: this is no debug tree"))?;
        Ok(parsed)
    }
}

impl NodeSeed<'_> {
    fn read_keys<'de, A: MapAccess<'de>>(
        self,
        mut map: A,
        parsed: &mut Parsed,
    ) -> Result<(), A::Error> {
        let context = self.context;
        parsed.call.node.complete = true;
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let known = match key.as_str() {
                "module_path" | "inputs" | "outputs" | "children" | "call" | "complete" => true,
                "step" => self.place != Place::Inner,
                "calls" => self.place == Place::First,
                _ => false,
            };
            if !known {
                context.skip(key);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key `{key}` comes twice"
                )));
            }
            let call = &mut parsed.call;
            context.key(&key, || {
                match key.as_str() {
                    "module_path" => parsed.path = Some(map.next_value()?),
                    "inputs" => call.node.inputs = map.next_value_seed(InputsSeed(context))?,
                    "outputs" => {
                        let value = ValueSeed { context, depth: 0 };
                        call.node.outputs = map.next_value_seed(OptionalSeed(value))?;
                    }
                    "children" => {
                        call.children = map.next_value_seed(NodesSeed {
                            context,
                            depth: self.depth + 1,
                            place: Place::Inner,
                        })?;
                    }
                    "calls" => {
                        parsed.calls = map.next_value_seed(NodesSeed {
                            context,
                            depth: self.depth,
                            place: Place::Later,
                        })?;
                    }
                    "step" => call.step = Some(map.next_value()?),
                    "call" => call.call = Some(map.next_value()?),
                    _ => call.node.complete = map.next_value()?,
                }
                Ok(())
            })?;
            seen.insert(key);
        }
        Ok(())
    }
}

struct NodesSeed<'c> {
    context: &'c Context,
    depth: usize,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for NodesSeed<'_> {
    type Value = Vec<Call>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Call>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for NodesSeed<'_> {
    type Value = Vec<Call>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of module calls")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Call>, A::Error> {
        let mut nodes = Vec::new();
        while let Some(parsed) = self.context.within(
            || Segment::Index(nodes.len()),
            || {
                seq.next_element_seed(NodeSeed {
                    context: self.context,
                    depth: self.depth,
                    place: self.place,
                })
            },
        )? {
            nodes.push(parsed.call);
        }
        Ok(nodes)
    }
}
