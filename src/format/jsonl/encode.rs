//! A run's events as the lines of a record, in memory.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{
    Header, SCHEMA_MAJOR, SCHEMA_MINOR,
    line::{EnterLine, ExitLine, FinishLine, NoteLine, PrintedLine, TensorLine},
};
use crate::{
    format::{MAX_VALUE_DEPTH, error::TOO_DEEP},
    trace::{Attribution, Inputs, Node, TensorRecord, TensorValue, Value},
};

/// Turns events into lines and remembers which tensors have theirs.
#[derive(Default)]
pub(super) struct Encoder {
    /// Whole lines that the caller has yet to write and clear.
    pub(super) lines: Vec<u8>,
    tensors: Tensors,
    calls: u64,
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
        for value in inputs.iter().flat_map(|inputs| {
            let kwargs = inputs.kwargs.iter().map(|(_, value)| value);
            inputs.args.iter().chain(kwargs)
        }) {
            self.tensors.write(value, 1, &mut self.lines);
        }
        let number = self.calls;
        self.calls += 1;
        let line = EnterLine {
            node: number,
            parent,
            path: Cow::Borrowed(&node.path),
            module_type: node.kind.as_deref().map(Cow::Borrowed),
            method: node.method.as_deref().map(Cow::Borrowed),
            step: node.step,
            call: node.call,
            order: (node.order != number).then_some(node.order),
            inferred: node.attribution == Attribution::Inferred,
            start_ns: node.time.map(|time| time.start_ns),
            inputs: inputs.map(|inputs| InputsLine(inputs, &self.tensors)),
        };
        push(&mut self.lines, "enter", line);
        number
    }

    pub(super) fn exit(&mut self, number: u64, node: &Node) {
        let outputs = node.outputs.as_ref();
        if let Some(value) = outputs {
            self.tensors.write(value, 0, &mut self.lines);
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
        number < self.calls
    }

    pub(super) fn note(&mut self, text: &str) {
        let text = Cow::Borrowed(text);
        push(&mut self.lines, "note", NoteLine { text });
    }

    pub(super) fn finish(&mut self, complete: bool) {
        push(&mut self.lines, "finish", FinishLine { complete });
    }
}

fn push(lines: &mut Vec<u8>, kind: &'static str, body: impl Serialize) {
    // Writing to memory does not fail, keys are strings, and no value's `Serialize` returns an error.
    serde_json::to_writer(&mut *lines, &Line { kind, body })
        .expect("a line's values have a JSON form");
    lines.push(b'\n');
}

/// The tensors that have a line.
#[derive(Default)]
struct Tensors {
    /// By the record's address; the records are kept so that no address is used again.
    by_address: HashMap<usize, (u64, Arc<TensorRecord>)>,
    /// By the session's tensor number: the same tensor may come in several records, which differ
    /// where each has a file of its own.
    by_id: HashMap<u64, Vec<usize>>,
    count: u64,
}

impl Tensors {
    fn number(&self, tensor: &Arc<TensorRecord>) -> Option<u64> {
        Some(self.by_address.get(&address(tensor))?.0)
    }

    /// Writes a line for each tensor in the value that has none; the value lies this deep.
    fn write(&mut self, value: &Value, depth: usize, lines: &mut Vec<u8>) {
        match value {
            Value::Text(_) => {}
            Value::List(_) | Value::Map(_) if depth >= MAX_VALUE_DEPTH => {}
            Value::List(items) => items
                .iter()
                .for_each(|item| self.write(item, depth + 1, lines)),
            Value::Map(entries) => entries
                .iter()
                .for_each(|(_, item)| self.write(item, depth + 1, lines)),
            Value::Tensor(tensor) => {
                if self.number(tensor).is_none() {
                    let number = self.known_copy(tensor).unwrap_or_else(|| {
                        let number = self.count;
                        self.count += 1;
                        push(lines, "tensor", tensor_line(number, tensor));
                        number
                    });
                    let place = address(tensor);
                    self.by_address.insert(place, (number, Arc::clone(tensor)));
                    if let Some(id) = tensor.id {
                        self.by_id.entry(id).or_default().push(place);
                    }
                }
            }
        }
    }

    /// The line of an equal record at another address. A NaN makes records unequal, which costs a
    /// line and nothing else.
    fn known_copy(&self, tensor: &Arc<TensorRecord>) -> Option<u64> {
        self.by_id
            .get(&tensor.id?)?
            .iter()
            .filter_map(|place| self.by_address.get(place))
            .find_map(|(number, known)| (known == tensor).then_some(*number))
    }
}

fn address(tensor: &Arc<TensorRecord>) -> usize {
    Arc::as_ptr(tensor) as usize
}

fn tensor_line(number: u64, tensor: &TensorRecord) -> TensorLine<'_> {
    let (lines, file) = match &tensor.value {
        Some(TensorValue::Lines(lines)) => (Some(Cow::Borrowed(lines.as_slice())), None),
        Some(TensorValue::File(name)) => (None, Some(Cow::Borrowed(name.as_str()))),
        None => (None, None),
    };
    TensorLine {
        tensor: number,
        id: tensor.id,
        dtype: Cow::Owned(tensor.dtype.to_string()),
        shape: Cow::Borrowed(&tensor.shape),
        device: tensor.device.as_deref().map(Cow::Borrowed),
        summary: tensor.summary.as_ref().map(Into::into),
        not_summarised: tensor.not_summarised.as_deref().map(Cow::Borrowed),
        printed: tensor.printed.as_ref().map(|printed| PrintedLine {
            mean: Cow::Borrowed(&printed.mean),
            std: Cow::Borrowed(&printed.std),
            min: Cow::Borrowed(&printed.min),
            max: Cow::Borrowed(&printed.max),
        }),
        lines,
        file,
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
