//! Concludes which modules were called from the operations that they made, for models without
//! annotations.
//!
//! Parameters tell where a module without parts was called, [`template`]s of data flow what it was
//! given and returned; what lies between goes to the module that contains both neighbours. It sees
//! plain data only, no device and no Burn.

mod calls;
mod debug_text;
mod flow;
mod interface;
mod leaves;
mod matching;
mod template;
mod tree;

#[cfg(test)]
mod anything;
#[cfg(test)]
mod made_up;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use calls::{Call, Calls};
pub(crate) use debug_text::DebugText;
use flow::Flow;
use leaves::{Leaf, Leaves};
pub(crate) use tree::ModuleTree;

use crate::trace::{Attribution, Inputs, Node, Op, TensorRecord, Value};

/// The most module paths that one note lists.
const MAX_LISTED: usize = 8;

/// What was concluded of a stretch of operations of one thread.
#[derive(Debug, Default)]
pub(crate) struct Inferred {
    /// The calls, in the order of their first operations.
    pub(crate) calls: Vec<Node>,
    /// The operations of no call, in program order.
    pub(crate) rest: Vec<Op>,
    /// What could not be seen or is uncertain, in words for a person.
    pub(crate) notes: Vec<String>,
}

/// Concludes the module calls in `ops`, one thread's operations.
///
/// `within` is the path of the exact call that the operations were made in directly: the calls of its
/// parts are concluded. `None` is a stretch outside any call, whose root calls are concluded, numbered
/// from step 0. Calls of a path are numbered from 0 within each step.
pub(crate) fn infer(tree: &ModuleTree, within: Option<&str>, mut ops: Vec<Op>) -> Inferred {
    ops.sort_by_key(|op| op.order);
    let container = within.map(|path| tree.at(path));
    if container == Some(None) {
        return Inferred {
            rest: ops,
            ..Inferred::default()
        };
    }
    let container = container.flatten();
    let flow = Flow::new(tree, &ops);
    let leaves = Leaves::find(tree, &flow, container);
    let notes = notes(tree, container, &leaves.found);
    let builder = Calls { tree, flow: &flow };
    let (calls, _) = builder.build(container, leaves.found, &leaves.taken);
    let mut records = Records {
        builder: &builder,
        owners: HashMap::new(),
        counts: HashMap::new(),
    };
    let mut nodes = Vec::new();
    for (at, call) in calls.into_iter().enumerate() {
        let step = if within.is_none() { at as u64 } else { 0 };
        if within.is_none() {
            records.counts.clear();
        }
        nodes.push(records.node(call, step, &mut vec![at]));
    }
    let owners = records.owners;
    let mut inferred = Inferred {
        calls: nodes,
        rest: Vec::new(),
        notes,
    };
    for (index, op) in ops.into_iter().enumerate() {
        match owners.get(&index) {
            Some(place) => {
                if let Some(node) = at(&mut inferred.calls, place) {
                    node.ops.push(Op {
                        attribution: Attribution::Inferred,
                        ..op
                    });
                }
            }
            None => inferred.rest.push(op),
        }
    }
    inferred
}

/// The node at a place: an index for each level.
fn at<'n>(nodes: &'n mut [Node], place: &[usize]) -> Option<&'n mut Node> {
    let (first, inside) = place.split_first()?;
    let node = nodes.get_mut(*first)?;
    match inside {
        [] => Some(node),
        inside => at(&mut node.children, inside),
    }
}

/// Makes nodes of calls.
struct Records<'r, 'o> {
    builder: &'r Calls<'r, 'o>,
    /// The place of the node that each operation belongs to.
    owners: HashMap<usize, Vec<usize>>,
    /// How often each module was called in this step.
    counts: HashMap<usize, u64>,
}

impl Records<'_, '_> {
    fn node(&mut self, call: Call, step: u64, place: &mut Vec<usize>) -> Node {
        let all: HashSet<usize> = call.all_ops().into_iter().collect();
        let flow = self.builder.flow;
        let (inputs, outputs) = interface::of(self.builder.tree, flow, &call);
        let tensors = |ids: Vec<u64>| -> Vec<Value> {
            ids.into_iter()
                .filter_map(|id| flow.record(id))
                .map(|tensor: Arc<TensorRecord>| Value::Tensor(tensor))
                .collect()
        };
        let mut outputs = tensors(outputs);
        let outputs = match outputs.len() {
            0 => None,
            1 => outputs.pop(),
            _ => Some(Value::List(outputs)),
        };
        for op in &call.ops {
            self.owners.insert(*op, place.clone());
        }
        let number = self.counts.entry(call.module).or_default();
        let count = *number;
        *number += 1;
        let module = self.builder.tree.module(call.module);
        let order = all.iter().min().map_or(0, |op| flow.ops[*op].order);
        let mut parts = call.parts;
        parts.sort_by_key(|part| part.all_ops().into_iter().min());
        let children = parts
            .into_iter()
            .enumerate()
            .map(|(at, part)| {
                place.push(at);
                let node = self.node(part, step, place);
                place.pop();
                node
            })
            .collect();
        Node {
            path: module.path.clone(),
            kind: module.kind.clone(),
            method: Some("forward".to_owned()),
            step,
            call: count,
            order,
            inputs: Some(Inputs {
                args: tensors(inputs),
                kwargs: Vec::new(),
            }),
            outputs,
            children,
            attribution: Attribution::Inferred,
            complete: true,
            ..Node::default()
        }
    }
}

/// What is uncertain about the calls and which modules were not seen.
fn notes(tree: &ModuleTree, container: Option<usize>, leaves: &[Leaf]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut list = |modules: Vec<usize>, what: &str| {
        if modules.is_empty() {
            return;
        }
        let mut paths: Vec<&str> = modules
            .iter()
            .take(MAX_LISTED)
            .map(|module| tree.module(*module).path.as_str())
            .collect();
        let more = format!("{} more", modules.len() - paths.len());
        if modules.len() > paths.len() {
            paths.push(&more);
        }
        notes.push(format!("{what}: {}", paths.join(", ")));
    };
    let mut by_structure: Vec<usize> = leaves
        .iter()
        .filter(|leaf| !leaf.by_pattern)
        .map(|leaf| leaf.module)
        .collect();
    by_structure.sort_unstable();
    by_structure.dedup();
    list(
        by_structure,
        "modules of unknown make, whose inputs were concluded from the use of their parameters alone",
    );
    let seen: HashSet<usize> = leaves
        .iter()
        .flat_map(|leaf| tree.chain(leaf.module))
        .collect();
    let mut silent = Vec::new();
    let mut dropouts = Vec::new();
    // Parts of an exact call are recorded where it calls them, without any operation of theirs.
    let exact: Vec<usize> = container.map_or_else(Vec::new, |module| tree.chain(module).collect());
    let mut called: Vec<usize> = seen.iter().copied().collect();
    called.retain(|module| !exact.contains(module));
    called.sort_unstable();
    for module in called {
        for part in &tree.module(module).children {
            let node = tree.module(*part);
            if node.has_parameters || seen.contains(part) {
                continue;
            }
            match node.kind.as_deref() {
                Some("Dropout") => dropouts.push(*part),
                _ => silent.push(*part),
            }
        }
    }
    list(
        dropouts,
        "a dropout outside training makes no operation and was not seen",
    );
    list(
        silent,
        "modules without parameters that no operation could be told to be of",
    );
    notes
}
