//! What a session remembers while it runs: every call with its place in the tree, and the journal on disk.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Instant};

use super::{
    dump::{DumpWriter, Job},
    names::ModuleNames,
    probe::Receiver,
    session::Options,
    value::{Captured, Elements},
};
use crate::{
    format::{
        WriteError,
        dump::{DumpName, DumpNames},
        jsonl::{self, JsonlWriter},
        record_path,
    },
    trace::{Attribution, Inputs, Node, TensorValue, Time, Trace, Value},
};

/// A call's number within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(usize);

/// Arguments as they were captured: under a name, or without one.
pub(crate) type CapturedInputs = Vec<(Option<String>, Captured)>;

/// One call, finished or not.
struct Call {
    parent: Option<CallId>,
    children: Vec<CallId>,
    node: Node,
    receiver: Receiver,
    /// What the caller's source calls the module; empty where the call was not seen from outside.
    hint: String,
    /// Whether the path filters want it.
    selected: bool,
    /// The inputs of a call seen from outside, until it is clear whether the callee records itself.
    waiting: Option<CapturedInputs>,
    /// The call's number in the journal, once its beginning is there.
    journaled: Option<jsonl::CallId>,
    /// Whether it returned or was given up.
    over: bool,
    /// How often each hint was used for a child, to number the elements of a list of modules.
    hints: HashMap<String, u64>,
}

/// Everything that changes during a session.
pub(crate) struct Record {
    folder: PathBuf,
    started: Instant,
    pub(crate) names: ModuleNames,
    calls: Vec<Call>,
    roots: Vec<CallId>,
    /// Calls per root call and path.
    counts: HashMap<(u64, String), u64>,
    journal: Option<JsonlWriter>,
    dumps: DumpWriter,
    dump_names: DumpNames,
    dumped_bytes: u64,
    dropped: u64,
    notes: Vec<String>,
    /// The first thing that could not be written.
    failure: Option<WriteError>,
    panicked: bool,
}

impl Record {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            started: Instant::now(),
            names: ModuleNames::default(),
            calls: Vec::new(),
            roots: Vec::new(),
            counts: HashMap::new(),
            journal: None,
            dumps: DumpWriter::new(folder.clone()),
            folder,
            dump_names: DumpNames::default(),
            dumped_bytes: 0,
            dropped: 0,
            notes: Vec::new(),
            failure: None,
            panicked: false,
        }
    }

    fn call(&mut self, id: CallId) -> &mut Call {
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
            && (!call.receiver.is_module
                || (call.receiver.type_name == receiver.type_name
                    && call.receiver.address == receiver.address))
    }

    /// Begins a call and says whether its inputs are wanted.
    pub(crate) fn begin(
        &mut self,
        options: &Options,
        parent: Option<CallId>,
        receiver: Receiver,
        method: &str,
        hint: Option<&str>,
    ) -> (CallId, bool) {
        if let Some(parent) = parent {
            self.settle(options, parent);
        }
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
            hint: options.segments.rename(hint.unwrap_or_default()),
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
        (id, self.calls[id.0].selected)
    }

    /// Lets the callee take over the call that its caller announced, and says whether its inputs are
    /// wanted. Where the caller could not see a module behind its expression, the callee's identity
    /// decides the path.
    pub(crate) fn adopt(&mut self, options: &Options, id: CallId, receiver: Receiver) -> bool {
        let call = &mut self.calls[id.0];
        if !call.receiver.is_module {
            let step_and_path = (call.node.step, std::mem::take(&mut call.node.path));
            let (parent, hint) = (call.parent, call.hint.clone());
            call.receiver = receiver;
            if let Some(count) = self.counts.get_mut(&step_and_path) {
                *count -= 1;
            }
            if let Some(parent) = parent
                && let Some(count) = self.call(parent).hints.get_mut(&hint)
            {
                *count = count.saturating_sub(1);
            }
            self.place(options, id);
        }
        self.calls[id.0].selected
    }

    /// Gives a call its path and what follows from it.
    fn place(&mut self, options: &Options, id: CallId) {
        let (path, attribution) = self.resolve(options, id);
        let step = self.calls[id.0].node.step;
        let count = self.counts.entry((step, path.clone())).or_default();
        let number = std::mem::replace(count, *count + 1);
        let known = self.names.kind(&path).map(str::to_owned);
        let call = self.call(id);
        call.selected = options.selects(&path);
        call.node.kind = Some(known.unwrap_or_else(|| call.receiver.kind().to_owned()));
        call.node.path = path;
        call.node.call = number;
        call.node.attribution = attribution;
    }

    /// Gives a call its inputs; `announced` ones wait until the callee has had its chance to name them.
    pub(crate) fn inputs(
        &mut self,
        options: &Options,
        id: CallId,
        inputs: CapturedInputs,
        announced: bool,
    ) {
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
                        let value = self.keep(
                            options,
                            DumpName::kwarg(&self.calls[id.0].node, &label),
                            captured,
                        );
                        inputs.kwargs.push((label, value));
                    }
                    None => {
                        let name = DumpName::arg(&self.calls[id.0].node, inputs.args.len());
                        let value = self.keep(options, name, captured);
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

    fn journal_beginning(&mut self, options: &Options, id: CallId) -> Option<jsonl::CallId> {
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

    /// Whether a tensor file of `size` bytes is within the budget.
    pub(crate) fn has_room(&self, options: &Options, size: usize) -> bool {
        options
            .dump_budget
            .is_none_or(|budget| self.dumped_bytes.saturating_add(size as u64) <= budget)
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
        self.settle(options, id);
        let elapsed = self
            .now()
            .saturating_sub(self.calls[id.0].node.time.map_or(0, |time| time.start_ns));
        if let Some(captured) = outputs {
            let value = self.keep(options, DumpName::outputs(&self.calls[id.0].node), captured);
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
        if !self.is_over(id) {
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
    fn keep(&mut self, options: &Options, name: DumpName, captured: Captured) -> Value {
        match captured {
            Captured::Text(text) => Value::Text(text),
            Captured::List(values) => Value::List(
                values
                    .into_iter()
                    .enumerate()
                    .map(|(index, value)| self.keep(options, name.clone().index(index), value))
                    .collect(),
            ),
            Captured::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let value = self.keep(options, name.clone().key(&key), value);
                        (key, value)
                    })
                    .collect(),
            ),
            Captured::Tensor(tensor) => {
                let bytes = match tensor.elements {
                    Elements::NotWanted => return Value::Tensor(tensor.record),
                    Elements::Copied(bytes) if self.has_room(options, bytes.len()) => bytes,
                    Elements::Copied(_) | Elements::OverBudget => {
                        self.dropped += 1;
                        return Value::Tensor(tensor.record);
                    }
                };
                let file = self.dump_names.reserve(&name);
                self.dumped_bytes += bytes.len() as u64;
                let mut record = (*tensor.record).clone();
                record.value = Some(TensorValue::File(file.clone()));
                self.dumps.submit(Job {
                    name: file,
                    dtype: dump_dtype(&record.dtype),
                    shape: record.shape.clone(),
                    bytes,
                });
                Value::Tensor(Arc::new(record))
            }
        }
    }

    /// The path of the module that a call's receiver is, and how sure that is.
    fn resolve(&mut self, options: &Options, id: CallId) -> (String, Attribution) {
        let call = &self.calls[id.0];
        let (parent, step, hint) = (call.parent, call.node.step, call.hint.clone());
        let above = parent.map(|parent| &self.calls[parent.0]);
        if let Some(first) = &call.receiver.first_param {
            let mut found = self
                .names
                .candidates(first, &options.segments, call.receiver.kind());
            if let Some(above) = above
                && found.len() > 1
            {
                narrow(&mut found, &above.node.path, &hint);
            }
            if found.len() == 1 {
                return (found.remove(0), Attribution::Exact);
            }
            // Shared parameters: the calls are given to the paths in turn.
            let uses = |path: &String| {
                let count = self.counts.get(&(step, path.clone()));
                count.copied().unwrap_or(0)
            };
            if let Some(path) = found.iter().min_by_key(|path| uses(path)) {
                return (path.clone(), Attribution::Inferred);
            }
        }
        let (Some(parent), Some(above)) = (parent, above) else {
            let name = options.name.as_deref().or(self.names.first_root());
            let kind = call.receiver.kind();
            // A model without parameters, or one that was never attached, is taken for the root.
            return (name.unwrap_or(kind).to_owned(), Attribution::Inferred);
        };
        let path = above.node.path.clone();
        if hint == "self" && above.receiver.type_name == call.receiver.type_name {
            return (path, Attribution::Exact);
        }
        if hint.is_empty() {
            return (
                format!("{path}.{}", call.receiver.kind()),
                Attribution::Inferred,
            );
        }
        let named = format!("{path}.{hint}");
        let count = self.call(parent).hints.entry(hint).or_default();
        let index = std::mem::replace(count, *count + 1);
        // An element of a list of modules, called in a loop.
        let element = format!("{named}.{index}");
        if self.names.knows(&element) {
            return (element, Attribution::Exact);
        }
        let attribution = if self.names.knows(&named) {
            Attribution::Exact
        } else {
            Attribution::Inferred
        };
        (named, attribution)
    }

    fn failed(&mut self, error: WriteError) {
        self.journal = None;
        self.failure.get_or_insert(error);
    }

    /// The name of the trace: as asked for, else the attached model's, else the first call's type.
    pub(crate) fn name(&self, options: &Options) -> String {
        options
            .name
            .clone()
            .or_else(|| self.names.first_root().map(str::to_owned))
            .or_else(|| {
                self.roots
                    .first()
                    .map(|root| self.calls[root.0].receiver.kind().to_owned())
            })
            .unwrap_or_else(|| "Model".to_owned())
    }

    fn open_journal(&mut self, options: &Options) {
        if self.journal.is_some() || self.failure.is_some() {
            return;
        }
        let name = self.name(options);
        match JsonlWriter::create(record_path(&self.folder, &name), &options.header(&name)) {
            Ok(journal) => self.journal = Some(journal),
            Err(error) => self.failed(error),
        }
    }

    /// Ends the session: waits for the tensor files, closes the journal, builds the trace.
    pub(crate) fn finish(&mut self, options: &Options) -> (Trace, Option<WriteError>) {
        if self.dropped > 0 {
            self.note(format!(
                "the dump budget of {} bytes was reached: {} tensors have a summary but no file",
                options.dump_budget.unwrap_or_default(),
                self.dropped,
            ));
        }
        if let Err(lost) = self.dumps.finish() {
            self.note(format!(
                "{} tensor files could not be written, {} first",
                lost.files, lost.name
            ));
            self.failure.get_or_insert(lost.error);
        }
        let complete = !self.panicked
            && self
                .roots
                .iter()
                .all(|root| self.calls[root.0].node.complete);
        self.open_journal(options);
        if let Some(journal) = self.journal.take()
            && let Err(error) = close(journal, &self.notes, complete)
        {
            self.failure.get_or_insert(error);
        }
        let name = self.name(options);
        let roots = std::mem::take(&mut self.roots);
        let trace = Trace {
            name,
            source: concat!("burnscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            roots: roots
                .into_iter()
                .filter_map(|root| self.build(root))
                .collect(),
            complete,
            notes: std::mem::take(&mut self.notes),
        };
        (trace, self.failure.take())
    }

    /// The node of a call with its children; `None` where the filters leave nothing of it.
    fn build(&mut self, id: CallId) -> Option<Node> {
        let children = std::mem::take(&mut self.call(id).children);
        let children: Vec<Node> = children
            .into_iter()
            .filter_map(|child| self.build(child))
            .collect();
        let call = self.call(id);
        if !call.selected && children.is_empty() {
            return None;
        }
        let mut node = std::mem::take(&mut call.node);
        node.children = children;
        Some(node)
    }
}

/// Of several paths, keeps those that the caller's own path and the name in its source speak for.
fn narrow(found: &mut Vec<String>, within: &str, hint: &str) {
    let prefix = format!("{within}.");
    let named = format!("{prefix}{hint}");
    let element = format!("{named}.");
    let called = |path: &String| *path == named || path.starts_with(&element);
    if !hint.is_empty() && found.iter().any(called) {
        found.retain(called);
    } else if found.iter().any(|path| path.starts_with(&prefix)) {
        found.retain(|path| path.starts_with(&prefix));
    }
}

/// A quantised tensor is dumped as the f32 values it stands for.
fn dump_dtype(dtype: &crate::summary::DType) -> crate::summary::DType {
    match dtype {
        crate::summary::DType::Quantized(_) => crate::summary::DType::F32,
        dtype => dtype.clone(),
    }
}

fn close(mut journal: JsonlWriter, notes: &[String], complete: bool) -> Result<(), WriteError> {
    for note in notes {
        journal.note(note)?;
    }
    journal.finish(complete)
}
