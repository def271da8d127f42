//! A JSON tree as a trace, from a file that is not trusted.

use std::{cell::RefCell, collections::BTreeSet, fmt, path::Path, sync::Arc};

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{CallCount, write::torch_size};
use crate::{
    format::{Limits, MAX_CALL_DEPTH, MAX_VALUE_DEPTH, ReadError, error::shorten, open::read_file},
    summary::DType,
    trace::{Inputs, Node, Printed, TensorRecord, TensorValue, Trace, Value},
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

/// Where the reader is, kept for messages: an error leaves the path standing.
#[derive(Default)]
struct Context {
    path: RefCell<Vec<String>>,
    unknown: RefCell<BTreeSet<String>>,
}

impl Context {
    fn within<T, E>(
        &self,
        segment: impl Into<String>,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.path.borrow_mut().push(segment.into());
        let result = read();
        if result.is_ok() {
            self.path.borrow_mut().pop();
        }
        result
    }

    /// The innermost module and the keys below it.
    fn place(&self) -> String {
        let path = self.path.borrow();
        let node = path
            .iter()
            .rposition(|part| !part.starts_with('.') && !part.starts_with('['));
        let below = path[node.map_or(0, |node| node + 1)..].concat();
        let below = shorten(below.trim_start_matches('.'));
        match node {
            Some(node) if below.is_empty() => shorten(&path[node]),
            Some(node) => format!("{}, {below}", shorten(&path[node])),
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

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let context = self.context;
        let mut parsed = Parsed::default();
        parsed.call.node.complete = true;
        let mut path: Option<String> = None;
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
            match key.as_str() {
                "module_path" => {
                    let value = context.within(".module_path", || map.next_value::<String>())?;
                    context.path.borrow_mut().push(value.clone());
                    path = Some(value);
                }
                "inputs" => {
                    parsed.call.node.inputs =
                        context.within(".inputs", || map.next_value_seed(InputsSeed(context)))?;
                }
                "outputs" => {
                    parsed.call.node.outputs = context.within(".outputs", || {
                        map.next_value_seed(OptionalSeed(ValueSeed { context, depth: 0 }))
                    })?;
                }
                "children" => {
                    parsed.call.children = context.within(".children", || {
                        map.next_value_seed(NodesSeed {
                            context,
                            depth: self.depth + 1,
                            place: Place::Inner,
                        })
                    })?;
                }
                "calls" => {
                    parsed.calls = context.within(".calls", || {
                        map.next_value_seed(NodesSeed {
                            context,
                            depth: self.depth,
                            place: Place::Later,
                        })
                    })?;
                }
                "step" => {
                    parsed.call.step = Some(context.within(".step", || map.next_value())?);
                }
                "call" => {
                    parsed.call.call = Some(context.within(".call", || map.next_value())?);
                }
                _ => {
                    parsed.call.node.complete = context.within(".complete", || map.next_value())?;
                }
            }
            seen.insert(key);
        }
        parsed.call.node.path =
            path.ok_or_else(|| A::Error::custom("no `module_path`: this is no debug tree"))?;
        context.path.borrow_mut().pop();
        Ok(parsed)
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
        while let Some(parsed) = self.context.within(format!("[{}]", nodes.len()), || {
            seq.next_element_seed(NodeSeed {
                context: self.context,
                depth: self.depth,
                place: self.place,
            })
        })? {
            nodes.push(parsed.call);
        }
        Ok(nodes)
    }
}

struct InputsSeed<'c>(&'c Context);

impl<'de> DeserializeSeed<'de> for InputsSeed<'_> {
    type Value = Option<Inputs>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let seed = ValueSeed {
            context: self.0,
            depth: 0,
        };
        let Some(value) = OptionalSeed(seed).deserialize(deserializer)? else {
            return Ok(None);
        };
        let mut inputs = Inputs::default();
        let Value::Map(entries) = value else {
            return Err(D::Error::custom(
                "expected an object with `args` and `kwargs`",
            ));
        };
        for (key, value) in entries {
            match (key.as_str(), value) {
                ("args", Value::List(args)) if inputs.args.is_empty() => inputs.args = args,
                ("kwargs", Value::Map(kwargs)) if inputs.kwargs.is_empty() => {
                    inputs.kwargs = kwargs
                }
                _ => {
                    return Err(D::Error::custom(format_args!(
                        "expected a list `args` and an object `kwargs`, found `{}`",
                        shorten(&key)
                    )));
                }
            }
        }
        Ok(Some(inputs))
    }
}

/// A value or null.
struct OptionalSeed<'c>(ValueSeed<'c>);

impl<'de> DeserializeSeed<'de> for OptionalSeed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for OptionalSeed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

#[derive(Clone, Copy)]
struct ValueSeed<'c> {
    context: &'c Context,
    depth: usize,
}

impl ValueSeed<'_> {
    /// For what lies inside a list or map.
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        // The writer counts neither the object of inputs nor a tensor's own object and its lines.
        if self.depth > MAX_VALUE_DEPTH + 2 {
            return Err(E::custom(format_args!(
                "lists and objects nest deeper than {MAX_VALUE_DEPTH}"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list or an object")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = self.context.within(format!("[{}]", items.len()), || {
            seq.next_element_seed(inner)
        })? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = self
                .context
                .within(format!(".{key}"), || map.next_value_seed(inner))?;
            entries.push((key, value));
        }
        Ok(match tensor(&entries) {
            Some(tensor) => Value::Tensor(Arc::new(tensor)),
            None => Value::Map(entries),
        })
    }
}

/// The tensor that an object describes, if writing it again gives the same object.
fn tensor(entries: &[(String, Value)]) -> Option<TensorRecord> {
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let (shape, rest) = entry(entries, "shape")?;
    let (dtype, rest) = entry(rest, "dtype")?;
    let shape = parse_torch_size(&text(shape)?)?;
    let dtype_name = text(dtype)?;
    let dtype: DType = dtype_name.parse().ok()?;
    if dtype.torch_name() != dtype_name {
        return None;
    }
    let (value, rest) = match entry(rest, "value") {
        None => (None, rest),
        Some((Value::Text(file), rest)) => {
            let file = file.strip_prefix("./")?.to_owned();
            (Some(TensorValue::File(file)), rest)
        }
        Some((Value::List(lines), rest)) => {
            let lines = lines.iter().map(text).collect::<Option<_>>()?;
            (Some(TensorValue::Lines(lines)), rest)
        }
        Some(_) => return None,
    };
    let printed = if rest.is_empty() {
        None
    } else {
        let (mean, rest) = entry(rest, "mean")?;
        let (std, rest) = entry(rest, "std")?;
        let (min, rest) = entry(rest, "min")?;
        let (max, rest) = entry(rest, "max")?;
        if !rest.is_empty() {
            return None;
        }
        Some(Printed {
            mean: text(mean)?,
            std: text(std)?,
            min: text(min)?,
            max: text(max)?,
        })
    };
    Some(TensorRecord {
        shape,
        dtype,
        device: None,
        id: None,
        summary: None,
        not_summarised: None,
        printed,
        value,
    })
}

/// The first entry's value if it has this key, and the other entries.
fn entry<'a>(
    entries: &'a [(String, Value)],
    key: &str,
) -> Option<(&'a Value, &'a [(String, Value)])> {
    match entries.split_first()? {
        ((found, value), rest) if found == key => Some((value, rest)),
        _ => None,
    }
}

/// A shape whose elements can be counted.
fn parse_torch_size(text: &str) -> Option<Vec<usize>> {
    let dims = text.strip_prefix("torch.Size([")?.strip_suffix("])")?;
    let shape: Vec<usize> = if dims.is_empty() {
        Vec::new()
    } else {
        dims.split(", ")
            .map(|dim| dim.parse().ok())
            .collect::<Option<_>>()?
    };
    // Eight bytes are the largest element, and no caller should have to fear the product.
    shape
        .iter()
        .try_fold(8usize, |bytes, &dim| bytes.checked_mul(dim.max(1)))?;
    (torch_size(&shape) == text).then_some(shape)
}
