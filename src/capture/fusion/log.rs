//! What a session learns of its devices: where threads were, what ran, and which summaries were started.

use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use burn_cubecl::fusion::CubeFusionHandle;
use burn_fusion::stream::StreamId;
use burn_ir::{HandleContainer, TensorIr};

use super::{
    backward, clock,
    describe::{Description, Relabels},
    handle::{FusionTensor, Memory},
    identity::Identities,
    lane::{Lane, device_name},
    marker,
    observer::{Observing, Upcoming},
    publish::Publish,
    reader::{Numbers, Reader},
    registry,
    timeline::Timeline,
    watch::{Aliases, Watching},
};
use crate::{
    capture::{dump::DumpQueue, record::CallId, tensor},
    trace::{Attribution, Op, Operand, Output, TensorRecord},
};

/// Where a thread was in a session: which of its runs, and in which call of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) run: u64,
    pub(crate) call: Option<CallId>,
    /// Whether it said that a backward pass runs.
    pub(crate) backward: bool,
}

/// An operation with where it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) op: Op,
    pub(crate) place: Place,
    /// For each output whether its numbers are those of the operand that it aliases.
    pub(crate) same_numbers: Vec<bool>,
}

/// All that a session's devices gave.
#[derive(Debug, Default)]
pub(crate) struct DeviceTrace {
    pub(crate) ops: Vec<Logged>,
    pub(crate) numbers: HashMap<u64, Numbers>,
    /// Tensors that turned out to be others: another thread's identity of the same memory.
    pub(crate) same: HashMap<u64, u64>,
    /// Files of operations' results, by the session's numbers of tensors.
    pub(crate) files: HashMap<u64, String>,
    /// Whether the program was kept from going on.
    pub(crate) stopped: bool,
    pub(crate) notes: Vec<String>,
}

/// The part of a session that devices' threads write to.
pub(crate) struct DeviceLog {
    state: Mutex<State>,
    /// Of each thread's stream. Apart from the state, which a device's thread holds while it starts
    /// kernels: a scope must not wait for those.
    timelines: Mutex<HashMap<u64, Timeline<Place>>>,
    pub(super) settings: LogSettings,
    /// Gives out the session's numbers of tensors.
    ids: Arc<AtomicU64>,
    /// Whether a model or tensor on an autodiff device was seen.
    autodiff: AtomicBool,
    /// Set once operations are to be judged.
    pub(super) watching: OnceLock<Watching>,
    /// Set where operations are published while the run goes on.
    pub(super) publishing: OnceLock<Publish>,
}

/// What a session wants of its devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSettings {
    /// The elements that PyTorch prints, besides the summary.
    pub(crate) edges: bool,
    /// Where the elements of every result go; `None` where only modules' tensors are dumped.
    pub(crate) dumps: Option<DumpQueue>,
    /// What the names of those files begin with.
    pub(crate) prefix: String,
}

#[derive(Default)]
pub(super) struct State {
    /// Streams as small numbers, by their place here.
    streams: Vec<u64>,
    pub(super) identities: Identities,
    /// Tensors of calls, whose summary is to be started.
    asked: HashSet<u64>,
    /// Tensors whose summary was started or refused.
    pub(super) begun: HashSet<u64>,
    pub(super) aliases: Aliases,
    /// Of each device and stream: work is in order within a stream alone.
    lanes: Vec<Lane>,
    pub(super) trace: DeviceTrace,
    observing: Option<Observing>,
    reader: Option<Reader>,
    /// How many summaries were started since all were handed over, about.
    waiting: usize,
    /// When all were handed over last.
    handed_over: Option<Instant>,
    /// How many operations were published.
    pub(super) published: usize,
    /// Whether the session has ended: what comes later is nobody's, and must start nothing.
    pub(super) closed: bool,
    faults: Vec<String>,
}

/// How many summaries may wait on the device of a program that is to be stopped soon after a fault.
const SOON: usize = 64;

/// How far the record on disk may be behind while operations run.
const BEHIND: Duration = Duration::from_millis(500);

/// How many may wait else, so that the record on disk is not far behind.
const LATER: usize = 1024;

/// What is noted of an operation before it runs: running takes operands away.
pub(super) struct Before {
    operands: Vec<(u64, Option<Memory>)>,
    /// Where the operands are.
    device: Option<String>,
}

impl State {
    fn stream(&mut self, stream: u64) -> u64 {
        let known = self.streams.iter().position(|known| *known == stream);
        let place = known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        });
        place as u64
    }

    pub(super) fn lane(&mut self, handle: &CubeFusionHandle) -> &mut Lane {
        let stream = StreamId::current();
        let known = self
            .lanes
            .iter()
            .position(|lane| lane.stream == stream && lane.device == handle.device);
        let place = known.unwrap_or_else(|| {
            let lane = Lane::new(handle, stream, &self.lanes, &mut self.trace.notes);
            self.lanes.push(lane);
            self.lanes.len() - 1
        });
        &mut self.lanes[place]
    }

    fn refuse(&mut self, id: u64, why: String) {
        self.begun.insert(id);
        let numbers = self.trace.numbers.entry(id).or_default();
        numbers.refused.get_or_insert(why);
    }

    /// Starts a tensor's summary, once.
    fn summarise(&mut self, id: u64, handle: &CubeFusionHandle, shape: &[usize], edges: bool) {
        if !self.begun.insert(id) {
            return;
        }
        let started = catch_unwind(AssertUnwindSafe(|| {
            self.lane(handle).summarise(id, handle, shape, edges)
        }));
        // What waits for its numbers must not wait for ever.
        let started = started.unwrap_or_else(|_| Err("a fault of burnscope".to_owned()));
        match started {
            Ok(None) => self.waiting += 1,
            Ok(Some(batch)) => {
                if let Some(reader) = &self.reader {
                    reader.submit(batch);
                }
            }
            Err(why) => self.refuse(id, why),
        }
    }

    /// Has everything read that was started, on whatever stream.
    fn hand_over(&mut self) {
        self.waiting = 0;
        self.handed_over = Some(Instant::now());
        if let Some(reader) = &self.reader {
            let lanes = self.lanes.iter_mut();
            lanes.for_each(|lane| reader.submit(lane.take()));
        }
    }
}

impl DeviceLog {
    pub(crate) fn new(settings: LogSettings, ids: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            timelines: Mutex::default(),
            settings,
            ids,
            autodiff: AtomicBool::new(false),
            watching: OnceLock::new(),
            publishing: OnceLock::new(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every statement that could panic, at worst without one tensor.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to be asked about every operation, if operations are seen in this process.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let log = Arc::downgrade(self);
        let reader = Reader::start(Box::new(move |readings| {
            if let Some(log) = log.upgrade() {
                log.judge(readings);
                log.publish(readings);
            }
        }))?;
        let mut state = self.state();
        state.reader = Some(reader);
        if super::installed() {
            state.observing = Some(Observing::begin());
            drop(state);
            registry::add(self);
        }
        Ok(())
    }

    /// There may be backward passes.
    pub(crate) fn autodiff_seen(&self) {
        self.autodiff.store(true, Ordering::Relaxed);
    }

    /// From now on this thread is there.
    pub(crate) fn moved(&self, place: Option<Place>) {
        let (stream, now) = (StreamId::current(), clock::now());
        let mut timelines = self.timelines();
        let timeline = timelines.entry(stream.value).or_default();
        timeline.change(now, place);
    }

    fn timelines(&self) -> MutexGuard<'_, HashMap<u64, Timeline<Place>>> {
        // No statement that uses it leaves it half changed.
        self.timelines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a thread was when it asked for that tensor, if it was in a run of this session.
    pub(super) fn place_at(&self, stream: StreamId, tensor: u64) -> Option<Place> {
        self.timelines().get(&stream.value)?.at(tensor)
    }

    /// Has a tensor summarised where the program is now, unless it was before; returns its number.
    pub(crate) fn see(self: &Arc<Self>, tensor: &FusionTensor) -> u64 {
        clock::device_seen(tensor.client.device());
        let mut state = self.state();
        let id = state.identities.number(tensor.id, &self.ids);
        if state.begun.contains(&id) {
            return id;
        }
        state.asked.insert(id);
        drop(state);
        let log = self.clone();
        marker::register(
            tensor.clone(),
            Box::new(move |tensor, handles| log.seen(id, tensor, handles)),
        );
        id
    }

    fn seen(&self, id: u64, tensor: &TensorIr, handles: &HandleContainer<CubeFusionHandle>) {
        let Some(handle) = handles.get_handle_ref(&tensor.id) else {
            return;
        };
        let shape: Vec<usize> = tensor.shape.iter().copied().collect();
        let mut state = self.state();
        if state.closed {
            return;
        }
        let first = state.identities.met(tensor, handle, handles, id);
        if first != id {
            state.trace.same.insert(id, first);
        }
        state.summarise(first, handle, &shape, self.settings.edges);
    }

    /// Learns that a tensor is this parameter.
    pub(crate) fn parameter(self: &Arc<Self>, path: String, tensor: &FusionTensor) {
        clock::device_seen(tensor.client.device());
        let log = self.clone();
        let action = move |tensor: &TensorIr, handles: &mut HandleContainer<CubeFusionHandle>| {
            if let Some(handle) = handles.get_handle_ref(&tensor.id) {
                let memory = Memory::of(handle);
                log.state().identities.parameter_is(memory, path);
            }
        };
        marker::register(tensor.clone(), Box::new(action));
    }

    /// Notes an operation's operands.
    pub(super) fn before(
        &self,
        description: &Description,
        handles: &HandleContainer<CubeFusionHandle>,
    ) -> Before {
        let mut state = self.state();
        let mut device = None;
        let mut operands = Vec::with_capacity(description.inputs.len());
        for (_, input) in &description.inputs {
            let handle = handles.get_handle_ref(&input.id);
            device = device.or(handle.map(|handle| device_name(&handle.device)));
            let id = state.identities.operand(input, handles, &self.ids);
            operands.push((id, handle.map(Memory::of)));
            // A view has its source's numbers, or none.
            if let Some(handle) = handle
                && !state.closed
                && !state.begun.contains(&id)
                && state.aliases.get(id).is_none()
                && (self.watching.get().is_some()
                    || state.identities.parameter(Memory::of(handle)).is_none())
            {
                let shape: Vec<usize> = input.shape.iter().copied().collect();
                state.summarise(id, handle, &shape, self.settings.edges);
            }
        }
        Before { operands, device }
    }

    /// Records an operation that ran, and starts the summaries of its results.
    pub(super) fn after(
        &self,
        upcoming: &Upcoming,
        place: Place,
        before: Before,
        handles: &mut HandleContainer<CubeFusionHandle>,
    ) {
        let description = &upcoming.description;
        let mut state = self.state();
        let state = &mut *state;
        if state.closed {
            return;
        }
        let mut device = before.device.clone();
        let mut outputs = Vec::with_capacity(description.outputs.len());
        let mut same_numbers = Vec::with_capacity(description.outputs.len());
        for (label, out) in &description.outputs {
            let id = state.identities.number(out.id, &self.ids);
            let shape: Vec<usize> = out.shape.iter().copied().collect();
            let mut alias_of = None;
            let mut in_order = false;
            match handles.get_handle_ref(&out.id) {
                None => state.refuse(id, "the operation failed".to_owned()),
                Some(handle) => {
                    let memory = Memory::of(handle);
                    device.get_or_insert_with(|| device_name(&handle.device));
                    if description.relabels != Relabels::No {
                        alias_of = before
                            .operands
                            .iter()
                            .find(|(_, of)| of.is_some_and(|of| of.shares_allocation(memory)))
                            .map(|(operand, _)| *operand);
                        in_order = alias_of.is_some()
                            && description.relabels == Relabels::InOrder
                            && description
                                .inputs
                                .first()
                                .is_some_and(|(_, input)| input.dtype == out.dtype);
                    }
                    state.identities.made(out, handle, handles, id);
                    if let Some(source) = alias_of {
                        state.aliases.add(id, source);
                    }
                    if alias_of.is_none() {
                        state.identities.written(memory);
                        state.summarise(id, handle, &shape, self.settings.edges);
                    }
                    // The results of traced methods are dumped as such.
                    if alias_of.is_none() && place.call.is_none() {
                        let order = state.trace.ops.len();
                        let label = label.replace('.', "_");
                        let prefix = &self.settings.prefix;
                        let name = format!("{prefix}op_{order:06}_{label}.safetensors");
                        self.dump_result(state, (id, name), handle, out);
                    }
                }
            }
            same_numbers.push(in_order);
            outputs.push(Output {
                label: label.clone(),
                tensor: Arc::new(TensorRecord {
                    dtype: tensor::dtype(out.dtype),
                    device: device.clone(),
                    id: Some(id),
                    summary: None,
                    not_summarised: None,
                    printed: None,
                    value: None,
                    shape,
                }),
                alias_of,
            });
        }
        let inputs = description
            .inputs
            .iter()
            .zip(&before.operands)
            .map(|((label, input), (id, memory))| Operand {
                label: label.clone(),
                id: *id,
                shape: input.shape.iter().copied().collect(),
                dtype: tensor::dtype(input.dtype),
                parameter: memory.and_then(|memory| state.identities.parameter(memory)),
            })
            .collect();
        let op = Op {
            name: description.name.clone(),
            order: state.trace.ops.len() as u64,
            inputs,
            outputs,
            scalars: description.scalars.clone(),
            stream: state.stream(upcoming.stream.value),
            device: device.unwrap_or_default(),
            backward: place.backward,
            attribution: Attribution::Exact,
        };
        state.trace.ops.push(Logged {
            op,
            place,
            same_numbers,
        });
        let stops = self.watching.get().is_some_and(Watching::stops);
        let begun = *state.handed_over.get_or_insert_with(Instant::now);
        let many = state.waiting >= if stops { SOON } else { LATER };
        if many || begun.elapsed() >= BEHIND {
            state.hand_over();
        }
    }

    /// Notes that recording an operation went wrong; the operation itself did not.
    pub(super) fn fault(&self, operation: &str) {
        let mut state = self.state();
        let text = format!("an operation {operation} could not be recorded: a fault of burnscope");
        if !state.faults.contains(&text) {
            state.faults.push(text);
        }
    }

    /// Waits until what this thread asked for is on its way to the devices.
    pub(crate) fn drain(&self) {
        clock::drain();
    }

    /// Sees to it that what this thread asked for is recorded, and soon judged and published.
    pub(crate) fn leave(&self) {
        self.drain();
        self.state().hand_over();
    }

    /// Whether there may be backward passes.
    pub(super) fn may_go_backward(&self) -> bool {
        self.autodiff.load(Ordering::Relaxed)
    }

    /// Ends the recording and waits for the devices' results.
    pub(crate) fn finish(self: &Arc<Self>) -> DeviceTrace {
        clock::drain();
        let unseen = super::installed() && !clock::any_device();
        registry::remove(self);
        let (mut trace, _lanes, batches, reader) = {
            let mut state = self.state();
            state.closed = true;
            for id in std::mem::take(&mut state.asked) {
                let id = state.trace.same.get(&id).copied().unwrap_or(id);
                if !state.begun.contains(&id) {
                    // Burn leaves out what depends on an operation that failed.
                    state.refuse(id, "the operation that makes it did not run".to_owned());
                }
            }
            state.observing = None;
            // Dropped at the end, on this thread: an engine waits for its device then.
            let mut lanes = std::mem::take(&mut state.lanes);
            let batches: Vec<_> = lanes.iter_mut().map(Lane::take).collect();
            let mut trace = std::mem::take(&mut state.trace);
            trace.notes.append(&mut state.faults);
            trace.stopped = self.refused();
            if self.may_go_backward() {
                for (first, last) in backward::mark(&mut trace.ops) {
                    trace.notes.push(format!(
                        "operations {first} to {last} were taken for a backward pass, from the first \
                         gradient to the last operation that depends on it; wrap it in \
                         burnscope::backward to be exact"
                    ));
                }
            }
            // Markers were there, and nothing else.
            let at_work = !state.identities.is_empty();
            if at_work && !super::installed() {
                trace.notes.push(
                    "Burn's own fusion was on, so that only what modules were given and gave was seen, \
                     and no operation: call burnscope::install() at the top of main to see each"
                        .to_owned(),
                );
            }
            if unseen {
                trace.notes.push(
                    "no operation was seen: the model is on no GPU, or nothing was attached to the \
                     session nor read within it"
                        .to_owned(),
                );
            }
            (trace, lanes, batches, state.reader.take())
        };
        if let Some(mut reader) = reader {
            batches.into_iter().for_each(|batch| reader.submit(batch));
            for (id, numbers) in reader.finish() {
                trace.numbers.insert(id, numbers);
            }
        }
        trace
    }
}
