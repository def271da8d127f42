//! What a call was given and returned: the tensors that pass between its operations and all others, and
//! for some types what is known of them.

use std::collections::HashSet;

use super::{
    calls::Call,
    flow::Flow,
    template::{self, Pick},
    tree::ModuleTree,
};

/// The tensors that a call was given and those that it returned, in order.
pub(super) fn of(tree: &ModuleTree, flow: &Flow, call: &Call) -> (Vec<u64>, Vec<u64>) {
    if let Some(leaf) = &call.leaf {
        return (leaf.inputs.clone(), leaf.outputs.clone());
    }
    let ops: HashSet<usize> = call.all_ops().into_iter().collect();
    let inputs = external(flow, &ops);
    let last = call.parts.iter().flat_map(Call::all_ops).max();
    let last = last.and_then(|last| {
        let mut parts = call.parts.iter().rev();
        parts.find(|part| part.all_ops().contains(&last))
    });
    let end = last.and_then(|part| part.all_ops().into_iter().min());
    let outputs = escaping(flow, &ops, end.unwrap_or_default());
    let kind = tree.module(call.module).kind.as_deref().unwrap_or_default();
    match template::signature(kind) {
        None => (inputs, outputs),
        Some(signature) => (
            picked(tree, flow, call, signature.inputs, inputs),
            picked(tree, flow, call, signature.outputs, outputs),
        ),
    }
}

/// What the picks of a signature stand for; `passing` are the tensors that the flow tells.
fn picked(
    tree: &ModuleTree,
    flow: &Flow,
    call: &Call,
    picks: &[Pick],
    passing: Vec<u64>,
) -> Vec<u64> {
    let last = |name: &str| {
        let own = call.ops.iter().copied();
        own.filter(|op| flow.ops[*op].name == name).max()
    };
    let operand = |name: &str, number: usize| {
        let op = last(name)?;
        Some((flow.ops[op].inputs.get(number)?.id, op))
    };
    let known: Vec<Option<u64>> = picks
        .iter()
        .map(|pick| match pick {
            Pick::Passing => None,
            Pick::Operand(name, number) => operand(name, *number).map(|(id, _)| id),
            Pick::Relaid(name, number) => {
                let (id, reader) = operand(name, *number)?;
                let relaid = flow.producer_before(id, reader);
                relaid
                    .filter(|op| flow.ops[*op].name == "Reshape")
                    .and_then(|op| Some(flow.ops[op].inputs.first()?.id))
                    .or(Some(id))
            }
            Pick::InputOf(field) => {
                let mut parts = call.parts.iter().rev();
                let part = parts.find(|part| {
                    let path = &tree.module(part.module).path;
                    path.rsplit('.').next() == Some(field)
                })?;
                of(tree, flow, part).0.first().copied()
            }
        })
        .collect();
    let mut all = Vec::new();
    for (pick, id) in picks.iter().zip(&known) {
        match pick {
            Pick::Passing => all.extend(passing.iter().filter(|id| !known.contains(&Some(**id)))),
            _ => all.extend(*id),
        }
    }
    all
}

/// The tensors that come into a call, parameters left out, in the order of their reading.
pub(super) fn external(flow: &Flow, ops: &HashSet<usize>) -> Vec<u64> {
    let mut ordered: Vec<usize> = ops.iter().copied().collect();
    ordered.sort_unstable();
    let mut seen = HashSet::new();
    let mut external = Vec::new();
    for op in ordered {
        for id in flow.activations(op) {
            let producer = flow.producer(id);
            let inside = producer.is_some_and(|producer| ops.contains(&producer));
            if !inside && seen.insert(id) {
                external.push(id);
            }
        }
    }
    external
}

/// The tensors that a call makes for others, in the order of their first reading there. Where there
/// are none, those that nobody reads: what was made since operation `end`, else all of them.
fn escaping(flow: &Flow, ops: &HashSet<usize>, end: usize) -> Vec<u64> {
    let mut ordered: Vec<usize> = ops.iter().copied().collect();
    ordered.sort_unstable();
    let made: Vec<(usize, u64)> = ordered
        .iter()
        .flat_map(|op| flow.outputs(*op).map(|id| (*op, id)))
        .filter(|(_, id)| flow.parameter(*id).is_none())
        .collect();
    let mut read: Vec<(usize, u64)> = made
        .iter()
        .filter_map(|(_, id)| {
            let mut readers = flow.consumers(*id).iter();
            Some((*readers.find(|reader| !ops.contains(reader))?, *id))
        })
        .collect();
    if !read.is_empty() {
        read.sort_by_key(|(reader, _)| *reader);
        return read.into_iter().map(|(_, id)| id).collect();
    }
    let unread = |(op, _): &&(usize, u64)| flow.is_unread(*op);
    let (late, early): (Vec<_>, Vec<_>) =
        made.iter().filter(unread).partition(|(op, _)| *op >= end);
    let results = if late.is_empty() { early } else { late };
    results.into_iter().map(|(_, id)| id).collect()
}
