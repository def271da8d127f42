//! Any trace comes back from a record in which what can be told late is.

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use burnscope::{
    format::jsonl::{CallId, Header, JsonlWriter},
    trace::{Attribution, Node, Op, TensorRecord, Trace, Value},
};
use proptest::prelude::*;

use crate::{exact, generators::traces, read, record};

/// A trace as a run would have it: every tensor and operation with a number of its own, and inferred
/// calls with inferred operations.
fn numbered(mut trace: Trace) -> Trace {
    fn tensor(tensor: &mut Arc<TensorRecord>, next: &mut u64) {
        let tensor = Arc::make_mut(tensor);
        tensor.id = tensor.id.map(|_| *next);
        *next += 1;
    }
    fn value(it: &mut Value, next: &mut u64) {
        match it {
            Value::Tensor(it) => tensor(it, next),
            Value::List(items) => items.iter_mut().for_each(|item| value(item, next)),
            Value::Map(items) => items.iter_mut().for_each(|(_, item)| value(item, next)),
            Value::Text(_) => {}
        }
    }
    fn ops(ops: &mut [Op], next: &mut u64, call: Attribution) {
        for op in ops {
            *next += 1;
            op.order = *next;
            if call == Attribution::Inferred {
                op.attribution = Attribution::Inferred;
            }
            for output in &mut op.outputs {
                tensor(&mut output.tensor, next);
            }
        }
    }
    fn node(it: &mut Node, next: &mut u64) {
        if let Some(inputs) = &mut it.inputs {
            let kwargs = inputs.kwargs.iter_mut().map(|(_, value)| value);
            for input in inputs.args.iter_mut().chain(kwargs) {
                value(input, next);
            }
        }
        if let Some(outputs) = &mut it.outputs {
            value(outputs, next);
        }
        ops(&mut it.ops, next, it.attribution);
        it.children.iter_mut().for_each(|child| node(child, next));
    }
    let mut next = 0;
    ops(&mut trace.ops, &mut next, Attribution::Exact);
    trace
        .roots
        .iter_mut()
        .for_each(|root| node(root, &mut next));
    trace
}

/// Writes a trace as a run on a device does: tensors without what is known of their elements, and
/// that, like the membership of many operations, at the end.
struct LateWriter {
    writer: JsonlWriter,
    pending: HashMap<usize, Arc<TensorRecord>>,
    resolved: Vec<(Arc<TensorRecord>, Arc<TensorRecord>)>,
    told: Vec<(CallId, Vec<u64>)>,
}

impl LateWriter {
    fn tensor(&mut self, tensor: &Arc<TensorRecord>) -> Arc<TensorRecord> {
        let address = Arc::as_ptr(tensor) as usize;
        let pending = self.pending.entry(address).or_insert_with(|| {
            let pending = Arc::new(TensorRecord {
                summary: None,
                not_summarised: None,
                printed: None,
                value: None,
                ..(**tensor).clone()
            });
            self.resolved
                .push((Arc::clone(&pending), Arc::clone(tensor)));
            pending
        });
        Arc::clone(pending)
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Tensor(tensor) => Value::Tensor(self.tensor(tensor)),
            Value::List(items) => Value::List(items.iter().map(|item| self.value(item)).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, item)| (key.clone(), self.value(item)))
                    .collect(),
            ),
            Value::Text(text) => Value::Text(text.clone()),
        }
    }

    fn op(&mut self, call: Option<CallId>, op: &Op) {
        let mut op = op.clone();
        for output in &mut op.outputs {
            output.tensor = self.tensor(&output.tensor);
        }
        self.writer.op(call, &op).unwrap();
    }

    fn node(&mut self, parent: Option<CallId>, node: &Node) {
        let mut pending = node.clone();
        if let Some(inputs) = &mut pending.inputs {
            for input in &mut inputs.args {
                *input = self.value(input);
            }
            for (_, input) in &mut inputs.kwargs {
                *input = self.value(input);
            }
        }
        pending.outputs = node.outputs.as_ref().map(|value| self.value(value));
        let call = self.writer.enter(parent, &pending).unwrap();
        // Known at once, known to be of an outer call, or not known at all.
        let mut late = Vec::new();
        for op in &node.ops {
            match op.order % 3 {
                0 => self.op(Some(call), op),
                1 => {
                    self.op(parent, op);
                    late.push(op.order);
                }
                _ => {
                    self.op(None, op);
                    late.push(op.order);
                }
            }
        }
        self.told.push((call, late));
        for child in &node.children {
            self.node(Some(call), child);
        }
        self.writer.exit(call, &pending).unwrap();
    }
}

fn write_late(path: &Path, trace: &Trace) {
    let header = Header {
        program: trace.source.clone(),
        ..Header::now(&trace.name)
    };
    let mut late = LateWriter {
        writer: JsonlWriter::create(path, &header).unwrap(),
        pending: HashMap::new(),
        resolved: Vec::new(),
        told: Vec::new(),
    };
    for root in &trace.roots {
        late.node(None, root);
    }
    for op in &trace.ops {
        late.op(None, op);
    }
    for (pending, resolved) in &late.resolved {
        late.writer.summary(pending, resolved).unwrap();
    }
    for (call, ops) in &late.told {
        late.writer.ops(*call, ops).unwrap();
    }
    for note in &trace.notes {
        late.writer.note(note).unwrap();
    }
    late.writer.finish(trace.complete).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(96)
    })]

    #[test]
    fn a_damaged_late_record_is_an_error_and_not_a_panic(
        trace in traces(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        write_late(&path, &numbered(trace));
        let mut bytes = fs::read(&path).unwrap();
        for (place, byte) in &changes {
            let place = place.index(bytes.len());
            // A digit often leaves the line well-formed.
            bytes[place] = match bytes[place] {
                b'0'..=b'9' => b'0' + byte % 10,
                _ => *byte,
            };
        }
        let _ = read(&bytes);
    }

    #[test]
    fn a_trace_that_is_told_late_reads_as_one_that_was_told_at_once(trace in traces()) {
        let trace = numbered(trace);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        write_late(&path, &trace);
        let late = read(&fs::read(&path).unwrap()).unwrap();
        prop_assert_eq!(exact(&late), exact(&trace));
        prop_assert_eq!(exact(&late), exact(&read(&record(&trace)).unwrap()));
    }
}
