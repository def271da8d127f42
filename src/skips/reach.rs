//! Which functions can reach a skip at all, and what was found out about bodies so far.
//!
//! Most tests have nothing in their bodies that could skip and are never walked; the others behave
//! alike in most classes, so their outcomes are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use super::flags::Lookup;
use super::flow::{Step, Target};
use super::guard::Outcome;
use super::project::{ClassId, FunctionId, Project};

/// Outcomes found so far for one body: they hold for every class that answers the same lookups alike.
pub(super) type Known = Vec<(Vec<Lookup>, Arc<Outcome>)>;

/// A body: the class that defines it, the function, and the case (by the address of its arguments).
pub(super) type BodyKey = (ClassId, FunctionId, usize);

/// The most variants of an outcome that are kept for one body.
pub(super) const MAX_VARIANTS: usize = 32;
/// Locks the outcomes are spread over.
const SHARDS: usize = 64;

/// Which functions can reach a skip at all, and what their bodies were found to do.
pub(crate) struct Reach {
    reaches: Vec<Vec<bool>>,
    known: Vec<Mutex<FxHashMap<BodyKey, Known>>>,
}

impl Reach {
    /// Marks every function that skips, or that calls one by a name that does.
    pub fn new(project: &Project) -> Self {
        let mut names: FxHashSet<&str> = FxHashSet::default();
        let mut pending = Vec::new();
        for module in &project.modules {
            for function in &module.functions {
                if function.steps.is_empty() {
                    continue;
                }
                if function.steps.iter().any(skips) {
                    names.insert(&function.name);
                }
                pending.push(function);
            }
        }
        loop {
            let before = names.len();
            for function in &pending {
                if !names.contains(&*function.name)
                    && function.steps.iter().any(|s| calls(s, &names))
                {
                    names.insert(&function.name);
                }
            }
            if names.len() == before {
                break;
            }
        }
        let reaches = project
            .modules
            .iter()
            .map(|module| {
                module
                    .functions
                    .iter()
                    .map(|f| {
                        f.steps
                            .iter()
                            .any(|step| skips(step) || calls(step, &names))
                    })
                    .collect()
            })
            .collect();
        Self {
            reaches,
            known: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The outcomes kept for bodies like that of `function`.
    pub fn shard(&self, function: FunctionId) -> MutexGuard<'_, FxHashMap<BodyKey, Known>> {
        let at = (function.function as usize ^ function.module as usize) % SHARDS;
        // What a panicking thread left behind is complete: entries are added whole.
        self.known[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn can_skip(&self, id: FunctionId) -> bool {
        self.reaches[id.module as usize][id.function as usize]
    }
}

fn skips(step: &Step) -> bool {
    match step {
        Step::Skip { .. } => true,
        Step::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise).any(skips),
        Step::Loop { body, .. } | Step::Perhaps(body) => body.iter().any(skips),
        // What `super()` runs may be a test that is skipped by a decorator.
        Step::Call {
            target: Target::Super(name) | Target::Unbound(_, name),
            ..
        } => name.starts_with("test"),
        Step::Call { .. } | Step::Exit | Step::Leave => false,
    }
}

fn calls(step: &Step, names: &FxHashSet<&str>) -> bool {
    match step {
        Step::Call { target, .. } => match target {
            Target::Method(name)
            | Target::Super(name)
            | Target::Function(name)
            | Target::Unbound(_, name) => names.contains(&**name),
        },
        Step::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise).any(|s| calls(s, names)),
        Step::Loop { body, .. } | Step::Perhaps(body) => body.iter().any(|s| calls(s, names)),
        Step::Skip { .. } | Step::Exit | Step::Leave => false,
    }
}
