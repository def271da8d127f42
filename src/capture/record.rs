//! What a session remembers while it runs: every call with its place in the tree, and the journal on disk.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Instant};

#[cfg(feature = "fusion")]
use super::fusion::{DeviceDump, DeviceLog};
use super::{
    dump::{self, DumpQueue, Job},
    names::ModuleNames,
    probe::Receiver,
    settings::Options,
    value::{Captured, CapturedTensor, Elements},
};
use crate::{
    format::{
        WriteError,
        dump::{DumpName, DumpNames},
        jsonl::{self, JsonlWriter},
        record_path, remove_trees,
    },
    trace::{Inputs, Node, TensorRecord, TensorValue, Time, Value},
};

/// A call's number within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(pub(super) usize);

/// Arguments as they were captured: under a name, or without one.
pub(crate) type CapturedInputs = Vec<(Option<String>, Captured)>;

/// One call, finished or not.
pub(super) struct Call {
    pub(super) parent: Option<CallId>,
    pub(super) children: Vec<CallId>,
    pub(super) node: Node,
    pub(super) receiver: Receiver,
    /// What the caller's source calls the module; empty where the call was not seen from outside.
    pub(super) hint: String,
    /// How many elements of the list `hint` were called before, where it is a list.
    pub(super) hint_index: u64,
    /// Whether the path filters want it.
    pub(super) selected: bool,
    /// The inputs of a call seen from outside, until it is clear whether the callee records itself.
    waiting: Option<CapturedInputs>,
    /// The call's number in the journal, once its beginning is there.
    pub(super) journaled: Option<jsonl::CallId>,
    /// Whether it returned or was given up.
    over: bool,
    /// How often each hint was used for a child, to number the elements of a list of modules.
    pub(super) hints: HashMap<String, u64>,
}

/// Everything that changes during a session.
pub(crate) struct Record {
    folder: PathBuf,
    started: Instant,
    pub(crate) names: ModuleNames,
    pub(super) calls: Vec<Call>,
    pub(super) roots: Vec<CallId>,
    /// Calls per root call and path.
    pub(super) counts: HashMap<(u64, String), u64>,
    /// Of each operation that was published while the run went on, under which call.
    #[cfg(feature = "fusion")]
    pub(super) published: Vec<Option<jsonl::CallId>>,
    /// Root calls that were concluded afterwards.
    #[cfg(feature = "fusion")]
    pub(super) concluded_roots: u64,
    pub(super) journal: Option<JsonlWriter>,
    pub(super) dumps: DumpQueue,
    dump_names: DumpNames,
    #[cfg(feature = "fusion")]
    device: Arc<DeviceLog>,
    pub(super) notes: Vec<String>,
    /// The first thing that could not be written.
    pub(super) failure: Option<WriteError>,
    pub(super) panicked: bool,
    /// Nothing is recorded any more: a call that is still in progress must not open the files again.
    pub(super) finished: bool,
    /// The trace's name, from when its first file was opened on.
    fixed_name: Option<String>,
}

impl Record {
    pub(crate) fn new(
        folder: PathBuf,
        dumps: DumpQueue,
        #[cfg(feature = "fusion")] device: Arc<DeviceLog>,
    ) -> Self {
        Self {
            started: Instant::now(),
            names: ModuleNames::default(),
            calls: Vec::new(),
            roots: Vec::new(),
            counts: HashMap::new(),
            #[cfg(feature = "fusion")]
            published: Vec::new(),
            #[cfg(feature = "fusion")]
            concluded_roots: 0,
            journal: None,
            dumps,
            folder,
            dump_names: DumpNames::default(),
            #[cfg(feature = "fusion")]
            device,
            notes: Vec::new(),
            failure: None,
            panicked: false,
            finished: false,
            fixed_name: None,
        }
    }

    pub(super) fn call(&mut self, id: CallId) -> &mut Call {
        &mut self.calls[id.0]
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Says something once in every file.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Whether `receiver.method` is the call that `id` announced from outside.
    pub(crate) fn announced(&self, id: CallId, receiver: &Receiver, method: &str) -> bool {
        let call = &self.calls[id.0];
        call.waiting.is_some()
            && call.node.method.as_deref() == Some(method)
            && call.receiver.address == receiver.address
            && call.receiver.size == receiver.size
            // The caller may see a trait object or a pointer where the callee knows its type.
            && (!call.receiver.is_module || call.receiver.type_name == receiver.type_name)
    }

    /// Begins a call and says whether its inputs are wanted; `None` once the session is finished.
    pub(crate) fn begin(
        &mut self,
        options: &Options,
        parent: Option<CallId>,
        receiver: Receiver,
        method: &str,
        hint: Option<&str>,
    ) -> Option<(CallId, bool)> {
        if self.finished {
            return None;
        }
        // A future may outlive the call it was made in.
        let mut parent = parent;
        while let Some(over) = parent
            && self.calls[over.0].over
        {
            parent = self.calls[over.0].parent;
        }
        if let Some(parent) = parent {
            self.settle(options, parent);
        }
        let hint = options.segments.rename(hint.unwrap_or_default());
        let hint_index = parent
            .and_then(|parent| self.calls[parent.0].hints.get(&hint).copied())
            .unwrap_or(0);
        let id = CallId(self.calls.len());
        let step = match parent {
            Some(parent) => self.calls[parent.0].node.step,
            None => self.roots.len() as u64,
        };
        let node = Node {
            method: Some(method.to_owned()),
            step,
            order: id.0 as u64,
            time: Some(Time {
                start_ns: self.now(),
                elapsed_ns: None,
            }),
            ..Node::default()
        };
        self.calls.push(Call {
            parent,
            children: Vec::new(),
            node,
            receiver,
            hint,
            hint_index,
            selected: false,
            waiting: None,
            journaled: None,
            over: false,
            hints: HashMap::new(),
        });
        match parent {
            Some(parent) => self.call(parent).children.push(id),
            None => self.roots.push(id),
        }
        self.place(options, id);
        Some((id, self.calls[id.0].selected))
    }

    /// Lets the callee take over the call that its caller announced, and says whether its inputs are
    /// wanted. Where the caller could not see a module behind its expression, the callee's identity
    /// decides the path.
    pub(crate) fn adopt(&mut self, options: &Options, id: CallId, receiver: Receiver) -> bool {
        let call = &mut self.calls[id.0];
        if !call.receiver.is_module {
            let step_and_path = (call.node.step, std::mem::take(&mut call.node.path));
            call.receiver = receiver;
            if let Some(count) = self.counts.get_mut(&step_and_path) {
                *count -= 1;
            }
            self.place(options, id);
        }
        self.calls[id.0].selected
    }

    /// What the caller captured of a call that its callee takes over.
    pub(crate) fn take_waiting(&mut self, id: CallId) -> CapturedInputs {
        self.call(id).waiting.take().unwrap_or_default()
    }

    /// Gives a call its inputs; `announced` ones wait until the callee has had its chance to name them.
    pub(crate) fn inputs(
        &mut self,
        options: &Options,
        id: CallId,
        inputs: CapturedInputs,
        announced: bool,
    ) {
        if self.finished {
            return;
        }
        self.call(id).waiting = Some(inputs);
        if !announced {
            self.settle(options, id);
        }
    }

    /// Makes a call's inputs final: names the files of its tensors and tells the journal.
    fn settle(&mut self, options: &Options, id: CallId) {
        if let Some(waiting) = self.call(id).waiting.take()
            && self.calls[id.0].selected
        {
            let mut inputs = Inputs::default();
            for (label, captured) in waiting {
                match label {
                    Some(label) => {
                        let value =
                            self.keep(DumpName::kwarg(&self.calls[id.0].node, &label), captured);
                        inputs.kwargs.push((label, value));
                    }
                    None => {
                        let name = DumpName::arg(&self.calls[id.0].node, inputs.args.len());
                        let value = self.keep(name, captured);
                        inputs.args.push(value);
                    }
                }
            }
            self.call(id).node.inputs = Some(inputs);
        }
        if self.calls[id.0].selected {
            self.journal_beginning(options, id);
        }
    }

    pub(super) fn journal_beginning(
        &mut self,
        options: &Options,
        id: CallId,
    ) -> Option<jsonl::CallId> {
        if let Some(known) = self.calls[id.0].journaled {
            return Some(known);
        }
        // A call that the filters leave out still has its place above one they let in.
        let parent = match self.calls[id.0].parent {
            Some(parent) => Some(self.journal_beginning(options, parent)?),
            None => None,
        };
        self.open_journal(options);
        match self.journal.as_mut()?.enter(parent, &self.calls[id.0].node) {
            Ok(number) => self.calls[id.0].journaled = Some(number),
            Err(error) => self.failed(error),
        }
        self.calls[id.0].journaled
    }

    /// Whether the filters want the call's values.
    pub(crate) fn wants(&self, id: CallId) -> bool {
        self.calls[id.0].selected
    }

    pub(crate) fn is_over(&self, id: CallId) -> bool {
        self.calls[id.0].over
    }

    /// Ends a call that returned; `outputs` where they are wanted.
    pub(crate) fn returned(&mut self, options: &Options, id: CallId, outputs: Option<Captured>) {
        if self.finished {
            return;
        }
        self.settle(options, id);
        let elapsed = self
            .now()
            .saturating_sub(self.calls[id.0].node.time.map_or(0, |time| time.start_ns));
        if let Some(captured) = outputs {
            let value = self.keep(DumpName::outputs(&self.calls[id.0].node), captured);
            self.call(id).node.outputs = Some(value);
        }
        let call = self.call(id);
        call.node.complete = true;
        if let Some(time) = &mut call.node.time {
            time.elapsed_ns = Some(elapsed);
        }
        self.end(id);
    }

    /// Ends a call that will never return.
    pub(crate) fn abandoned(&mut self, options: &Options, id: CallId, panicking: bool) {
        self.panicked |= panicking;
        if !self.finished && !self.is_over(id) {
            self.settle(options, id);
            self.end(id);
        }
    }

    fn end(&mut self, id: CallId) {
        self.call(id).over = true;
        let call = &self.calls[id.0];
        if let (Some(number), Some(journal)) = (call.journaled, &mut self.journal)
            && let Err(error) = journal.exit(number, &call.node)
        {
            self.failed(error);
        }
    }

    /// Turns a captured value into the kept one, sending the elements of its tensors to their files.
    fn keep(&mut self, name: DumpName, captured: Captured) -> Value {
        match captured {
            Captured::Text(text) => Value::Text(text),
            Captured::List(values) => Value::List(
                values
                    .into_iter()
                    .enumerate()
                    .map(|(index, value)| self.keep(name.clone().index(index), value))
                    .collect(),
            ),
            Captured::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let value = self.keep(name.clone().key(&key), value);
                        (key, value)
                    })
                    .collect(),
            ),
            Captured::Tensor(tensor) => Value::Tensor(self.keep_tensor(&name, tensor)),
        }
    }

    fn keep_tensor(&mut self, name: &DumpName, tensor: CapturedTensor) -> Arc<TensorRecord> {
        let record = tensor.record;
        let with_file = |file: String| {
            let mut record = (*record).clone();
            record.value = Some(TensorValue::File(file));
            Arc::new(record)
        };
        match tensor.elements {
            Elements::NotWanted => record,
            Elements::OverBudget => {
                self.dumps.drop_one();
                record
            }
            Elements::Copied(bytes) => {
                let size = bytes.len();
                if !self.dumps.reserve(size, || ()) {
                    return record;
                }
                let file = self.dump_names.reserve(name);
                let job = Job {
                    name: file.clone(),
                    dtype: dump_dtype(&record.dtype),
                    shape: record.shape.clone(),
                    elements: dump::Elements::Host(bytes),
                };
                self.dumps.submit(job, size);
                with_file(file)
            }
            #[cfg(feature = "fusion")]
            Elements::OnDevice(primitive) => {
                let dtype = dump_dtype(&record.dtype);
                let count = record.shape.iter().product::<usize>();
                let size = count * dtype.size().unwrap_or(0);
                // Room is made by files whose copies wait in this thread's own stream.
                if !self.dumps.reserve(size, || self.device.drain()) {
                    return record;
                }
                let file = self.dump_names.reserve(name);
                let dump = DeviceDump {
                    queue: self.dumps.clone(),
                    name: file.clone(),
                    dtype,
                    shape: record.shape.clone(),
                    reserved: size,
                };
                self.device.dump(primitive, dump);
                with_file(file)
            }
        }
    }

    pub(super) fn failed(&mut self, error: WriteError) {
        self.journal = None;
        self.failure.get_or_insert(error);
    }

    /// The name of the trace: as asked for, else the attached model's, else the first call's type.
    pub(crate) fn name(&self, options: &Options) -> String {
        self.fixed_name
            .clone()
            .or_else(|| options.name.clone())
            .or_else(|| self.names.first_root().map(str::to_owned))
            .or_else(|| {
                self.roots
                    .first()
                    .map(|root| self.calls[root.0].receiver.kind().to_owned())
            })
            .unwrap_or_else(|| "Model".to_owned())
    }

    pub(super) fn open_journal(&mut self, options: &Options) {
        if self.journal.is_some() || self.failure.is_some() {
            return;
        }
        let name = self.name(options);
        self.fixed_name = Some(name.clone());
        match JsonlWriter::create(record_path(&self.folder, &name), &options.header(&name)) {
            Ok(journal) => {
                self.journal = Some(journal);
                // Of an earlier run under this name, which would be taken for this one's.
                if let Err(error) = remove_trees(&self.folder, &name) {
                    self.failed(error);
                }
            }
            Err(error) => self.failed(error),
        }
    }
}

/// A quantised tensor is dumped as the f32 values it stands for.
pub(crate) fn dump_dtype(dtype: &crate::summary::DType) -> crate::summary::DType {
    match dtype {
        crate::summary::DType::Quantized(_) => crate::summary::DType::F32,
        dtype => dtype.clone(),
    }
}
