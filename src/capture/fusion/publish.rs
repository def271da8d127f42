//! Operations published while the run goes on, each once its numbers are there.

use std::sync::{Mutex, PoisonError};

use super::{
    log::{DeviceLog, Logged, Place, State},
    reader::{Numbers, Readings},
};
use crate::{capture::tensor, trace::Op};

/// Given operations in their order, on the thread that reads results.
pub(super) type Publish = Box<dyn Fn(Vec<(Op, Place)>) + Send + Sync>;

impl DeviceLog {
    /// Has operations published as they are known; the others are in the trace at the end alone.
    pub(crate) fn publish_operations(
        &self,
        publish: impl Fn(Vec<(Op, Place)>) + Send + Sync + 'static,
    ) {
        let _ = self.publishing.set(Box::new(publish));
    }

    /// Publishes the operations whose numbers have come.
    pub(super) fn publish(&self, readings: &Mutex<Readings>) {
        let Some(publish) = self.publishing.get() else {
            return;
        };
        // Where a backward pass begins and ends is known only when all is there.
        if self.may_go_backward() {
            return;
        }
        let mut whole = Vec::new();
        {
            let mut state = self.state();
            let readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(logged) = state.trace.ops.get(state.published)
                && let Some(op) = state.whole(logged, &readings)
            {
                whole.push((op, logged.place));
                state.published += 1;
            }
        }
        if !whole.is_empty() {
            // No lock of the log is held: the session's record is asked.
            publish(whole);
        }
    }
}

impl State {
    /// An operation with the numbers of its results; `None` where some may still come.
    fn whole(&self, logged: &Logged, readings: &Readings) -> Option<Op> {
        let mut op = logged.op.clone();
        let one = |id: u64| self.trace.same.get(&id).copied().unwrap_or(id);
        for operand in &mut op.inputs {
            operand.id = one(operand.id);
        }
        for (output, same_numbers) in op.outputs.iter_mut().zip(&logged.same_numbers) {
            output.alias_of = output.alias_of.map(one);
            let Some(id) = output.tensor.id.map(one) else {
                continue;
            };
            let mut record = (*output.tensor).clone();
            record.id = Some(id);
            let mut numbers = self.numbers(id, readings)?;
            if let (None, true, Some(source)) = (&numbers, *same_numbers, output.alias_of) {
                let source = self.numbers(source, readings)?;
                numbers = source.map(Numbers::in_another_shape);
            }
            tensor::complete(&mut record, numbers.as_ref(), self.trace.files.get(&id));
            output.tensor = record.into();
        }
        Some(op)
    }

    /// A tensor's numbers: `None` where they may still come, `Some(None)` where there will be none.
    fn numbers(&self, id: u64, readings: &Readings) -> Option<Option<Numbers>> {
        let numbers = readings.get(&id).or_else(|| self.trace.numbers.get(&id));
        match numbers {
            Some(numbers) => Some(Some(numbers.clone())),
            None if self.begun.contains(&id) => None,
            None => Some(None),
        }
    }
}
