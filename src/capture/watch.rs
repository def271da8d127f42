//! Watching a session for the first NaN or infinity: what a user asks for, gets and is told.
//!
//! Operations of CubeCL devices are judged in `fusion`, by the numbers that their device gives anyway;
//! where operations are not seen, calls are judged here. The rule is in `trace`.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::judge::{Known, Verdict, judge};
use crate::trace::{
    FirstNonFinite, Node, NonFiniteKind, Step, TensorRecord, Trace, Value, WatchedTensor,
};

/// What to do about the first NaN or infinity; see [`Session::watch`](super::Session::watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonFinite {
    /// Let the run go on, and report it.
    Report,
    /// End the run there.
    Stop,
}

/// What a watched session found; made by [`Session::watch`](super::Session::watch).
#[derive(Clone, Debug)]
pub struct Watch(pub(super) Arc<Watched>);

impl Watch {
    /// The first operation or call that made a NaN or an infinity, as far as is known by now: all of
    /// it once the session is finished.
    pub fn first(&self) -> Option<FirstNonFinite> {
        self.0.first().clone()
    }
}

/// What was found among the operations of devices.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// The first guilty one.
    pub(super) guilty: Option<FirstNonFinite>,
    /// How many before it, or in all, have no numbers.
    pub(super) not_judged: u64,
    /// Whether some were kept from running.
    pub(super) stopped: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watched {
    stop: AtomicBool,
    /// Whether a call was told to panic.
    panicked: AtomicBool,
    first: Mutex<Option<FirstNonFinite>>,
}

impl Watched {
    fn first(&self) -> MutexGuard<'_, Option<FirstNonFinite>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn also(&self, what: NonFinite) {
        if what == NonFinite::Stop {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes what was found while the run goes on; returns what a stopped program is told.
    pub(super) fn found(&self, found: FirstNonFinite) -> Option<String> {
        let mut first = self.first();
        let first = first.get_or_insert(found);
        self.stops().then(|| stopped(first))
    }

    /// Judges a call that returned, by tensors of the host; returns why the program must end.
    pub(super) fn returned(&self, node: &Node) -> Option<String> {
        if self.first().is_some() {
            return None;
        }
        match judge_call(node) {
            Verdict::Guilty(made) => {
                let why = self.found(call(node, made, 0));
                self.panicked.store(why.is_some(), Ordering::Relaxed);
                why
            }
            Verdict::Innocent | Verdict::Unknown => None,
        }
    }

    /// Decides at the end of the session; `operation` is the first guilty one, if there is any.
    pub(super) fn conclude(&self, trace: &Trace, operations: Operations) -> String {
        let found = operations
            .guilty
            .map(|mut operation| {
                let path = trace
                    .roots
                    .iter()
                    .find_map(|root| path_of(root, operation.number));
                operation.path = path.or(operation.path);
                operation
            })
            .or_else(|| first_call(trace));
        let told = match &found {
            Some(first) if operations.stopped || self.panicked.load(Ordering::Relaxed) => {
                stopped(first)
            }
            Some(first) if self.stops() => {
                format!("{first}; the run was over before it could be stopped")
            }
            Some(first) => first.to_string(),
            None if trace.roots.is_empty() && trace.ops.is_empty() => {
                "nothing could be watched for a NaN or an infinity: neither an operation nor a traced \
                 call was seen"
                    .to_owned()
            }
            None => {
                let mut told =
                    "no operation or call was found to make a NaN or an infinity".to_owned();
                if operations.not_judged > 0 {
                    told += &format!(
                        "; {} operations have no numbers and could not be judged",
                        operations.not_judged
                    );
                }
                told
            }
        };
        *self.first() = found;
        told
    }
}

/// What the program is told where it ends.
fn stopped(first: &FirstNonFinite) -> String {
    format!("burnscope stopped the run: {first}")
}

/// The path of the call that an operation is recorded under.
fn path_of(node: &Node, operation: u64) -> Option<String> {
    if node.ops.iter().any(|op| op.order == operation) {
        return Some(node.path.clone());
    }
    let mut children = node.children.iter();
    children.find_map(|child| path_of(child, operation))
}

/// The first guilty call in the order in which calls returned: leaves come before what they are in.
fn first_call(trace: &Trace) -> Option<FirstNonFinite> {
    let mut not_judged = 0;
    trace
        .roots
        .iter()
        .find_map(|root| first_call_in(root, &mut not_judged))
}

fn first_call_in(node: &Node, not_judged: &mut u64) -> Option<FirstNonFinite> {
    for child in &node.children {
        if let Some(first) = first_call_in(child, not_judged) {
            return Some(first);
        }
    }
    if operated(node) {
        // Its operations were judged, and parameters among what they read.
        return None;
    }
    match judge_call(node) {
        Verdict::Guilty(made) => Some(call(node, made, *not_judged)),
        Verdict::Innocent => None,
        Verdict::Unknown => {
            *not_judged += 1;
            None
        }
    }
}

/// Whether operations are recorded under a call.
fn operated(node: &Node) -> bool {
    !node.ops.is_empty() || node.children.iter().any(operated)
}

fn tensors<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<&'v TensorRecord> {
    values.into_iter().flat_map(Value::tensors).collect()
}

fn call_inputs(node: &Node) -> Vec<&TensorRecord> {
    node.inputs
        .as_ref()
        .map_or_else(Vec::new, |inputs| tensors(inputs.values()))
}

fn known(tensor: &TensorRecord) -> Known<'_> {
    match &tensor.summary {
        Some(summary) => Known::Summary(summary),
        None if tensor.dtype.is_exact() => Known::Exact,
        None => Known::Never,
    }
}

fn judge_call(node: &Node) -> Verdict {
    let inputs = call_inputs(node);
    let outputs = tensors(&node.outputs);
    judge(
        inputs.into_iter().map(known),
        &[],
        outputs.into_iter().map(known),
    )
}

fn call(node: &Node, made: NonFiniteKind, not_judged: u64) -> FirstNonFinite {
    let watched = |name: &str, tensors: Vec<&TensorRecord>| {
        tensors
            .into_iter()
            .enumerate()
            .map(|(index, tensor)| WatchedTensor {
                label: format!("{name}{index}"),
                id: tensor.id,
                shape: tensor.shape.clone(),
                dtype: tensor.dtype.clone(),
                parameter: None,
                summary: tensor.summary.clone(),
                of_whole: false,
            })
            .collect()
    };
    FirstNonFinite {
        step: Step::Call,
        made,
        name: node.method.clone().unwrap_or_default(),
        number: node.order,
        path: Some(node.path.clone()),
        backward: false,
        scalars: Vec::new(),
        inputs: watched("input ", call_inputs(node)),
        outputs: watched("output ", tensors(&node.outputs)),
        not_judged,
    }
}
