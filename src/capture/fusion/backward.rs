//! Which operations belong to a backward pass that nobody announced.

use std::collections::{HashMap, HashSet};

use super::log::Logged;
use crate::trace::Op;

/// Marks backward passes of single-element losses: Burn begins one with a tensor of ones of the loss's
/// shape, and all that follows up to the last operation that depends on it, on the same thread, is part of it.
///
/// Returns the first and last number of each pass. What depends on gradients afterwards within the same
/// run, as an optimiser's step does, cannot be told apart from it.
pub(super) fn mark(ops: &mut [Logged]) -> Vec<(u64, u64)> {
    let mut threads: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (index, logged) in ops.iter().enumerate() {
        let thread = (logged.place.run, logged.op.stream);
        threads.entry(thread).or_default().push(index);
    }
    let mut passes = Vec::new();
    for thread in threads.values() {
        let mut at = 0;
        while at < thread.len() {
            let last = if is_seed(ops, thread, at) {
                last_dependent(ops, &thread[at..])
            } else {
                None
            };
            let Some(last) = last else {
                at += 1;
                continue;
            };
            let pass = &thread[at..=at + last];
            let call = ops[pass[0]].place.call;
            for index in pass {
                ops[*index].op.backward = ops[*index].place.call == call;
            }
            passes.push((ops[pass[0]].op.order, ops[pass[last]].op.order));
            at += last + 1;
        }
    }
    passes.sort_unstable();
    passes
}

/// Whether that operation makes the one of a single-element loss, which is what the operation before it
/// resulted in. Ones of other shapes are too common in forward passes.
fn is_seed(ops: &[Logged], thread: &[usize], at: usize) -> bool {
    let op = &ops[thread[at]].op;
    if op.backward || !op.inputs.is_empty() || op.name != "Ones" {
        return false;
    }
    let Some(loss) = at.checked_sub(1).map(|before| &ops[thread[before]].op) else {
        return false;
    };
    let shape = |op: &Op| op.outputs.first().map(|out| out.tensor.shape.clone());
    let single = |shape: &Vec<usize>| shape.iter().product::<usize>() == 1;
    !loss.backward && shape(op).is_some_and(|of| single(&of) && shape(loss) == Some(of))
}

/// The place of the last operation that depends on the first one.
fn last_dependent(ops: &[Logged], thread: &[usize]) -> Option<usize> {
    let mut dependent: HashSet<u64> = HashSet::new();
    let mut last = None;
    for (place, index) in thread.iter().enumerate() {
        let logged = &ops[*index];
        // A call that began since is a forward pass, and so is what leads to another loss.
        if logged.place.call != ops[thread[0]].place.call {
            continue;
        }
        if place > 0 && is_seed(ops, thread, place) {
            break;
        }
        let op = &logged.op;
        let depends = op
            .inputs
            .iter()
            .any(|operand| dependent.contains(&operand.id));
        if place == 0 || depends {
            dependent.extend(op.outputs.iter().filter_map(|output| output.tensor.id));
        }
        if depends {
            last = Some(place);
        }
    }
    last
}
