//! Whether the operations that end in a given one are those of a pattern, by data flow alone: program
//! order and what lies in between do not matter.

use super::{
    flow::Flow,
    template::{Alike, Pattern, Source, Step},
};

/// The most ways to read one pattern that are followed; optional steps double them.
const MAX_WAYS: usize = 64;

/// A pattern that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Its operations, in program order.
    pub(super) ops: Vec<usize>,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<u64>,
}

/// What a pattern's names stand for, so far.
#[derive(Clone, Default)]
struct Bound {
    steps: Vec<Option<u64>>,
    inputs: Vec<Option<u64>>,
    parameters: Vec<Option<usize>>,
    ops: Vec<usize>,
}

/// Looks for patterns among the operations that are nobody's yet.
pub(super) struct Matcher<'m, 'o> {
    pub(super) flow: &'m Flow<'o>,
    /// Whether an operation belongs to a module already.
    pub(super) taken: &'m [bool],
    /// Whether a parameter is the module's.
    pub(super) owns: &'m dyn Fn(usize) -> bool,
}

impl Matcher<'_, '_> {
    /// The largest match whose (first) result is made by operation `last`.
    pub(super) fn ending_at(&self, pattern: &Pattern, last: usize) -> Option<Match> {
        if !pattern.may_end_with(&self.flow.ops[last].name) || !self.is_free(last) {
            return None;
        }
        let result = self.flow.outputs(last).next()?;
        let start = Bound {
            steps: vec![None; pattern.steps.len()],
            inputs: vec![None; pattern.inputs],
            parameters: vec![None; pattern.parameters],
            ops: Vec::new(),
        };
        let (first, others) = pattern.results.split_first()?;
        let after = self.flow.ops.len();
        let mut ways = self.bind(pattern, Source::Step(*first), result, after, &start);
        ways.retain(|way| way.ops.contains(&last));
        for other in others {
            let near = last.saturating_sub(4)..(last + 8).min(self.flow.ops.len());
            let results: Vec<u64> = near
                .filter(|op| self.is_free(*op))
                .flat_map(|op| self.flow.outputs(op))
                .collect();
            ways = ways
                .iter()
                .flat_map(|way| {
                    results.iter().flat_map(|id| {
                        let before = way.ops.len();
                        let mut more = self.bind(pattern, Source::Step(*other), *id, after, way);
                        more.retain(|more| more.ops.len() > before);
                        more
                    })
                })
                .take(MAX_WAYS)
                .collect();
        }
        let found = ways.into_iter().filter_map(|way| self.finish(pattern, way));
        // Of equal ones the closest together.
        found.max_by_key(|found| (found.ops.len(), found.ops.first().copied()))
    }

    fn is_free(&self, op: usize) -> bool {
        !self.taken[op] && self.flow.counts(op)
    }

    /// The ways in which the tensor `id`, read by operation `reader`, can be `source`.
    fn bind(
        &self,
        pattern: &Pattern,
        source: Source,
        id: u64,
        reader: usize,
        bound: &Bound,
    ) -> Vec<Bound> {
        let parameter = self.flow.parameter(id);
        match source {
            Source::Buffer => match parameter.is_none() && self.flow.producer(id).is_none() {
                true => vec![bound.clone()],
                false => Vec::new(),
            },
            Source::Input(_) if parameter.is_some() => Vec::new(),
            Source::Input(input) => match bound.inputs[input] {
                Some(known) if known == id => vec![bound.clone()],
                Some(_) => Vec::new(),
                None => {
                    let mut bound = bound.clone();
                    bound.inputs[input] = Some(id);
                    vec![bound]
                }
            },
            Source::Parameter(name) => {
                let Some(parameter) = parameter.filter(|parameter| (self.owns)(*parameter)) else {
                    return Vec::new();
                };
                match bound.parameters[name] {
                    Some(known) if known == parameter => vec![bound.clone()],
                    None if !bound.parameters.contains(&Some(parameter)) => {
                        let mut bound = bound.clone();
                        bound.parameters[name] = Some(parameter);
                        vec![bound]
                    }
                    _ => Vec::new(),
                }
            }
            Source::Step(index) => match bound.steps[index] {
                Some(known) if known == id => vec![bound.clone()],
                Some(_) => Vec::new(),
                None => self.bind_step(pattern, index, id, reader, bound),
            },
        }
    }

    fn bind_step(
        &self,
        pattern: &Pattern,
        index: usize,
        id: u64,
        reader: usize,
        bound: &Bound,
    ) -> Vec<Bound> {
        let step = &pattern.steps[index];
        let mut with = bound.clone();
        with.steps[index] = Some(id);
        let mut ways = Vec::new();
        let producer = self.flow.producer_before(id, reader);
        if let Some(op) = producer
            && self.is_free(op)
            && step.names.contains(&self.flow.ops[op].name)
        {
            with.ops.push(op);
            ways = self.bind_operands(pattern, step, op, &with);
            with.ops.pop();
        }
        if let (true, Some(through)) = (step.optional, step.through()) {
            ways.extend(self.bind(pattern, through, id, reader, &with));
        }
        ways.truncate(MAX_WAYS);
        ways
    }

    fn bind_operands(
        &self,
        pattern: &Pattern,
        step: &Step,
        op: usize,
        bound: &Bound,
    ) -> Vec<Bound> {
        let operands: Vec<u64> = self.flow.ops[op].inputs.iter().map(|o| o.id).collect();
        let mut ways = self.bind_in_order(pattern, step, op, &operands, bound);
        if let ("Add" | "Mul", [lhs, rhs]) = (self.flow.ops[op].name.as_str(), operands.as_slice())
            && lhs != rhs
        {
            ways.extend(self.bind_in_order(pattern, step, op, &[*rhs, *lhs], bound));
        }
        ways
    }

    fn bind_in_order(
        &self,
        pattern: &Pattern,
        step: &Step,
        op: usize,
        operands: &[u64],
        bound: &Bound,
    ) -> Vec<Bound> {
        // Each way with the number of operands that it has placed.
        let mut ways = vec![(bound.clone(), 0)];
        for argument in &step.arguments {
            let mut next = Vec::new();
            for (way, placed) in ways {
                if let Some(id) = operands.get(placed) {
                    let bound = self.bind(pattern, argument.source, *id, op, &way);
                    next.extend(bound.into_iter().map(|way| (way, placed + 1)));
                }
                if argument.optional {
                    next.push((way, placed));
                }
            }
            next.truncate(MAX_WAYS);
            ways = next;
        }
        let complete = ways
            .into_iter()
            .filter(|(_, placed)| *placed == operands.len());
        complete.map(|(way, _)| way).collect()
    }

    fn finish(&self, pattern: &Pattern, way: Bound) -> Option<Match> {
        let inputs: Vec<u64> = way.inputs.into_iter().flatten().collect();
        let outputs: Vec<u64> = pattern
            .results
            .iter()
            .take(pattern.returned)
            .filter_map(|step| way.steps[*step])
            .collect();
        let input = self.flow.record(*inputs.first()?)?;
        let output = self.flow.record(*outputs.first()?)?;
        let is_alike = match pattern.alike {
            Alike::Tensor => input.shape == output.shape && input.dtype == output.dtype,
            Alike::Rows => {
                let rows = |shape: &[usize]| shape.split_last().map(|(_, rows)| rows.to_vec());
                rows(&input.shape) == rows(&output.shape)
            }
            Alike::Rank => input.shape.len() == output.shape.len(),
            Alike::No => true,
        };
        let mut ops = way.ops;
        ops.sort_unstable();
        ops.dedup();
        is_alike.then_some(Match {
            ops,
            inputs,
            outputs,
        })
    }
}
