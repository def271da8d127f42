//! Calls of modules with parts, from the calls of the parts: which of them belong to one call, and which
//! operations beside them do.

use std::collections::{HashMap, HashSet};

use super::{flow::Flow, interface::external, leaves::Leaf, template, tree::ModuleTree};

/// The most operations beside a call that are looked at for it.
const MAX_WINDOW: usize = 256;
/// Operations that bring data from the host: no module is taken to have made its own input.
const ENTERING: &[&str] = &["Init", "Random"];
/// Operations that only lay a tensor out anew.
const LAYOUTS: &[&str] = &["Permute", "Reshape", "SwapDims"];

/// A call, concluded: of a module with parts, or of a leaf.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) module: usize,
    pub(super) parts: Vec<Call>,
    /// The operations outside the parts.
    pub(super) ops: Vec<usize>,
    /// What a leaf was given and returned.
    pub(super) leaf: Option<Leaf>,
}

impl Call {
    /// The first and the last operation of the call and its parts.
    fn span(&self) -> (usize, usize) {
        let own = self.ops.iter().map(|op| (*op, *op));
        let parts = self.parts.iter().map(Call::span);
        own.chain(parts)
            .reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))
            .unwrap_or_default()
    }

    /// Every operation of the call and its parts.
    pub(super) fn all_ops(&self) -> Vec<usize> {
        let mut ops = self.ops.clone();
        for part in &self.parts {
            ops.extend(part.all_ops());
        }
        ops
    }
}

/// Builds calls out of leaves.
pub(super) struct Calls<'c, 'o> {
    pub(super) tree: &'c ModuleTree,
    pub(super) flow: &'c Flow<'o>,
}

impl Calls<'_, '_> {
    /// The calls of the parts of `within` (of the roots, where that is none) and the operations that
    /// are in none of them. `leaves` are in the order of their first operations.
    pub(super) fn build(
        &self,
        within: Option<usize>,
        leaves: Vec<Leaf>,
        taken: &[bool],
    ) -> (Vec<Call>, Vec<usize>) {
        let mut calls = self.group(within, leaves);
        let free = (0..taken.len()).filter(|op| !taken[*op]).collect();
        let mut rest = self.place_between(&mut calls, free);
        self.absorb(&mut calls, &mut rest);
        (calls, rest)
    }

    fn group(&self, container: Option<usize>, leaves: Vec<Leaf>) -> Vec<Call> {
        let mut runs: Vec<(usize, Vec<Leaf>)> = Vec::new();
        for leaf in leaves {
            let Some(part) = self.tree.part_of(container, leaf.module) else {
                continue;
            };
            match runs.last_mut() {
                Some((last, run)) if *last == part => run.push(leaf),
                _ => runs.push((part, vec![leaf])),
            }
        }
        let mut calls = Vec::new();
        for (part, run) in runs {
            let mut whole = Vec::new();
            for leaf in run {
                if leaf.module == part {
                    self.close(part, &mut whole, &mut calls);
                    calls.push(Call {
                        module: part,
                        parts: Vec::new(),
                        ops: leaf.ops.clone(),
                        leaf: Some(leaf),
                    });
                } else {
                    whole.push(leaf);
                }
            }
            self.close(part, &mut whole, &mut calls);
        }
        calls
    }

    /// Makes calls of `module` out of `leaves` of its parts, which it leaves empty.
    fn close(&self, module: usize, leaves: &mut Vec<Leaf>, calls: &mut Vec<Call>) {
        if leaves.is_empty() {
            return;
        }
        for leaves in self.split(module, std::mem::take(leaves)) {
            calls.push(Call {
                module,
                parts: self.group(Some(module), leaves),
                ops: Vec::new(),
                leaf: None,
            });
        }
    }

    /// Several calls in a row: a new one begins where the first leaf comes again, if each then has
    /// the same leaves.
    fn split(&self, module: usize, leaves: Vec<Leaf>) -> Vec<Vec<Leaf>> {
        // A recurrent module calls its parts over and over in one call.
        let unit = |leaf: &Leaf| {
            let below = self
                .tree
                .chain(leaf.module)
                .take_while(|above| *above != module);
            below.filter(|above| self.loops(*above)).last()
        };
        if self.loops(module) {
            return vec![leaves];
        }
        let mut starts = Vec::new();
        let mut sets: Vec<HashSet<usize>> = Vec::new();
        let mut first = None;
        let mut before = None;
        for (at, leaf) in leaves.iter().enumerate() {
            let unit = unit(leaf);
            let key = unit.unwrap_or(leaf.module);
            let goes_on = unit.is_some() && before == Some(key);
            if *first.get_or_insert(key) == key && !goes_on {
                starts.push(at);
                sets.push(HashSet::new());
            }
            before = Some(key);
            // Modules without parameters may have been missed.
            if let Some(set) = sets.last_mut()
                && self.tree.module(key).has_parameters
            {
                set.insert(key);
            }
        }
        if sets.windows(2).any(|pair| pair[0] != pair[1]) {
            return vec![leaves];
        }
        let mut calls: Vec<Vec<Leaf>> = Vec::new();
        for (at, leaf) in leaves.into_iter().enumerate() {
            if starts.contains(&at) {
                calls.push(Vec::new());
            }
            if let Some(call) = calls.last_mut() {
                call.push(leaf);
            }
        }
        calls
    }

    fn loops(&self, module: usize) -> bool {
        let kind = self.tree.module(module).kind.as_deref();
        kind.is_some_and(|kind| template::LOOPS.contains(&kind))
    }

    /// Gives each operation between two parts of a call to that call; returns the others.
    fn place_between(&self, calls: &mut [Call], ops: Vec<usize>) -> Vec<usize> {
        let mut rest = Vec::new();
        let mut inside: HashMap<usize, Vec<usize>> = HashMap::new();
        let spans: Vec<(usize, usize)> = calls.iter().map(Call::span).collect();
        for op in ops {
            let next = spans.partition_point(|(first, _)| *first <= op);
            // Calls overlap where parts of one are interleaved with another's.
            let around = spans[..next]
                .iter()
                .rposition(|(_, last)| op < *last)
                .filter(|at| calls[*at].leaf.is_none() && self.flow.counts(op));
            match around {
                Some(at) => inside.entry(at).or_default().push(op),
                None => rest.push(op),
            }
        }
        for (at, ops) in inside {
            let own = self.place_between(&mut calls[at].parts, ops);
            calls[at].ops.extend(own);
        }
        rest
    }

    /// Gives operations beside a call to it where that makes fewer tensors pass between it and the
    /// others; `beside` are those of what the calls are in.
    fn absorb(&self, calls: &mut [Call], beside: &mut Vec<usize>) {
        beside.sort_unstable();
        for at in 0..calls.len() {
            if calls[at].leaf.is_some() {
                continue;
            }
            let (first, last) = calls[at].span();
            let end = calls.get(at + 1).map_or(usize::MAX, |next| next.span().0);
            let start = match at.checked_sub(1) {
                Some(before) => calls[before].span().1,
                None => 0,
            };
            let usable = |op: &usize| self.flow.counts(*op) && !self.flow.is_form(*op);
            let after: Vec<usize> = beside
                .iter()
                .copied()
                .filter(|op| (last..end).contains(op) && usable(op))
                .take(MAX_WINDOW)
                .collect();
            let mut before: Vec<usize> = beside
                .iter()
                .copied()
                .filter(|op| (start..first).contains(op) && usable(op))
                .collect();
            before.drain(..before.len().saturating_sub(MAX_WINDOW));
            let mut ops: HashSet<usize> = calls[at].all_ops().into_iter().collect();
            let mut gained = self.results(&mut ops, after);
            gained.extend(self.preparations(&mut ops, before));
            if gained.is_empty() {
                continue;
            }
            beside.retain(|op| !gained.contains(op));
            let call = &mut calls[at];
            let own = self.place_between(&mut call.parts, gained);
            call.ops.extend(own);
        }
        for call in calls.iter_mut().filter(|call| call.leaf.is_none()) {
            let mut own = std::mem::take(&mut call.ops);
            self.absorb(&mut call.parts, &mut own);
            call.ops = own;
        }
    }

    /// The operations of `after` that make one result out of several tensors of the call `ops`.
    fn results(&self, ops: &mut HashSet<usize>, after: Vec<usize>) -> Vec<usize> {
        let mut gained: Vec<usize> = Vec::new();
        for op in &after {
            if ops.contains(op) {
                continue;
            }
            let closure = self.sources(*op, &after, ops);
            let leaves = |id: &u64, inside: &dyn Fn(&usize) -> bool| {
                self.flow
                    .consumers(*id)
                    .iter()
                    .any(|reader| !inside(reader))
            };
            let into: HashSet<u64> = closure
                .iter()
                .flat_map(|op| self.flow.activations(*op))
                .filter(|id| self.flow.producer(*id).is_some_and(|op| ops.contains(&op)))
                .collect();
            let removed = into
                .iter()
                .filter(|id| !leaves(id, &|op| ops.contains(op) || closure.contains(op)))
                .count();
            let added = closure
                .iter()
                .flat_map(|op| self.flow.outputs(*op).map(|id| (*op, id)))
                .filter(|(op, id)| {
                    self.flow.is_unread(*op)
                        || leaves(id, &|op| ops.contains(op) || closure.contains(op))
                })
                .count();
            if removed > added {
                ops.extend(&closure);
                gained.extend(closure);
            }
        }
        if let Some(last) = gained.iter().max().copied() {
            self.relaid(last, ops, &after, &mut gained);
        }
        gained
    }

    /// Goes on with the layouts that bring a gained result to the rank of what the call was given.
    fn relaid(
        &self,
        last: usize,
        ops: &mut HashSet<usize>,
        after: &[usize],
        gained: &mut Vec<usize>,
    ) {
        let rank = |id: u64| self.flow.record(id).map(|tensor| tensor.shape.len());
        let inputs = external(self.flow, ops);
        let Some(wanted) = inputs.first().map(|id| rank(*id)) else {
            return;
        };
        let mut chain = Vec::new();
        let mut at = last;
        loop {
            let mut outputs = self.flow.outputs(at);
            let (Some(id), None) = (outputs.next(), outputs.next()) else {
                return;
            };
            if rank(id) == wanted {
                break;
            }
            match self.flow.consumers(id) {
                [next]
                    if after.contains(next)
                        && LAYOUTS.contains(&self.flow.ops[*next].name.as_str()) =>
                {
                    chain.push(*next);
                    at = *next;
                }
                _ => return,
            }
        }
        ops.extend(&chain);
        gained.extend(chain);
    }

    /// `op` and the operations of `window` that it needs, those of the call left out.
    fn sources(&self, op: usize, window: &[usize], ops: &HashSet<usize>) -> Vec<usize> {
        let mut closure = vec![op];
        let mut at = 0;
        while at < closure.len() {
            for id in self.flow.activations(closure[at]) {
                if let Some(producer) = self.flow.producer_before(id, closure[at])
                    && window.binary_search(&producer).is_ok()
                    && !ops.contains(&producer)
                    && !closure.contains(&producer)
                {
                    closure.push(producer);
                }
            }
            at += 1;
        }
        closure
    }

    /// The operations of `before` that are for the call alone and need fewer tensors than they make
    /// for it. A call keeps at least one input.
    fn preparations(&self, ops: &mut HashSet<usize>, before: Vec<usize>) -> Vec<usize> {
        let mut gained = Vec::new();
        for op in before.iter().rev() {
            let enters = ENTERING.contains(&self.flow.ops[*op].name.as_str());
            if ops.contains(op) || enters || !self.is_for(*op, ops, &[]) {
                continue;
            }
            let mut closure = vec![*op];
            // Producers before their readers: going back, every reader is known already.
            for source in before.iter().rev().filter(|source| *source < op) {
                if !ops.contains(source)
                    && !ENTERING.contains(&self.flow.ops[*source].name.as_str())
                    && self.is_for(*source, ops, &closure)
                {
                    let mut readers = self
                        .flow
                        .outputs(*source)
                        .flat_map(|id| self.flow.consumers(id));
                    if readers.any(|reader| closure.contains(reader)) {
                        closure.push(*source);
                    }
                }
            }
            let now = external(self.flow, ops);
            let mut with: HashSet<usize> = ops.clone();
            with.extend(&closure);
            let then = external(self.flow, &with);
            if then.len() < now.len() && !then.is_empty() {
                *ops = with;
                gained.extend(closure);
            }
        }
        gained
    }

    /// Whether everything that `op` makes is read by the call only.
    fn is_for(&self, op: usize, ops: &HashSet<usize>, more: &[usize]) -> bool {
        let mut readers = self
            .flow
            .outputs(op)
            .flat_map(|id| self.flow.consumers(id))
            .peekable();
        readers.peek().is_some()
            && readers.all(|reader| ops.contains(reader) || more.contains(reader))
    }
}
