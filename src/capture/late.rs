//! What devices tell only at the end, put in its place: numbers of tensors, operations of calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    fusion::{DeviceTrace, Logged, Numbers, Place},
    infer::{Inferred, infer},
    record::{CallId, Record},
    settings::Options,
    tensor,
};
use crate::{
    format::{
        WriteError,
        jsonl::{self, JsonlWriter},
    },
    trace::{Inputs, Node, Op, TensorRecord, Value},
};

/// The completed records of tensors, each made once.
struct Resolver {
    numbers: HashMap<u64, Numbers>,
    same: HashMap<u64, u64>,
    files: HashMap<u64, String>,
    /// By the address of the incomplete record, which is kept so that no other gets its address.
    done: HashMap<usize, (Arc<TensorRecord>, Arc<TensorRecord>)>,
}

impl Resolver {
    /// The number of the tensor that this one turned out to be.
    fn id(&self, id: u64) -> u64 {
        self.same.get(&id).copied().unwrap_or(id)
    }

    fn tensor(&mut self, record: &Arc<TensorRecord>) -> Arc<TensorRecord> {
        let Some(id) = record.id else {
            return record.clone();
        };
        let place = Arc::as_ptr(record).addr();
        if let Some((_, done)) = self.done.get(&place) {
            return done.clone();
        }
        let id = self.id(id);
        let mut completed = (**record).clone();
        completed.id = Some(id);
        tensor::complete(&mut completed, self.numbers.get(&id), self.files.get(&id));
        // Most records of the host are complete: they stay shared as they are.
        let completed = if completed == **record {
            record.clone()
        } else {
            Arc::new(completed)
        };
        self.done.insert(place, (record.clone(), completed.clone()));
        completed
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Tensor(record) => *record = self.tensor(record),
            Value::List(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| self.value(value)),
            Value::Text(_) => {}
        }
    }

    fn inputs(&mut self, inputs: &mut Inputs) {
        inputs.args.iter_mut().for_each(|value| self.value(value));
        let kwargs = inputs.kwargs.iter_mut();
        kwargs.for_each(|(_, value)| self.value(value));
    }

    fn node(&mut self, node: &mut Node) {
        if let Some(inputs) = &mut node.inputs {
            self.inputs(inputs);
        }
        if let Some(outputs) = &mut node.outputs {
            self.value(outputs);
        }
        let children = node.children.iter_mut();
        children.for_each(|child| self.node(child));
    }

    fn op(&mut self, op: &mut Op) {
        for operand in &mut op.inputs {
            operand.id = self.id(operand.id);
        }
        for output in &mut op.outputs {
            output.alias_of = output.alias_of.map(|id| self.id(id));
            output.tensor = self.tensor(&output.tensor);
        }
    }

    /// Gives what describes another tensor's elements in the same order that one's numbers.
    fn share_numbers(&mut self, ops: &[Logged]) {
        for Logged {
            op, same_numbers, ..
        } in ops
        {
            for (output, same) in op.outputs.iter().zip(same_numbers) {
                if let (true, Some(source), Some(id)) = (*same, output.alias_of, output.tensor.id)
                    && let Some(numbers) = self.numbers.get(&self.id(source))
                    && !self.numbers.contains_key(&id)
                {
                    let numbers = numbers.clone().in_another_shape();
                    self.numbers.insert(id, numbers);
                }
            }
        }
    }
}

impl Record {
    /// Writes operations to the journal as they become known, so that a crash leaves them.
    pub(super) fn publish(&mut self, options: &Options, ops: &[(Op, Place)]) {
        if self.finished {
            return;
        }
        self.open_journal(options);
        for (op, place) in ops {
            let call = place
                .call
                .and_then(|call| self.calls.get(call.0)?.journaled);
            self.journal_with(|journal| journal.op(call, op));
            self.published.push(call);
        }
    }

    /// Completes every call with what its devices told, and concludes the calls that nobody announced.
    ///
    /// Returns the root calls so concluded and the operations of no call.
    pub(super) fn complete(
        &mut self,
        options: &Options,
        device: DeviceTrace,
    ) -> (Vec<Node>, Vec<Op>) {
        for note in device.notes {
            self.note(note);
        }
        let mut resolver = Resolver {
            numbers: device.numbers,
            same: device.same,
            files: device.files,
            done: HashMap::new(),
        };
        resolver.share_numbers(&device.ops);
        for call in &mut self.calls {
            if let Some(inputs) = &mut call.node.inputs {
                resolver.inputs(inputs);
            }
            if let Some(outputs) = &mut call.node.outputs {
                resolver.value(outputs);
            }
        }
        self.journal_with(|journal| {
            let mut completed: Vec<_> = resolver.done.values().collect();
            completed.sort_by_key(|(before, _)| before.id);
            completed
                .into_iter()
                .filter(|(before, after)| !Arc::ptr_eq(before, after))
                .try_for_each(|(before, after)| journal.summary(before, after))
        });
        let mut outside: BTreeMap<(u64, u64), Vec<Op>> = BTreeMap::new();
        for logged in device.ops {
            let mut op = logged.op;
            resolver.op(&mut op);
            match logged.place.call {
                Some(call) => self.call(call).node.ops.push(op),
                None => {
                    let stretch = (logged.place.run, op.stream);
                    outside.entry(stretch).or_default().push(op);
                }
            }
        }
        let mut concluded: Vec<(Option<CallId>, Node)> = Vec::new();
        for id in (0..self.calls.len()).map(CallId) {
            let call = self.call(id);
            let (path, step, selected) = (call.node.path.clone(), call.node.step, call.selected);
            let ops = std::mem::take(&mut call.node.ops);
            let (calls, rest) = self.conclude(options, &mut resolver, Some((&path, step)), ops);
            if selected {
                self.call(id).node.ops = rest;
            }
            concluded.extend(calls.into_iter().map(|call| (Some(id), call)));
        }
        let mut rest = Vec::new();
        for ops in outside.into_values() {
            let (calls, left) = self.conclude(options, &mut resolver, None, ops);
            concluded.extend(calls.into_iter().map(|call| (None, call)));
            rest.extend(left);
        }
        rest.sort_by_key(|op| op.order);
        self.journal_ops(&concluded, &rest);
        let journaled: Vec<bool> = self
            .calls
            .iter()
            .map(|call| call.journaled.is_some())
            .collect();
        let mut roots = Vec::new();
        for (parent, node) in concluded {
            let above = parent.and_then(|parent| self.journal_beginning(options, parent));
            self.journal_node(above, &node);
            match parent {
                Some(parent) => self.call(parent).node.children.push(node),
                None => roots.push(node),
            }
        }
        // Calls that the filters leave out, but not what was concluded in them.
        for (id, before) in journaled.into_iter().enumerate() {
            if let (false, Some(call)) = (before, self.calls[id].journaled) {
                let node = std::mem::take(&mut self.calls[id].node);
                self.journal_with(|journal| journal.exit(call, &node));
                self.calls[id].node = node;
            }
        }
        (roots, rest)
    }

    /// Concludes the calls that were made in a call with that path and step, or in none; returns what
    /// the filters leave of them, and the operations of none of them.
    fn conclude(
        &mut self,
        options: &Options,
        resolver: &mut Resolver,
        within: Option<(&str, u64)>,
        ops: Vec<Op>,
    ) -> (Vec<Node>, Vec<Op>) {
        if ops.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let Inferred { calls, rest, notes } =
            infer(self.names.tree(), within.map(|(path, _)| path), ops);
        notes.into_iter().for_each(|note| self.note(note));
        let mut selected = Vec::new();
        for mut call in calls {
            let step = match within {
                Some((_, step)) => step,
                None => self.next_step(),
            };
            resolver.node(&mut call);
            self.number(&mut call, step);
            selected.extend(select(options, call));
        }
        (selected, rest)
    }

    /// The number of the next root call.
    fn next_step(&mut self) -> u64 {
        self.concluded_roots += 1;
        self.roots.len() as u64 + self.concluded_roots - 1
    }

    /// Tells the journal of every operation that is left, under the call that is known to have made it.
    fn journal_ops(&mut self, concluded: &[(Option<CallId>, Node)], rest: &[Op]) {
        fn collect<'n>(
            node: &'n Node,
            call: Option<jsonl::CallId>,
            lines: &mut Vec<(Option<jsonl::CallId>, &'n Op)>,
        ) {
            lines.extend(node.ops.iter().map(|op| (call, op)));
            let children = node.children.iter();
            children.for_each(|child| collect(child, call, lines));
        }
        let mut journal = self.journal.take();
        let mut lines: Vec<_> = rest.iter().map(|op| (None, op)).collect();
        // Published before the beginning of their call was in the journal.
        let mut placed: Vec<(jsonl::CallId, Vec<u64>)> = Vec::new();
        for call in &self.calls {
            lines.extend(call.node.ops.iter().map(|op| (call.journaled, op)));
            let unplaced = |op: &&Op| matches!(self.published.get(op.order as usize), Some(None));
            let ops = call.node.ops.iter().filter(unplaced).map(|op| op.order);
            placed.extend(call.journaled.map(|call| (call, ops.collect())));
        }
        for (parent, node) in concluded {
            let call = parent.and_then(|parent| self.calls[parent.0].journaled);
            collect(node, call, &mut lines);
        }
        // The first operations were published while the run went on.
        lines.retain(|(_, op)| op.order >= self.published.len() as u64);
        lines.sort_by_key(|(_, op)| op.order);
        let written = journal.as_mut().map_or(Ok(()), |journal| {
            for (call, op) in lines {
                journal.op(call, op)?;
            }
            for (call, ops) in placed.iter().filter(|(_, ops)| !ops.is_empty()) {
                journal.ops(*call, ops)?;
            }
            Ok(())
        });
        self.journal = journal;
        if let Err(error) = written {
            self.failed(error);
        }
    }

    /// Numbers the calls of each path on from those that were seen.
    fn number(&mut self, node: &mut Node, step: u64) {
        node.step = step;
        let count = self.counts.entry((step, node.path.clone())).or_default();
        node.call = std::mem::replace(count, *count + 1);
        let children = node.children.iter_mut();
        children.for_each(|child| self.number(child, step));
    }

    fn journal_node(&mut self, parent: Option<jsonl::CallId>, node: &Node) {
        let mut entered = None;
        self.journal_with(|journal| {
            let call = journal.enter(parent, node)?;
            entered = Some(call);
            let ops: Vec<u64> = node.ops.iter().map(|op| op.order).collect();
            journal.ops(call, &ops)
        });
        for child in &node.children {
            self.journal_node(entered, child);
        }
        if let Some(call) = entered {
            self.journal_with(|journal| journal.exit(call, node));
        }
    }

    fn journal_with(&mut self, write: impl FnOnce(&mut JsonlWriter) -> Result<(), WriteError>) {
        if let Some(journal) = &mut self.journal
            && let Err(error) = write(journal)
        {
            self.failed(error);
        }
    }
}

/// What the filters leave of a concluded call.
fn select(options: &Options, mut node: Node) -> Option<Node> {
    let children = std::mem::take(&mut node.children);
    node.children = children
        .into_iter()
        .filter_map(|child| select(options, child))
        .collect();
    if !options.selects(&node.path) {
        if node.children.is_empty() {
            return None;
        }
        node.inputs = None;
        node.outputs = None;
        node.ops.clear();
    }
    Some(node)
}
