//! A run's events as the lines of a record, in memory.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    Header, SCHEMA_MAJOR, SCHEMA_MINOR,
    line::{EnterLine, ExitLine, FinishLine, NoteLine, OpLine, OperandLine, OpsLine, OutputLine},
    tensors::Tensors,
};
use crate::{
    format::{MAX_VALUE_DEPTH, error::TOO_DEEP},
    trace::{Attribution, Inputs, Node, Op, TensorRecord, Value},
};

/// Turns events into lines and remembers what has been said.
#[derive(Default)]
pub(super) struct Encoder {
    /// Whole lines that the caller has yet to write and clear.
    pub(super) lines: Vec<u8>,
    tensors: Tensors,
    /// The calls by number.
    calls: Vec<Call>,
    /// The operations by number.
    ops: Vec<Membership>,
    /// The operations' numbers by their place in program order.
    op_numbers: HashMap<u64, usize>,
}

/// What the record said of a call.
struct Call {
    parent: Option<u64>,
    inferred: bool,
}

/// What the record said of where an operation belongs.
struct Membership {
    call: Option<u64>,
    /// Whether it was told after the operation's line.
    late: bool,
}

#[derive(Serialize)]
struct Line<T> {
    kind: &'static str,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    schema: String,
    #[serde(flatten)]
    header: &'a Header,
}

impl Encoder {
    pub(super) fn header(&mut self, header: &Header) {
        let schema = format!("{SCHEMA_MAJOR}.{SCHEMA_MINOR}");
        push(&mut self.lines, "header", HeaderLine { schema, header });
    }

    /// Returns the call's number.
    pub(super) fn enter(&mut self, parent: Option<u64>, node: &Node) -> u64 {
        let inputs = node.inputs.as_ref();
        for value in inputs.iter().flat_map(|inputs| inputs.values()) {
            self.tensors.add_all(value, 1, &mut self.lines);
        }
        let number = self.calls.len() as u64;
        let inferred = node.attribution == Attribution::Inferred;
        self.calls.push(Call { parent, inferred });
        let line = EnterLine {
            node: number,
            parent,
            path: Cow::Borrowed(&node.path),
            module_type: node.kind.as_deref().map(Cow::Borrowed),
            method: node.method.as_deref().map(Cow::Borrowed),
            step: node.step,
            call: node.call,
            order: (node.order != number).then_some(node.order),
            inferred,
            start_ns: node.time.map(|time| time.start_ns),
            inputs: inputs.map(|inputs| InputsLine(inputs, &self.tensors)),
        };
        push(&mut self.lines, "enter", line);
        number
    }

    pub(super) fn exit(&mut self, number: u64, node: &Node) {
        let outputs = node.outputs.as_ref();
        if let Some(value) = outputs {
            self.tensors.add_all(value, 0, &mut self.lines);
        }
        let line = ExitLine {
            node: number,
            elapsed_ns: node.time.and_then(|time| time.elapsed_ns),
            outputs: outputs.map(|value| ValueLine(value, &self.tensors, 0)),
            pruned: Cow::Borrowed(&node.pruned),
            complete: node.complete,
        };
        push(&mut self.lines, "exit", line);
    }

    /// Whether [`Encoder::enter`] gave out this number.
    pub(super) fn knows(&self, number: u64) -> bool {
        number < self.calls.len() as u64
    }

    /// The call must be one that [`Encoder::enter`] gave out.
    pub(super) fn op(&mut self, call: Option<u64>, op: &Op) {
        let outputs = op.outputs.iter().map(|output| OutputLine {
            label: Cow::Borrowed(&output.label),
            tensor: self.tensors.add(&output.tensor, &mut self.lines),
            alias_of: output.alias_of,
        });
        let outputs = outputs.collect();
        let inputs = op.inputs.iter().map(|operand| OperandLine {
            label: Cow::Borrowed(&operand.label),
            id: operand.id,
            shape: Cow::Borrowed(&operand.shape),
            dtype: Cow::Owned(operand.dtype.to_string()),
            parameter: operand.parameter.as_deref().map(Cow::Borrowed),
        });
        let number = self.ops.len();
        let line = OpLine {
            op: number as u64,
            node: call,
            name: Cow::Borrowed(&op.name),
            order: (op.order != number as u64).then_some(op.order),
            inputs: inputs.collect(),
            outputs,
            scalars: ScalarsLine(&op.scalars),
            stream: op.stream,
            device: Cow::Borrowed(&op.device),
            backward: op.backward,
            inferred: op.attribution == Attribution::Inferred,
        };
        push(&mut self.lines, "op", line);
        self.ops.push(Membership { call, late: false });
        self.op_numbers.insert(op.order, number);
    }

    /// Late numbers and elements of a tensor.
    pub(super) fn summary(&mut self, tensor: &Arc<TensorRecord>, resolved: &TensorRecord) {
        self.tensors.resolve(tensor, resolved, &mut self.lines);
    }

    /// Says that the operations with these places in program order belong to the call, which must be
    /// one that [`Encoder::enter`] gave out. Fails, with the first place that has no operation or one
    /// that belongs elsewhere, and says nothing then.
    pub(super) fn ops(&mut self, call: u64, orders: &[u64]) -> Result<(), u64> {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        for (place, order) in orders.iter().enumerate() {
            let number = self.op_numbers.get(order).copied();
            let Some(number) = number.filter(|&number| self.may_belong(number, call)) else {
                for order in &orders[..place] {
                    self.ops[self.op_numbers[order]].late = false;
                }
                return Err(*order);
            };
            self.ops[number].late = true;
            let number = number as u64;
            match ranges.last_mut() {
                Some([first, count]) if *first + *count == number => *count += 1,
                _ => ranges.push([number, 1]),
            }
        }
        for order in orders {
            self.ops[self.op_numbers[order]].call = Some(call);
        }
        if !ranges.is_empty() {
            let line = OpsLine {
                node: call,
                inferred: self.calls[call as usize].inferred,
                ops: ranges,
            };
            push(&mut self.lines, "ops", line);
        }
        Ok(())
    }

    /// Whether an operation can be told now to belong to the call: that was not told before, and the
    /// call lies in the one that its line named.
    fn may_belong(&self, op: usize, call: u64) -> bool {
        let Membership { call: known, late } = self.ops[op];
        let mut around = Some(call);
        while known.is_some() && around != known {
            match around {
                Some(inner) => around = self.calls[inner as usize].parent,
                None => return false,
            }
        }
        !late
    }

    pub(super) fn note(&mut self, text: &str) {
        let text = Cow::Borrowed(text);
        push(&mut self.lines, "note", NoteLine { text });
    }

    pub(super) fn finish(&mut self, complete: bool) {
        push(&mut self.lines, "finish", FinishLine { complete });
    }
}

pub(super) fn push(lines: &mut Vec<u8>, kind: &'static str, body: impl Serialize) {
    // Writing to memory does not fail, keys are strings, and no value's `Serialize` returns an error.
    serde_json::to_writer(&mut *lines, &Line { kind, body })
        .expect("a line's values have a JSON form");
    lines.push(b'\n');
}

/// An operation's scalars as an object.
struct ScalarsLine<'a>(&'a [(String, String)]);

impl Serialize for ScalarsLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

struct InputsLine<'a>(&'a Inputs, &'a Tensors);

impl Serialize for InputsLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let InputsLine(inputs, tensors) = *self;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("args", &ListLine(&inputs.args, tensors, 1))?;
        map.serialize_entry("kwargs", &MapLine(&inputs.kwargs, tensors, 1))?;
        map.end()
    }
}

/// A value and how deep it lies: a string, a list, `{"tensor": n}` of a tensor line, or
/// `{"map": {...}}`.
struct ValueLine<'a>(&'a Value, &'a Tensors, usize);

impl Serialize for ValueLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ValueLine(value, tensors, depth) = *self;
        match value {
            Value::Text(text) => serializer.serialize_str(text),
            Value::Tensor(tensor) => serializer.collect_map([("tensor", tensors.number(tensor))]),
            Value::List(_) | Value::Map(_) if depth >= MAX_VALUE_DEPTH => {
                serializer.serialize_str(TOO_DEEP)
            }
            Value::List(items) => ListLine(items, tensors, depth + 1).serialize(serializer),
            Value::Map(entries) => {
                serializer.collect_map([("map", MapLine(entries, tensors, depth + 1))])
            }
        }
    }
}

/// Values that each lie this deep.
struct ListLine<'a>(&'a [Value], &'a Tensors, usize);

impl Serialize for ListLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ListLine(items, tensors, depth) = *self;
        serializer.collect_seq(items.iter().map(|item| ValueLine(item, tensors, depth)))
    }
}

/// Entries whose values each lie this deep.
struct MapLine<'a>(&'a [(String, Value)], &'a Tensors, usize);

impl Serialize for MapLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MapLine(entries, tensors, depth) = *self;
        let entries = entries.iter();
        serializer.collect_map(entries.map(|(key, item)| (key, ValueLine(item, tensors, depth))))
    }
}
