//! A trace as a JSON tree.

use std::{
    cell::RefCell,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};

use super::{CallCount, Tree, ascii::AsciiFormatter};
use crate::{
    atomic::{Durability, Staged},
    format::{MAX_CALL_DEPTH, MAX_VALUE_DEPTH, WriteError, dump::file_stem, error::TOO_DEEP},
    trace::{Inputs, Node, TensorRecord, TensorValue, Trace, Value},
};

/// Writes `<Class>_debug_tree_FULL_TENSORS.json` and `<Class>_debug_tree_SUMMARY.json` into a folder
/// that exists, and returns their paths in this order.
///
/// Both appear under their names only when both are whole.
///
/// # Errors
/// If there is no root call, calls nest deeper than [`MAX_CALL_DEPTH`], or the system refuses.
pub fn write_pair(folder: &Path, trace: &Trace) -> Result<[PathBuf; 2], WriteError> {
    check(trace)?;
    let stem = file_stem(&trace.name);
    let paths =
        [Tree::Full, Tree::Summary].map(|tree| folder.join(stem.clone() + tree.file_suffix()));
    let stage = |path: &Path, tree| {
        Staged::write(path, Durability::Synced, |out| serialize(out, trace, tree))
            .map_err(WriteError::io(path))
    };
    let full = stage(&paths[0], Tree::Full)?;
    let summary = stage(&paths[1], Tree::Summary)?;
    full.publish().map_err(WriteError::io(&paths[0]))?;
    summary.publish().map_err(WriteError::io(&paths[1]))?;
    Ok(paths)
}

/// Writes one tree.
///
/// # Errors
/// As [`write_pair`], with the trace's name in place of a file's path.
pub fn to_writer(out: &mut dyn Write, trace: &Trace, tree: Tree) -> Result<(), WriteError> {
    check(trace)?;
    serialize(out, trace, tree).map_err(WriteError::io(Path::new(&trace.name)))
}

fn check(trace: &Trace) -> Result<(), WriteError> {
    fn fits(nodes: &[Node], room: usize) -> bool {
        nodes.is_empty() || room > 0 && nodes.iter().all(|node| fits(&node.children, room - 1))
    }
    if trace.roots.is_empty() {
        return Err(WriteError::NoCalls {
            name: trace.name.clone(),
        });
    }
    if !fits(&trace.roots, MAX_CALL_DEPTH) {
        return Err(WriteError::TooDeep);
    }
    Ok(())
}

fn serialize(out: &mut dyn Write, trace: &Trace, tree: Tree) -> io::Result<()> {
    let mut json = serde_json::Serializer::with_formatter(out, AsciiFormatter::default());
    // `check` made sure of a first root.
    let (first, later) = trace
        .roots
        .split_first()
        .ok_or_else(|| io::Error::other("the trace has no root call"))?;
    // The first root also speaks for the whole trace.
    let complete = trace.complete && trace.roots.iter().all(|root| root.complete);
    First {
        root: Root::new(first, 0, complete, tree),
        later,
    }
    .serialize(&mut json)?;
    Ok(())
}

/// The first root call, which carries the others.
struct First<'a> {
    root: Root<'a>,
    later: &'a [Node],
}

/// A root call: unlike other nodes it always says both kinds of inputs and leaves out empty outputs.
struct Root<'a> {
    node: &'a Node,
    index: u64,
    complete: bool,
    context: Context,
}

/// What all nodes of a root call share while they are written.
struct Context {
    tree: Tree,
    calls: RefCell<CallCount>,
}

impl<'a> Root<'a> {
    fn new(node: &'a Node, index: usize, complete: bool, tree: Tree) -> Self {
        Self {
            node,
            index: index as u64,
            complete,
            context: Context {
                tree,
                calls: RefCell::default(),
            },
        }
    }

    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (node, context) = (self.node, &self.context);
        let call = context.number(node);
        map.serialize_entry("module_path", &node.path)?;
        if let Some(inputs) = &node.inputs {
            map.serialize_entry("inputs", &InputsJson(inputs, true, context))?;
        }
        if !node.children.is_empty() {
            map.serialize_entry("children", &NodesJson(&node.children, context))?;
        } else if let Some(outputs) = &node.outputs
            && !matches!(outputs, Value::List(items) if items.is_empty())
            && !matches!(outputs, Value::Map(entries) if entries.is_empty())
        {
            map.serialize_entry("outputs", &ValueJson(outputs, context, 0))?;
        }
        if node.step != self.index {
            map.serialize_entry("step", &node.step)?;
        }
        extra_entries(map, call, self.complete)
    }
}

impl Context {
    /// The call's number where a reader would not expect it.
    fn number(&self, node: &Node) -> Option<u64> {
        let mut calls = self.calls.borrow_mut();
        let call = (node.call != calls.expected(&node.path)).then_some(node.call);
        calls.note(node);
        call
    }
}

fn extra_entries<M: SerializeMap>(
    map: &mut M,
    call: Option<u64>,
    complete: bool,
) -> Result<(), M::Error> {
    if let Some(call) = call {
        map.serialize_entry("call", &call)?;
    }
    if !complete {
        map.serialize_entry("complete", &false)?;
    }
    Ok(())
}

impl Serialize for First<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.root.entries(&mut map)?;
        if !self.later.is_empty() {
            map.serialize_entry("calls", &LaterJson(self.later, self.root.context.tree))?;
        }
        map.end()
    }
}

impl Serialize for Root<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

struct LaterJson<'a>(&'a [Node], Tree);

impl Serialize for LaterJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0
                .iter()
                .enumerate()
                .map(|(place, node)| Root::new(node, place + 1, node.complete, self.1)),
        )
    }
}

struct NodesJson<'a>(&'a [Node], &'a Context);

impl Serialize for NodesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|node| NodeJson(node, self.1)))
    }
}

struct NodeJson<'a>(&'a Node, &'a Context);

impl Serialize for NodeJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let NodeJson(node, context) = *self;
        let call = context.number(node);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("module_path", &node.path)?;
        if let Some(inputs) = &node.inputs {
            map.serialize_entry("inputs", &InputsJson(inputs, false, context))?;
        }
        if node.children.is_empty() {
            let outputs = node.outputs.as_ref();
            map.serialize_entry(
                "outputs",
                &outputs.map(|value| ValueJson(value, context, 0)),
            )?;
        } else {
            map.serialize_entry("children", &NodesJson(&node.children, context))?;
        }
        extra_entries(&mut map, call, node.complete)?;
        map.end()
    }
}

/// The inputs; the flag says whether empty ones are written too.
struct InputsJson<'a>(&'a Inputs, bool, &'a Context);

impl Serialize for InputsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let InputsJson(inputs, with_empty, context) = *self;
        let mut map = serializer.serialize_map(None)?;
        if with_empty || !inputs.args.is_empty() {
            map.serialize_entry("args", &ListJson(&inputs.args, context, 1))?;
        }
        if with_empty || !inputs.kwargs.is_empty() {
            map.serialize_entry("kwargs", &MapJson(&inputs.kwargs, context, 1))?;
        }
        map.end()
    }
}

/// A value and how deep it lies.
struct ValueJson<'a>(&'a Value, &'a Context, usize);

impl Serialize for ValueJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ValueJson(value, context, depth) = *self;
        match value {
            Value::List(_) | Value::Map(_) if depth >= MAX_VALUE_DEPTH => {
                serializer.serialize_str(TOO_DEEP)
            }
            Value::List(items) => ListJson(items, context, depth + 1).serialize(serializer),
            Value::Map(entries) => MapJson(entries, context, depth + 1).serialize(serializer),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Tensor(tensor) => TensorJson(tensor, context.tree).serialize(serializer),
        }
    }
}

struct ListJson<'a>(&'a [Value], &'a Context, usize);

impl Serialize for ListJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for item in self.0 {
            list.serialize_element(&ValueJson(item, self.1, self.2))?;
        }
        list.end()
    }
}

struct MapJson<'a>(&'a [(String, Value)], &'a Context, usize);

impl Serialize for MapJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MapJson(entries, context, depth) = *self;
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in entries {
            // transformers strips every key of this name from the summary, arguments included.
            if context.tree == Tree::Full || key != "value" {
                map.serialize_entry(key, &ValueJson(value, context, depth))?;
            }
        }
        map.end()
    }
}

struct TensorJson<'a>(&'a TensorRecord, Tree);

impl Serialize for TensorJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TensorJson(tensor, tree) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("shape", &torch_size(&tensor.shape))?;
        map.serialize_entry("dtype", &tensor.dtype.torch_name())?;
        match &tensor.value {
            Some(TensorValue::Lines(lines)) if tree == Tree::Full => {
                map.serialize_entry("value", lines)?;
            }
            Some(TensorValue::File(name)) if tree == Tree::Full => {
                map.serialize_entry("value", &format!("./{name}"))?;
            }
            _ => {}
        }
        if let Some(printed) = &tensor.printed {
            map.serialize_entry("mean", &printed.mean)?;
            map.serialize_entry("std", &printed.std)?;
            map.serialize_entry("min", &printed.min)?;
            map.serialize_entry("max", &printed.max)?;
        }
        map.end()
    }
}

/// `repr(tensor.shape)`: `torch.Size([2, 3])`.
pub(super) fn torch_size(shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("torch.Size([{}])", dims.join(", "))
}
