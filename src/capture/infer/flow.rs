//! Who makes and who reads each tensor of a stretch of operations, and which tensors are parameters in
//! another form.

use std::{collections::HashMap, sync::Arc};

use super::tree::ModuleTree;
use crate::trace::{Op, TensorRecord};

/// Operations that give a parameter another shape, order or element type; it stays the parameter.
const FORMS: &[&str] = &[
    "Cast",
    "Dequantize",
    "Expand",
    "Flip",
    "IntoFloat",
    "Permute",
    "Reshape",
    "Slice",
    "SwapDims",
];

/// The data flow of the forward operations of one thread.
pub(super) struct Flow<'o> {
    pub(super) ops: &'o [Op],
    producers: HashMap<u64, usize>,
    consumers: HashMap<u64, Vec<usize>>,
    parameters: HashMap<u64, usize>,
}

impl<'o> Flow<'o> {
    /// `ops` are in program order.
    pub(super) fn new(tree: &ModuleTree, ops: &'o [Op]) -> Self {
        let mut flow = Self {
            ops,
            producers: HashMap::new(),
            consumers: HashMap::new(),
            parameters: HashMap::new(),
        };
        for (index, op) in ops.iter().enumerate().filter(|(_, op)| counts(op)) {
            for operand in &op.inputs {
                let readers = flow.consumers.entry(operand.id).or_default();
                if readers.last() != Some(&index) {
                    readers.push(index);
                }
                let path = operand.parameter.as_deref();
                if let Some(parameter) = path.and_then(|path| tree.parameter(path)) {
                    flow.parameters.insert(operand.id, parameter);
                }
            }
            let mut read = op.inputs.iter().map(|operand| flow.parameter(operand.id));
            let form = match (FORMS.contains(&op.name.as_str()), read.next()) {
                (true, Some(first)) => read.all(|other| other == first).then_some(first).flatten(),
                _ => None,
            };
            for output in &op.outputs {
                let Some(id) = output.tensor.id else { continue };
                flow.producers.entry(id).or_insert(index);
                if let Some(parameter) = form {
                    flow.parameters.insert(id, parameter);
                }
            }
        }
        flow
    }

    /// The operation before `reader` that made the tensor.
    pub(super) fn producer_before(&self, id: u64, reader: usize) -> Option<usize> {
        self.producers.get(&id).copied().filter(|op| *op < reader)
    }

    /// The operation that made the tensor.
    pub(super) fn producer(&self, id: u64) -> Option<usize> {
        self.producers.get(&id).copied()
    }

    /// The operations that read the tensor, in program order.
    pub(super) fn consumers(&self, id: u64) -> &[usize] {
        self.consumers.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The parameter that the tensor is or is a form of.
    pub(super) fn parameter(&self, id: u64) -> Option<usize> {
        self.parameters.get(&id).copied()
    }

    /// Whether the operation only gives a parameter another form.
    pub(super) fn is_form(&self, op: usize) -> bool {
        let mut outputs = self.outputs(op).peekable();
        outputs.peek().is_some() && outputs.all(|id| self.parameter(id).is_some())
    }

    /// Whether the operation is part of a forward pass and makes something.
    pub(super) fn counts(&self, op: usize) -> bool {
        counts(&self.ops[op])
    }

    /// The tensors that an operation reads, parameters left out.
    pub(super) fn activations(&self, op: usize) -> impl Iterator<Item = u64> {
        let ids = self.ops[op].inputs.iter().map(|operand| operand.id);
        ids.filter(|id| self.parameter(*id).is_none())
    }

    /// The tensors that an operation makes.
    pub(super) fn outputs(&self, op: usize) -> impl Iterator<Item = u64> {
        self.ops[op]
            .outputs
            .iter()
            .filter_map(|output| output.tensor.id)
    }

    /// Whether nothing that an operation makes is read: a second result, such as the places of the
    /// largest elements, often is not.
    pub(super) fn is_unread(&self, op: usize) -> bool {
        self.outputs(op).all(|id| self.consumers(id).is_empty())
    }

    /// What is known of a tensor.
    pub(super) fn record(&self, id: u64) -> Option<Arc<TensorRecord>> {
        if let Some(op) = self.producer(id) {
            let mut outputs = self.ops[op].outputs.iter();
            return outputs
                .find(|output| output.tensor.id == Some(id))
                .map(|output| Arc::clone(&output.tensor));
        }
        let reader = *self.consumers(id).first()?;
        let operand = self.ops[reader]
            .inputs
            .iter()
            .find(|operand| operand.id == id)?;
        Some(Arc::new(TensorRecord {
            shape: operand.shape.clone(),
            dtype: operand.dtype.clone(),
            device: Some(self.ops[reader].device.clone()),
            id: Some(id),
            summary: None,
            not_summarised: None,
            printed: None,
            value: None,
        }))
    }
}

/// A backward operation belongs to no call, and one without a result computes nothing.
fn counts(op: &Op) -> bool {
    !op.backward && !op.outputs.is_empty()
}
