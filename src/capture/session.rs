//! One tracing session: the model's names, running, and the files at the end.

#[cfg(feature = "fusion")]
use std::collections::HashMap;
use std::{
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use burn::module::Module;

#[cfg(feature = "fusion")]
use super::{
    Dump,
    fusion::{self, DeviceLog, LogSettings},
};
use super::{
    dump::{DumpLimits, DumpQueue},
    names::Attached,
    record::{CallId, Record},
    scope::{self, Entered},
    settings::{Options, SessionBuilder},
    tensor::{Seen, TensorCache},
    watch::{NonFinite, Watch, Watched},
};
use crate::{
    format::{self, WriteError},
    trace::{TensorRecord, Trace, prune},
};

/// What the threads of a session share.
pub struct Shared {
    options: Options,
    record: Mutex<Record>,
    tensors: Mutex<TensorCache>,
    /// Gives out the numbers of tensors.
    ids: Arc<AtomicU64>,
    dumps: DumpQueue,
    /// How many runs began.
    runs: AtomicU64,
    /// Set once somebody watches.
    watched: OnceLock<Arc<Watched>>,
    #[cfg(feature = "fusion")]
    device: Arc<DeviceLog>,
    /// The records of devices' tensors, by their numbers.
    #[cfg(feature = "fusion")]
    on_device: Mutex<HashMap<u64, Arc<TensorRecord>>>,
}

impl Shared {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    // A panic while one of these is held leaves it consistent, at worst without one record; a traced
    // model's panic must not take the session with it.
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where tensor files are queued.
    pub(crate) fn dumps(&self) -> &DumpQueue {
        &self.dumps
    }

    /// Looks at a call that returned, if the session is watched; returns why the program must end.
    pub(crate) fn watch_call(&self, call: CallId) -> Option<String> {
        let watched = self.watched.get()?;
        watched.returned(&self.record().call(call).node)
    }

    /// The number of a run that begins.
    pub(crate) fn next_run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed)
    }

    /// What this session learns of CubeCL devices.
    #[cfg(feature = "fusion")]
    pub(crate) fn device(&self) -> &Arc<DeviceLog> {
        &self.device
    }

    /// The record of a tensor: made now, unless the same tensor was seen before.
    pub(crate) fn describe(&self, seen: &Seen) -> Arc<TensorRecord> {
        match seen {
            Seen::Host(tensor) => {
                TensorCache::record(&self.tensors, tensor, &self.ids, &self.options)
            }
            #[cfg(feature = "fusion")]
            Seen::Device(tensor) => {
                let id = self.device.see(&tensor.primitive);
                let records = self.on_device.lock();
                let mut records = records.unwrap_or_else(PoisonError::into_inner);
                let record = records.entry(id);
                record
                    .or_insert_with(|| Arc::new(tensor.record(id)))
                    .clone()
            }
        }
    }
}

/// A tracing session: attach a model, run it, finish.
///
/// ```no_run
/// # use burn::{module::Module, nn, tensor::{Device, Tensor}};
/// # #[derive(Module, Debug)] struct Net { fc: nn::Linear }
/// # #[burnscope::trace] impl Net { fn forward(&self, x: Tensor<2>) -> Tensor<2> { self.fc.forward(x) } }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Device::flex();
/// # let model = Net { fc: nn::LinearConfig::new(2, 2).init(&device) };
/// # let x = Tensor::<2>::zeros([1, 2], &device);
/// let session = burnscope::Session::builder("trace").start()?;
/// session.attach("Net", &model);
/// let output = session.run(|| model.forward(x));
/// let trace = session.finish()?;
/// # Ok(())
/// # }
/// ```
///
/// Dropped without [`Session::finish`], by a panic for instance, it writes what it has.
pub struct Session {
    shared: Arc<Shared>,
    folder: PathBuf,
    finished: bool,
}

impl Session {
    /// Settings for a session that writes into `folder`.
    pub fn builder(folder: impl Into<PathBuf>) -> SessionBuilder {
        SessionBuilder::new(folder.into())
    }

    /// Starts a session with these settings.
    pub(super) fn start(folder: PathBuf, options: Options) -> Result<Self, WriteError> {
        // Found out now rather than after a long run.
        format::prepare_folder(&folder)?;
        let ids = Arc::new(AtomicU64::new(0));
        let limits = DumpLimits {
            total: options.dump_budget,
            in_flight: usize::try_from(options.dump_memory).unwrap_or(usize::MAX),
        };
        let dumps = DumpQueue::new(folder.clone(), limits);
        #[cfg(feature = "fusion")]
        let device = {
            let settings = LogSettings {
                edges: options.dump == Dump::Repr,
                // Which operations the filters leave is known when their modules are concluded.
                dumps: (options.dump == Dump::Safetensors && !options.filters())
                    .then(|| dumps.clone()),
                prefix: options.name.as_deref().map_or_else(String::new, |name| {
                    format!("{}.", format::dump::file_stem(name))
                }),
            };
            let device = DeviceLog::new(settings, ids.clone());
            device.start().map_err(|source| WriteError::Io {
                path: folder.clone(),
                source,
            })?;
            device
        };
        let record = Record::new(
            folder.clone(),
            dumps.clone(),
            #[cfg(feature = "fusion")]
            device.clone(),
        );
        let shared = Shared {
            options,
            record: Mutex::new(record),
            tensors: Mutex::default(),
            ids,
            dumps,
            runs: AtomicU64::new(0),
            watched: OnceLock::new(),
            #[cfg(feature = "fusion")]
            device,
            #[cfg(feature = "fusion")]
            on_device: Mutex::default(),
        };
        let shared = Arc::new(shared);
        #[cfg(feature = "fusion")]
        if !shared.options.filters() {
            // What the filters leave of operations is known when their modules are concluded.
            let session = Arc::downgrade(&shared);
            shared.device.publish_operations(move |ops| {
                if let Some(session) = session.upgrade() {
                    session.record().publish(&session.options, &ops);
                }
            });
        }
        Ok(Self {
            shared,
            folder,
            finished: false,
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where the files are written.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Learns the names of every parameter and submodule of `model`, which gets the name `name`.
    ///
    /// Paths follow parameters, not addresses: the model may be moved or cloned afterwards. Lazy
    /// parameters stay uninitialised, except on CubeCL devices: there operations know a parameter by
    /// its memory, so it must have some.
    pub fn attach<M: Module>(&self, name: &str, model: &M) {
        let segments = &self.shared.options.segments;
        #[cfg(feature = "fusion")]
        if model
            .devices()
            .iter()
            .any(burn::tensor::Device::is_autodiff)
        {
            self.shared.device.autodiff_seen();
        }
        #[cfg(feature = "fusion")]
        {
            let initialised = scope::unrecorded(|| {
                fusion::parameters(model, |path, tensor| {
                    let path = format!("{name}.{}", segments.rename(path));
                    self.shared.device.parameter(path, tensor);
                })
            });
            if initialised > 0 {
                self.note(&format!(
                    "attaching {name} initialised {initialised} of its parameters: random numbers that are \
                     drawn later are others than without a session"
                ));
            }
        }
        // The model's own code may call what is traced: the session is not locked here.
        let attached = Attached::of(model);
        self.shared.record().names.attach(name, attached, segments);
    }

    /// Looks for the first operation that makes a NaN or an infinity out of finite tensors, from the
    /// next run on. A NaN out of infinities counts, too, as of an attention row that is masked as a
    /// whole. What creates a tensor does not, nor what is given an infinite scalar, as the filling of
    /// a mask.
    ///
    /// What is found is a note of the trace and, as a value, in the returned [`Watch`]: the operation
    /// with its module, its number and the numbers of its tensors. It costs no synchronisation: the
    /// device summarises every result anyway.
    ///
    /// Where operations are not seen (on Flex, or without [`install`](crate::install)) whole calls of
    /// traced methods are judged by their arguments and results, inner ones first, and the report says
    /// so.
    ///
    /// # Stopping
    /// With [`NonFinite::Stop`] no operation of this session's runs is run any more, once the device's
    /// numbers are back: some hundred operations later, about. Whoever then reads a tensor that such
    /// an operation should have made gets an error that names the guilty one: `into_data` panics with
    /// it, `try_into_data` returns it. Where calls are judged, the guilty one panics as it returns: on Flex
    /// alone, since the numbers of a GPU's tensors are not there by then. On a GPU without
    /// [`install`](crate::install) nothing is stopped, and the first guilty call is reported at the end.
    ///
    /// ```
    /// # use burn::{module::Module, tensor::{Device, Tensor}};
    /// # use burnscope::{NonFinite, Session};
    /// # #[derive(Module, Debug)] struct Log { #[module(skip)] scale: f32 }
    /// # #[burnscope::trace]
    /// # impl Log { fn forward(&self, x: Tensor<1>) -> Tensor<1> { (x * self.scale).log() } }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let model = Log { scale: 1.0 };
    /// let x = Tensor::<1>::from_floats([1.0, -1.0], &Device::flex());
    /// let session = Session::builder(folder.path()).start()?;
    /// session.attach("Log", &model);
    /// let watch = session.watch(NonFinite::Report);
    /// session.run(|| model.forward(x));
    /// session.finish()?;
    /// let first = watch.first().expect("the logarithm of -1 is NaN");
    /// assert_eq!(first.path.as_deref(), Some("Log"));
    /// assert_eq!(first.outputs[0].summary.as_ref().map(|summary| summary.nan), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self, what: NonFinite) -> Watch {
        let watched = self.shared.watched.get_or_init(Arc::default);
        watched.also(what);
        #[cfg(feature = "fusion")]
        {
            let shared = Arc::downgrade(&self.shared);
            let stop = what == NonFinite::Stop;
            self.shared.device.watch(stop, move |(mut first, call)| {
                let shared = shared.upgrade()?;
                first.path = call.map(|call| shared.record().call(call).node.path.clone());
                shared.watched.get()?.found(first)
            });
        }
        Watch(watched.clone())
    }

    /// Says something in every file.
    pub(crate) fn note(&self, text: &str) {
        self.shared.record().note(text.to_owned());
    }

    /// Runs `run` with this session recording on this thread.
    pub fn run<R>(&self, run: impl FnOnce() -> R) -> R {
        let _guard = self.enter();
        run()
    }

    /// Records on this thread as long as the result lives, which borrows nothing.
    pub(crate) fn stay(&self) -> Stay {
        Stay {
            _entered: scope::stay(&self.shared),
            _leaving: Leaving::new(&self.shared),
            _thread: PhantomData,
        }
    }

    /// Records on this thread until the guard is dropped. Do not hold it across an `.await`.
    pub fn enter(&self) -> SessionGuard<'_> {
        SessionGuard {
            _entered: scope::stay(&self.shared),
            _leaving: Leaving::new(&self.shared),
            _session: PhantomData,
        }
    }

    /// Writes the files and returns what was recorded.
    ///
    /// # Errors
    /// If a file could not be written, now or during the run.
    pub fn finish(mut self) -> Result<Trace, WriteError> {
        self.write()
    }

    fn write(&mut self) -> Result<Trace, WriteError> {
        self.finished = true;
        let options = self.shared.options();
        #[cfg(feature = "fusion")]
        let device = self.shared.device.finish();
        let (trace, failure) = self.shared.record().finish(
            options,
            self.shared.watched.get().map(Arc::as_ref),
            #[cfg(feature = "fusion")]
            device,
        );
        let mut shown = None;
        if options.prune_layers {
            let mut pruned = trace.clone();
            prune(&mut pruned);
            shown = Some(pruned);
        }
        let written = format::write_all(&self.folder, shown.as_ref().unwrap_or(&trace));
        match failure {
            // The first failure explains the later ones.
            Some(failure) => Err(failure),
            None => match written {
                Ok(_) => Ok(trace),
                // The record and the returned trace have it all.
                Err(error @ WriteError::TooDeep) => {
                    let mut trace = trace;
                    trace.notes.push(error.to_string());
                    Ok(trace)
                }
                Err(error) => Err(error),
            },
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to tell; the files that could be written say what they lack.
            let _ = self.write();
        }
    }
}

/// Recording on this thread; made by [`Session::enter`].
pub struct SessionGuard<'s> {
    // Dropped in this order.
    _entered: Entered,
    _leaving: Leaving,
    /// A guard belongs to the thread whose stack it is on.
    _session: PhantomData<(&'s Session, *const ())>,
}

/// Recording on this thread; made by [`Session::stay`].
pub(crate) struct Stay {
    // Dropped in this order.
    _entered: Entered,
    _leaving: Leaving,
    _thread: PhantomData<*const ()>,
}

/// What is to be done where a thread's run ends.
struct Leaving {
    session: Arc<Shared>,
    /// Whether a panic was on its way when the run began.
    panicking: bool,
}

impl Leaving {
    fn new(session: &Arc<Shared>) -> Self {
        Self {
            session: session.clone(),
            panicking: std::thread::panicking(),
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.panicking && std::thread::panicking() {
            self.session.record().panicked = true;
        }
        // The session may end on another thread: what this one asked for must be recorded then.
        #[cfg(feature = "fusion")]
        self.session.device.leave();
    }
}
