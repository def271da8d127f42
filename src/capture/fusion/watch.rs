//! Which operation of a device's log was the first to make a NaN or an infinity.
//!
//! Judged on the thread that reads results, while the run goes on, and once more at its end.

use std::{
    collections::HashMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    log::{DeviceLog, DeviceTrace, Logged},
    reader::{Numbers, Readings},
};
use crate::{
    capture::{
        judge::{Known, Verdict, judge},
        record::CallId,
    },
    summary::DType,
    trace::{FirstNonFinite, NonFiniteKind, Op, Step, WatchedTensor},
};

/// A guilty operation, without its module's path, and the call that it was asked for in.
pub(crate) type Found = (FirstNonFinite, Option<CallId>);

/// Told of a guilty operation, on the thread that reads results; returns what to tell the program
/// where it is to end.
type Told = Box<dyn Fn(Found) -> Option<String> + Send + Sync>;

/// A log that is watched.
pub(super) struct Watching {
    told: Told,
    stop: AtomicBool,
    /// Why no operation runs any more.
    refusal: OnceLock<String>,
    /// Whether an operation was kept from running.
    refused: AtomicBool,
    progress: Mutex<Progress>,
}

/// How far operations were judged.
#[derive(Default)]
struct Progress {
    next: usize,
    not_judged: u64,
    found: bool,
}

impl Watching {
    pub(super) fn new(told: Told) -> Self {
        Self {
            told,
            stop: AtomicBool::new(false),
            refusal: OnceLock::new(),
            refused: AtomicBool::new(false),
            progress: Mutex::default(),
        }
    }

    /// Whether the program is to end soon after a fault, so that results must come back soon.
    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl DeviceLog {
    /// Has every operation judged once its numbers are there, and soon if the program is to end at a
    /// fault. The first call says who is told.
    pub(crate) fn watch(
        &self,
        stop: bool,
        told: impl Fn(Found) -> Option<String> + Send + Sync + 'static,
    ) {
        let watching = self.watching.get_or_init(|| Watching::new(Box::new(told)));
        watching.stop.fetch_or(stop, Ordering::Relaxed);
    }

    /// Why an operation must not run.
    pub(super) fn refusal(&self) -> Option<&str> {
        let watching = self.watching.get()?;
        let why = watching.refusal.get()?;
        watching.refused.store(true, Ordering::Relaxed);
        Some(why)
    }

    /// Whether an operation was kept from running.
    pub(super) fn refused(&self) -> bool {
        let watching = self.watching.get();
        watching.is_some_and(|watching| watching.refused.load(Ordering::Relaxed))
    }

    /// Judges the operations whose numbers are there by now.
    pub(super) fn judge(&self, readings: &Mutex<Readings>) {
        let Some(watching) = self.watching.get() else {
            return;
        };
        let mut progress = watching
            .progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if progress.found {
            return;
        }
        let found = {
            let state = self.state();
            let readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            let tensors = Tensors {
                trace: &state.trace,
                aliases: &state.aliases,
                readings: Some(&readings),
            };
            let pending = |id| state.begun.contains(&id);
            tensors.first(&state.trace.ops, &mut progress, pending)
        };
        if let Some(found) = found {
            progress.found = true;
            // No lock of the log is held: the session's record is asked for the module.
            if let Some(told) = (watching.told)(found) {
                let _ = watching.refusal.set(told);
            }
        }
    }
}

/// The first guilty operation of a whole log, and how many before it could not be judged.
pub(crate) fn first_guilty(trace: &DeviceTrace) -> (Option<Found>, u64) {
    let mut aliases = Aliases::default();
    for output in trace.ops.iter().flat_map(|logged| &logged.op.outputs) {
        if let (Some(id), Some(source)) = (output.tensor.id, output.alias_of) {
            aliases.add(id, source);
        }
    }
    let tensors = Tensors {
        trace,
        aliases: &aliases,
        readings: None,
    };
    let mut progress = Progress::default();
    let found = tensors.first(&trace.ops, &mut progress, |_| false);
    (found, progress.not_judged)
}

/// Which tensor with elements of its own each view is a view of.
#[derive(Default)]
pub(super) struct Aliases(HashMap<u64, u64>);

impl Aliases {
    pub(super) fn add(&mut self, view: u64, source: u64) {
        let source = self.get(source).unwrap_or(source);
        self.0.insert(view, source);
    }

    pub(super) fn get(&self, view: u64) -> Option<u64> {
        self.0.get(&view).copied()
    }
}

/// What is known of a log's tensors.
struct Tensors<'t> {
    trace: &'t DeviceTrace,
    aliases: &'t Aliases,
    /// Numbers that are not in `trace` yet.
    readings: Option<&'t Readings>,
}

impl<'t> Tensors<'t> {
    fn numbers(&self, id: u64) -> Option<&'t Numbers> {
        let id = self.trace.same.get(&id).copied().unwrap_or(id);
        let read = |numbers: &&Numbers| numbers.summary.is_some() || numbers.refused.is_some();
        self.readings
            .and_then(|readings| readings.get(&id))
            .filter(read)
            .or_else(|| self.trace.numbers.get(&id).filter(read))
    }

    /// A tensor's numbers and whether they are those of what it is a view of; `None` where they may
    /// still come.
    fn look(
        &self,
        id: u64,
        dtype: &DType,
        pending: &impl Fn(u64) -> bool,
    ) -> Option<(Known<'t>, bool)> {
        if dtype.is_exact() {
            return Some((Known::Exact, false));
        }
        let known = |numbers: &'t Numbers| match &numbers.summary {
            Some(summary) => Known::Summary(summary),
            None => Known::Never,
        };
        if let Some(numbers) = self.numbers(id) {
            return Some((known(numbers), false));
        }
        if pending(id) {
            return None;
        }
        // A view has no value that is not its source's.
        match self.aliases.get(id) {
            Some(source) => match self.numbers(source) {
                Some(numbers) => Some((known(numbers), true)),
                None if pending(source) => None,
                None => Some((Known::Never, true)),
            },
            None => Some((Known::Never, false)),
        }
    }

    /// Goes on until an operation is guilty or not to be judged yet.
    fn first(
        &self,
        ops: &[Logged],
        progress: &mut Progress,
        pending: impl Fn(u64) -> bool,
    ) -> Option<Found> {
        while let Some(logged) = ops.get(progress.next) {
            let op = &logged.op;
            let inputs: Vec<_> = op
                .inputs
                .iter()
                .map(|operand| self.look(operand.id, &operand.dtype, &pending))
                .collect::<Option<_>>()?;
            let outputs: Vec<_> = op
                .outputs
                .iter()
                .map(|output| match (output.alias_of, output.tensor.id) {
                    (None, Some(id)) => self.look(id, &output.tensor.dtype, &pending),
                    // It only describes anew what was there.
                    _ => Some((Known::Exact, false)),
                })
                .collect::<Option<_>>()?;
            progress.next += 1;
            let judged = judge(
                inputs.iter().map(|(known, _)| *known),
                &op.scalars,
                outputs.iter().map(|(known, _)| *known),
            );
            match judged {
                Verdict::Innocent => {}
                Verdict::Unknown => progress.not_judged += 1,
                Verdict::Guilty(made) => {
                    let first = report(op, made, &inputs, &outputs, progress.not_judged);
                    return Some((first, logged.place.call));
                }
            }
        }
        None
    }
}

fn report(
    op: &Op,
    made: NonFiniteKind,
    inputs: &[(Known<'_>, bool)],
    outputs: &[(Known<'_>, bool)],
    not_judged: u64,
) -> FirstNonFinite {
    let summary = |known: &Known<'_>| match known {
        Known::Summary(summary) => Some((*summary).clone()),
        Known::Exact | Known::Never => None,
    };
    let inputs = op.inputs.iter().zip(inputs);
    let outputs = op.outputs.iter().zip(outputs);
    FirstNonFinite {
        step: Step::Operation,
        made,
        name: op.name.clone(),
        number: op.order,
        path: None,
        backward: op.backward,
        scalars: op.scalars.clone(),
        inputs: inputs
            .map(|(operand, (known, of_whole))| WatchedTensor {
                label: operand.label.clone(),
                id: Some(operand.id),
                shape: operand.shape.clone(),
                dtype: operand.dtype.clone(),
                parameter: operand.parameter.clone(),
                summary: summary(known),
                of_whole: *of_whole,
            })
            .collect(),
        outputs: outputs
            .map(|(output, (known, of_whole))| WatchedTensor {
                label: output.label.clone(),
                id: output.tensor.id,
                shape: output.tensor.shape.clone(),
                dtype: output.tensor.dtype.clone(),
                parameter: None,
                summary: summary(known),
                of_whole: *of_whole,
            })
            .collect(),
        not_judged,
    }
}
