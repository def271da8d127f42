//! What devices tell only at the end, put in its place: numbers of tensors, operations of calls.

use std::{collections::HashMap, sync::Arc};

use super::{
    fusion::{DeviceTrace, Logged, Numbers},
    record::{CallId, Record},
    session::Options,
    tensor,
};
use crate::trace::{Inputs, Op, TensorRecord, TensorValue, Value};

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
        if let Some(numbers) = self.numbers.get(&id)
            && completed.summary.is_none()
        {
            tensor::complete(&mut completed, numbers);
        }
        if completed.value.is_none()
            && let Some(file) = self.files.get(&id)
        {
            completed.value = Some(TensorValue::File(file.clone()));
        }
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
                    // The printed elements depend on the shape.
                    let numbers = Numbers {
                        edges: None,
                        ..numbers.clone()
                    };
                    self.numbers.insert(id, numbers);
                }
            }
        }
    }
}

impl Record {
    /// Completes every call with what its devices told; returns the operations of no call.
    pub(super) fn complete(&mut self, options: &Options, device: DeviceTrace) -> Vec<Op> {
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
        for index in 0..self.calls.len() {
            let call = CallId(index);
            let node = &mut self.call(call).node;
            if let Some(inputs) = &mut node.inputs {
                resolver.inputs(inputs);
            }
            if let Some(outputs) = &mut node.outputs {
                resolver.value(outputs);
            }
        }
        let mut outside = Vec::new();
        for logged in device.ops {
            let mut op = logged.op;
            resolver.op(&mut op);
            match logged.place.call {
                Some(call) if self.calls[call.0].selected => self.call(call).node.ops.push(op),
                // The filters want neither the module nor its operations.
                Some(_) => {}
                None => outside.push(op),
            }
        }
        let _ = options;
        outside
    }
}
