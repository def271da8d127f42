//! Calls of modules without parts: where parameters are read, and where the operations of a module
//! without parameters stand in the flow.

use std::collections::HashMap;

use super::{
    flow::Flow,
    matching::{Match, Matcher},
    template::{self, Pattern},
    tree::ModuleTree,
};

/// How far behind the operation that reads a parameter a module's result is looked for.
const MAX_STEPS: usize = 8;
/// How many operations before a parameter's use may belong to a module of unknown make.
const MAX_BEFORE: usize = 64;

/// One call of a module without parts.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) module: usize,
    /// Its operations in program order; never none.
    pub(super) ops: Vec<usize>,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<u64>,
    /// Whether a pattern said so, not the mere use of parameters.
    pub(super) by_pattern: bool,
}

impl Leaf {
    pub(super) fn first(&self) -> usize {
        self.ops[0]
    }
}

/// Finds the calls, in the order of their first operations.
pub(super) struct Leaves<'l, 'o> {
    tree: &'l ModuleTree,
    flow: &'l Flow<'o>,
    /// The module whose parts are looked for.
    within: Option<usize>,
    pub(super) taken: Vec<bool>,
    pub(super) found: Vec<Leaf>,
    calls: HashMap<usize, usize>,
}

impl<'l, 'o> Leaves<'l, 'o> {
    pub(super) fn find(tree: &'l ModuleTree, flow: &'l Flow<'o>, within: Option<usize>) -> Self {
        let mut leaves = Self {
            tree,
            flow,
            within,
            taken: vec![false; flow.ops.len()],
            found: Vec::new(),
            calls: HashMap::new(),
        };
        for op in 0..flow.ops.len() {
            if flow.counts(op) && !flow.is_form(op) {
                leaves.anchor(op);
            }
        }
        leaves.found.sort_by_key(Leaf::first);
        leaves.place_parameterless();
        leaves.found.sort_by_key(Leaf::first);
        leaves
    }

    /// Concludes the call whose parameter `op` reads, if it reads one.
    fn anchor(&mut self, op: usize) {
        if self.taken[op] {
            return;
        }
        let operands = self.flow.ops[op].inputs.iter().map(|operand| operand.id);
        let mut owners: Vec<usize> = operands
            .filter_map(|id| self.flow.parameter(id))
            .flat_map(|parameter| self.tree.owners(parameter))
            .copied()
            .filter(|owner| self.is_within(*owner) && self.tree.is_leaf(*owner))
            .collect();
        // Of several modules that share a parameter, the one whose turn it is.
        owners.sort_by_key(|owner| (self.calls.get(owner).copied().unwrap_or(0), *owner));
        owners.dedup();
        let by_type = owners
            .iter()
            .find_map(|owner| Some((*owner, self.by_pattern(*owner, op, Patterns::OfType)?)));
        let name = &self.flow.ops[op].name;
        let found = by_type.or_else(|| {
            owners
                .iter()
                .filter(|owner| self.may_call(**owner, name))
                .find_map(|owner| {
                    let found = self.by_pattern(*owner, op, Patterns::All);
                    Some((*owner, found?))
                })
        });
        match found {
            Some((module, found)) => self.add(module, found, true),
            // What is done to a parameter itself, as by an optimiser, is no call of its module.
            None if self.is_update(op) => {}
            None => {
                let owner = owners.into_iter().find(|owner| self.may_call(*owner, name));
                if let Some(module) = owner {
                    let found = self.by_structure(module, op);
                    self.add(module, found, false);
                }
            }
        }
    }

    /// Whether all that an operation reads and makes has one shape, that of a parameter among it.
    fn is_update(&self, op: usize) -> bool {
        let op = &self.flow.ops[op];
        let Some(shape) = op.inputs.first().map(|operand| &operand.shape) else {
            return false;
        };
        op.inputs.iter().all(|operand| operand.shape == *shape)
            && op.outputs.iter().all(|out| out.tensor.shape == *shape)
    }

    /// False for a lookup's parameter that is read by something else than a lookup: a language
    /// model's head may use the embedding's.
    fn may_call(&self, module: usize, name: &str) -> bool {
        let kind = self.tree.module(module).kind.as_deref().unwrap_or_default();
        !template::LOOKUPS.contains(&kind)
            || template::of_kind(kind).any(|pattern| pattern.reads_parameter_by(name))
    }

    fn is_within(&self, module: usize) -> bool {
        self.within
            .is_none_or(|container| self.tree.is_below(module, container))
    }

    fn owns(&self, module: usize) -> impl Fn(usize) -> bool {
        move |parameter| self.tree.owners(parameter).contains(&module)
    }

    fn by_pattern(&self, module: usize, op: usize, which: Patterns) -> Option<Match> {
        let matcher = Matcher {
            flow: self.flow,
            taken: &self.taken,
            owns: &self.owns(module),
        };
        let patterns: Vec<&Pattern> = match which {
            Patterns::OfType => self.tree.module(module).patterns.clone(),
            Patterns::All => template::patterns()
                .iter()
                .filter(|pattern| pattern.parameters > 0)
                .collect(),
        };
        let mut best: Option<Match> = None;
        for last in self.after(op) {
            for pattern in &patterns {
                let Some(found) = matcher.ending_at(pattern, last) else {
                    continue;
                };
                let longer = best
                    .as_ref()
                    .is_none_or(|best| found.ops.len() > best.ops.len());
                if longer && found.ops.contains(&op) {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// `op` and what comes of it, a few steps on.
    fn after(&self, op: usize) -> Vec<usize> {
        let mut reached = vec![op];
        let mut from = 0;
        for _ in 0..MAX_STEPS {
            let until = reached.len();
            for at in from..until {
                for id in self.flow.outputs(reached[at]) {
                    for reader in self.flow.consumers(id) {
                        if *reader > reached[at] && !reached.contains(reader) && reached.len() < 64
                        {
                            reached.push(*reader);
                        }
                    }
                }
            }
            from = until;
        }
        reached.sort_unstable();
        reached
    }

    /// The call of a module of unknown make: the operations that read its parameters, each once, and
    /// what lies between; before them what is computed from one tensor that is read more than once.
    fn by_structure(&self, module: usize, op: usize) -> Match {
        let mut ops = vec![op];
        let mut used = self.own_parameters(module, op);
        for next in op + 1..self.flow.ops.len().min(op + 4 * MAX_BEFORE) {
            if self.taken[next] || !self.flow.counts(next) || self.flow.is_form(next) {
                continue;
            }
            let mut own = self.own_parameters(module, next);
            if own.is_empty() {
                let operands = &self.flow.ops[next].inputs;
                if operands
                    .iter()
                    .any(|operand| self.flow.parameter(operand.id).is_some())
                    || next > op + MAX_BEFORE
                {
                    break;
                }
                continue;
            }
            let between = self.between(&ops, next);
            if own.iter().any(|parameter| used.contains(parameter)) || between.is_none() {
                break;
            }
            used.append(&mut own);
            ops.extend(between.into_iter().flatten());
            ops.push(next);
        }
        ops.sort_unstable();
        ops.dedup();
        ops = self.with_what_leads_there(ops);
        let inputs = self.external(&ops);
        let outputs = self.escaping(&ops);
        Match {
            ops,
            inputs,
            outputs,
        }
    }

    fn own_parameters(&self, module: usize, op: usize) -> Vec<usize> {
        let operands = self.flow.ops[op].inputs.iter();
        let parameters = operands.filter_map(|operand| self.flow.parameter(operand.id));
        parameters.filter(|p| self.owns(module)(*p)).collect()
    }

    /// The operations on the ways from `from` to `to`; `None` if there is no way.
    fn between(&self, from: &[usize], to: usize) -> Option<Vec<usize>> {
        let first = *from.first()?;
        let mut reached: Vec<usize> = Vec::new();
        for op in first + 1..=to {
            let mut producers = self
                .flow
                .activations(op)
                .filter_map(|id| self.flow.producer_before(id, op));
            let is_reached = producers.any(|op| from.contains(&op) || reached.contains(&op));
            if is_reached && (op == to || !self.taken[op] && self.flow.counts(op)) {
                reached.push(op);
            }
        }
        if reached.last() != Some(&to) {
            return None;
        }
        let mut on_the_way = vec![to];
        for op in reached.iter().rev().skip(1) {
            let mut readers = self
                .flow
                .outputs(*op)
                .flat_map(|id| self.flow.consumers(id));
            if readers.any(|reader| on_the_way.contains(reader)) {
                on_the_way.push(*op);
            }
        }
        on_the_way.retain(|op| *op != to);
        Some(on_the_way)
    }

    /// Adds the operations before `ops` whose results go nowhere else, back to where they all come
    /// from one tensor that several of them read; nothing if there is no such tensor.
    fn with_what_leads_there(&self, ops: Vec<usize>) -> Vec<usize> {
        let last = ops.last().copied().unwrap_or_default();
        let mut grown = ops.clone();
        for _ in 0..MAX_BEFORE {
            let external = self.external(&grown);
            if let [only] = external.as_slice()
                && grown.len() > ops.len()
                && self.readings(*only, &grown) > 1
            {
                return grown;
            }
            // The latest first, so that a tensor is entered after all that was made of it.
            let before = external
                .iter()
                .filter_map(|id| self.flow.producer_before(*id, last))
                .filter(|op| !self.taken[*op] && self.flow.counts(*op))
                .filter(|op| {
                    let mut readers = self
                        .flow
                        .outputs(*op)
                        .flat_map(|id| self.flow.consumers(id));
                    readers.all(|reader| grown.contains(reader))
                })
                .max();
            let Some(before) = before else { break };
            grown.push(before);
            grown.sort_unstable();
        }
        ops
    }

    fn readings(&self, id: u64, ops: &[usize]) -> usize {
        let operands = ops.iter().flat_map(|op| &self.flow.ops[*op].inputs);
        operands.filter(|operand| operand.id == id).count()
    }

    /// The tensors that come into `ops`, parameters left out, in the order of their reading.
    fn external(&self, ops: &[usize]) -> Vec<u64> {
        let mut external = Vec::new();
        for op in ops {
            for id in self.flow.activations(*op) {
                let made_inside = self
                    .flow
                    .producer(id)
                    .is_some_and(|producer| ops.contains(&producer));
                if !made_inside && !external.contains(&id) {
                    external.push(id);
                }
            }
        }
        external
    }

    /// The tensors that `ops` make for others, or that nobody reads.
    fn escaping(&self, ops: &[usize]) -> Vec<u64> {
        let outputs = ops.iter().flat_map(|op| self.flow.outputs(*op));
        outputs
            .filter(|id| {
                let readers = self.flow.consumers(*id);
                readers.is_empty() || readers.iter().any(|reader| !ops.contains(reader))
            })
            .collect()
    }

    /// Takes the operations of a match, and those that bring parameters into form for them.
    fn add(&mut self, module: usize, found: Match, by_pattern: bool) {
        let mut ops = found.ops;
        let mut at = 0;
        while at < ops.len() {
            let operands = self.flow.ops[ops[at]].inputs.iter();
            let forms: Vec<usize> = operands
                .filter(|operand| self.flow.parameter(operand.id).is_some())
                .filter_map(|operand| self.flow.producer_before(operand.id, ops[at]))
                .filter(|form| {
                    let mut readers = self
                        .flow
                        .outputs(*form)
                        .flat_map(|id| self.flow.consumers(id));
                    !self.taken[*form]
                        && !ops.contains(form)
                        && readers.all(|reader| ops.contains(reader))
                })
                .collect();
            ops.extend(forms);
            at += 1;
        }
        ops.sort_unstable();
        ops.dedup();
        ops.iter().for_each(|op| self.taken[*op] = true);
        *self.calls.entry(module).or_default() += 1;
        self.found.push(Leaf {
            module,
            ops,
            inputs: found.inputs,
            outputs: found.outputs,
            by_pattern,
        });
    }

    /// Finds the calls of modules without parameters between the others, the largest first, so that
    /// a tangent inside of a GELU is not taken for one of its own.
    fn place_parameterless(&mut self) {
        let firsts: Vec<(usize, usize)> = self
            .found
            .iter()
            .map(|leaf| (leaf.first(), leaf.module))
            .collect();
        let mut candidates: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut matches: Vec<(usize, Match)> = Vec::new();
        let owns = |_: usize| false;
        for last in 0..self.flow.ops.len() {
            if self.taken[last] || !self.flow.counts(last) {
                continue;
            }
            let next = firsts.partition_point(|(first, _)| *first < last);
            let near = [next.checked_sub(1), Some(next)]
                .map(|at| Some(firsts.get(at?)?.1))
                .map(|leaf| leaf.and_then(|leaf| self.tree.module(leaf).parent))
                .map(|container| container.or(self.within));
            let matcher = Matcher {
                flow: self.flow,
                taken: &self.taken,
                owns: &owns,
            };
            // By size, then by nearness: the module before, outwards, then the module after.
            let mut best: Option<(usize, Match)> = None;
            for container in near.into_iter().flatten() {
                let modules = candidates
                    .entry(container)
                    .or_insert_with(|| self.parameterless_from(container));
                for module in modules.iter() {
                    for pattern in &self.tree.module(*module).patterns {
                        let Some(found) = matcher.ending_at(pattern, last) else {
                            continue;
                        };
                        let larger = best
                            .as_ref()
                            .is_none_or(|(_, best)| found.ops.len() > best.ops.len());
                        if larger {
                            best = Some((*module, found));
                        }
                    }
                }
            }
            matches.extend(best);
        }
        matches.sort_by_key(|(_, found)| (std::cmp::Reverse(found.ops.len()), found.ops.clone()));
        let mut chosen: Vec<(usize, Match)> = Vec::new();
        for (module, found) in matches {
            if found.ops.iter().all(|op| !self.taken[*op]) {
                found.ops.iter().for_each(|op| self.taken[*op] = true);
                chosen.push((module, found));
            }
        }
        chosen.sort_by_key(|(_, found)| found.ops.first().copied());
        for (module, found) in chosen {
            let module = self.next_alike(module);
            self.add(module, found, true);
        }
    }

    /// The modules without parameters in `container` and then in what contains it.
    fn parameterless_from(&self, container: usize) -> Vec<usize> {
        let mut near = Vec::new();
        for container in self.tree.chain(container) {
            if !self.is_within(container) && Some(container) != self.within {
                break;
            }
            let mut inside = self.tree.module(container).children.clone();
            inside.reverse();
            while let Some(module) = inside.pop() {
                let node = self.tree.module(module);
                if node.has_parameters {
                    continue;
                }
                if node.patterns.is_empty() {
                    inside.extend(node.children.iter().rev());
                } else {
                    near.push(module);
                }
            }
        }
        near
    }

    /// Of the modules of the same type in the same container, the one called least so far.
    fn next_alike(&self, module: usize) -> usize {
        let of = self.tree.module(module);
        let Some(parent) = of.parent else {
            return module;
        };
        let alike = self.tree.module(parent).children.iter().filter(|other| {
            let other = self.tree.module(**other);
            other.kind == of.kind && other.mentions == of.mentions && !other.has_parameters
        });
        alike
            .min_by_key(|other| self.calls.get(other).copied().unwrap_or(0))
            .copied()
            .unwrap_or(module)
    }
}

/// Which patterns a module's operations are compared with.
#[derive(Clone, Copy)]
enum Patterns {
    OfType,
    All,
}
