//! The tensor lines of a record that is being written: which tensors have one, and what it says by now.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use super::{
    encode::push,
    line::{LateLine, TensorLine},
};
use crate::{
    format::MAX_VALUE_DEPTH,
    trace::{TensorRecord, TensorValue, Value},
};

/// The tensors that have a line.
#[derive(Default)]
pub(super) struct Tensors {
    /// In the order of their numbers.
    lines: Vec<Written>,
    /// The line of each record, by the record's address; the records are kept so that no address is
    /// used again.
    by_address: HashMap<usize, (u64, Arc<TensorRecord>)>,
    /// By the session's tensor number.
    by_id: HashMap<u64, SameTensor>,
}

/// A tensor line.
struct Written {
    at_first: Arc<TensorRecord>,
    /// With what came late.
    by_now: Arc<TensorRecord>,
}

/// What the record has of one tensor.
#[derive(Default)]
struct SameTensor {
    /// Its lines, which differ where each has a file of its own.
    lines: Vec<u64>,
    /// The numbers that came late, for the lines that are yet to come.
    late: Option<TensorRecord>,
}

impl Tensors {
    /// The number of the record's line, if it has one.
    pub(super) fn number(&self, tensor: &Arc<TensorRecord>) -> Option<u64> {
        Some(self.by_address.get(&address(tensor))?.0)
    }

    /// Adds a line for each tensor in the value that has none; the value lies this deep.
    pub(super) fn add_all(&mut self, value: &Value, depth: usize, out: &mut Vec<u8>) {
        match value {
            Value::Text(_) => {}
            Value::List(_) | Value::Map(_) if depth >= MAX_VALUE_DEPTH => {}
            Value::List(items) => items
                .iter()
                .for_each(|item| self.add_all(item, depth + 1, out)),
            Value::Map(entries) => entries
                .iter()
                .for_each(|(_, item)| self.add_all(item, depth + 1, out)),
            Value::Tensor(tensor) => {
                self.add(tensor, out);
            }
        }
    }

    /// Adds a line for the tensor if it has none, and returns its number.
    pub(super) fn add(&mut self, tensor: &Arc<TensorRecord>, out: &mut Vec<u8>) -> u64 {
        if let Some(number) = self.number(tensor) {
            return number;
        }
        let number = self.known_copy(tensor).unwrap_or_else(|| {
            let number = self.lines.len() as u64;
            let said = self.with_late_numbers(tensor);
            push(out, "tensor", tensor_line(number, &said));
            if let Some(id) = tensor.id {
                self.by_id.entry(id).or_default().lines.push(number);
            }
            self.lines.push(Written {
                at_first: Arc::clone(tensor),
                by_now: said,
            });
            number
        });
        self.by_address
            .insert(address(tensor), (number, Arc::clone(tensor)));
        number
    }

    /// The line of an equal record at another address. A NaN makes records unequal, which costs a
    /// line and nothing else.
    fn known_copy(&self, tensor: &Arc<TensorRecord>) -> Option<u64> {
        let lines = &self.by_id.get(&tensor.id?)?.lines;
        lines.iter().copied().find(|&number| {
            let line = &self.lines[number as usize];
            line.at_first == *tensor || line.by_now == *tensor
        })
    }

    fn with_late_numbers(&self, tensor: &Arc<TensorRecord>) -> Arc<TensorRecord> {
        let same = tensor.id.and_then(|id| self.by_id.get(&id));
        match same.and_then(|same| same.late.as_ref()) {
            Some(late) => {
                let mut said = (**tensor).clone();
                Change::of(tensor, late, false).apply(&mut said, late);
                Arc::new(said)
            }
            None => Arc::clone(tensor),
        }
    }

    /// Says in the tensor's line, or else the first one with its id, what `resolved` knows of it, and
    /// gives its numbers to those other lines of the same tensor, before and after, that have none.
    pub(super) fn resolve(
        &mut self,
        tensor: &Arc<TensorRecord>,
        resolved: &TensorRecord,
        out: &mut Vec<u8>,
    ) {
        let mut own = self.number(tensor);
        let mut numbers = Vec::new();
        if let Some(id) = tensor.id {
            let same = self.by_id.entry(id).or_default();
            own = own.or(same.lines.first().copied());
            numbers.clone_from(&same.lines);
            let late = same.late.get_or_insert_with(|| blank(resolved));
            Change {
                value: false,
                ..Change::of(late, resolved, true)
            }
            .apply(late, resolved);
        }
        if numbers.is_empty() {
            numbers.extend(own);
        }
        for number in numbers {
            let line = &mut self.lines[number as usize];
            let change = Change::of(&line.by_now, resolved, Some(number) == own);
            if change == Change::default() {
                continue;
            }
            push(out, "summary", late_line(number, resolved, change));
            let mut by_now = (*line.by_now).clone();
            change.apply(&mut by_now, resolved);
            line.by_now = Arc::new(by_now);
        }
    }
}

/// Which of a line's fields a late record replaces.
#[derive(Clone, Copy, Default, PartialEq)]
struct Change {
    summary: bool,
    printed: bool,
    value: bool,
}

impl Change {
    /// What `resolved` adds to its own line, or to another line of the same tensor.
    fn of(line: &TensorRecord, resolved: &TensorRecord, own: bool) -> Self {
        let known = resolved.summary.is_some() || resolved.not_summarised.is_some();
        let bare = line.summary.is_none() && line.not_summarised.is_none();
        let same =
            line.summary == resolved.summary && line.not_summarised == resolved.not_summarised;
        Self {
            summary: known && (bare || own && !same),
            printed: resolved.printed.is_some()
                && (line.printed.is_none() || own && line.printed != resolved.printed),
            value: own && resolved.value.is_some() && line.value != resolved.value,
        }
    }

    fn apply(self, line: &mut TensorRecord, resolved: &TensorRecord) {
        if self.summary {
            line.summary.clone_from(&resolved.summary);
            line.not_summarised.clone_from(&resolved.not_summarised);
        }
        if self.printed {
            line.printed.clone_from(&resolved.printed);
        }
        if self.value {
            line.value.clone_from(&resolved.value);
        }
    }
}

/// A record of the same tensor that says nothing of its numbers and elements.
fn blank(tensor: &TensorRecord) -> TensorRecord {
    TensorRecord {
        shape: tensor.shape.clone(),
        dtype: tensor.dtype.clone(),
        device: None,
        id: tensor.id,
        summary: None,
        not_summarised: None,
        printed: None,
        value: None,
    }
}

fn address(tensor: &Arc<TensorRecord>) -> usize {
    Arc::as_ptr(tensor) as usize
}

fn tensor_line(number: u64, tensor: &TensorRecord) -> TensorLine<'_> {
    let (lines, file) = elements(tensor.value.as_ref());
    TensorLine {
        tensor: number,
        id: tensor.id,
        dtype: Cow::Owned(tensor.dtype.to_string()),
        shape: Cow::Borrowed(&tensor.shape),
        device: tensor.device.as_deref().map(Cow::Borrowed),
        summary: tensor.summary.as_ref().map(Into::into),
        not_summarised: tensor.not_summarised.as_deref().map(Cow::Borrowed),
        printed: tensor.printed.as_ref().map(Into::into),
        lines,
        file,
    }
}

fn late_line(number: u64, tensor: &TensorRecord, change: Change) -> LateLine<'_> {
    let only = |wanted: bool| wanted.then_some(tensor);
    let summary = only(change.summary);
    let (lines, file) = elements(only(change.value).and_then(|tensor| tensor.value.as_ref()));
    LateLine {
        tensor: number,
        summary: summary.and_then(|tensor| Some(tensor.summary.as_ref()?.into())),
        not_summarised: summary
            .and_then(|tensor| tensor.not_summarised.as_deref().map(Cow::Borrowed)),
        printed: only(change.printed).and_then(|tensor| Some(tensor.printed.as_ref()?.into())),
        lines,
        file,
    }
}

/// The two keys of a line that say where a tensor's elements are.
fn elements(value: Option<&TensorValue>) -> (Option<Cow<'_, [String]>>, Option<Cow<'_, str>>) {
    match value {
        Some(TensorValue::Lines(lines)) => (Some(Cow::Borrowed(lines)), None),
        Some(TensorValue::File(name)) => (None, Some(Cow::Borrowed(name))),
        None => (None, None),
    }
}
