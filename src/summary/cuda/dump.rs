//! Whole tensors on their way from the device to a sink: staged, bounded, in the background.
//!
//! A dump records an event on the producer's stream and returns. A thread of its own lets a copy
//! stream wait for that event, copies the tensor in pieces to a fixed pool of pinned buffers and
//! writes each piece when its own event has passed, while the next ones are copied. Layouts with
//! gaps are gathered on the device, piece by piece. The caller's keep-alive is dropped only after
//! the last piece was copied, so that nobody reuses the memory before.

use std::{
    any::Any,
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use super::{
    CudaError, DevicePointer, DeviceTensor, Elements, ProducerStream,
    batch::{Gather, element_bytes},
    driver::{Device, DeviceBuffer, Event, Landing, Stream},
    layout::Walk,
};

/// How much memory dumps may take.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// Bytes of one pinned buffer; rounded up to 16.
    pub piece_bytes: usize,
    /// How many pinned buffers; at least 1.
    pub pieces: usize,
    /// Bytes of tensors that may wait to be copied and are kept alive meanwhile. A dump beyond it
    /// blocks its caller; one tensor may always wait.
    pub waiting_bytes: u64,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            piece_bytes: 8 << 20,
            pieces: 4,
            waiting_bytes: 1 << 30,
        }
    }
}

/// Why a tensor was not dumped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The device or its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The sink took no more.
    #[error("writing a dump: {0}")]
    Write(#[from] io::Error),
}

/// Where a dump goes. It is called on the writer's thread.
pub trait DumpSink: Send {
    /// Takes the next bytes of the tensor, in row-major order without gaps.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being written; the dump ends and `close` is told.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// The end of the dump: all bytes were written, or why not.
    fn close(self: Box<Self>, outcome: Result<(), DumpError>);
}

/// Copies tensors of one CUDA device to sinks, in the order they were handed in.
pub struct Dumper {
    device: Arc<Device>,
    jobs: Option<mpsc::Sender<Job>>,
    waiting: Arc<Waiting>,
    limit: u64,
    writer: Option<JoinHandle<()>>,
}

struct Job {
    ready: Event,
    source: Source,
    keep: Box<dyn Any + Send>,
    sink: Box<dyn DumpSink>,
    cost: u64,
}

/// How the tensor's bytes are copied: as they lie, or gathered.
struct Source {
    data: DevicePointer,
    bytes: u64,
    /// With the size of an element.
    gather: Option<(Gather, u64)>,
}

/// Bytes that jobs keep alive, and whether anybody still works on them.
#[derive(Default)]
struct Waiting {
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, (u64, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `cost` fits under `limit` or nothing else waits.
    fn enter(&self, cost: u64, limit: u64) -> Result<(), CudaError> {
        let mut state = self.lock();
        while !state.1 && state.0 > 0 && state.0.saturating_add(cost) > limit {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.1 {
            return Err(CudaError::WriterStopped);
        }
        state.0 += cost;
        Ok(())
    }

    fn leave(&self, cost: u64) {
        self.lock().0 -= cost;
        self.changed.notify_all();
    }
}

impl Dumper {
    /// Allocates the pool and starts the writer's thread.
    ///
    /// # Errors
    /// If the device cannot be used, or memory or the thread cannot be had.
    pub fn new(ordinal: usize, options: DumpOptions) -> Result<Self, DumpError> {
        let device = Device::new(ordinal)?;
        device.bind()?;
        let piece_bytes = options.piece_bytes.max(1).next_multiple_of(16);
        let piece = || {
            Ok(Piece {
                landing: Landing::new(&device, piece_bytes)?,
                staging: None,
            })
        };
        let waiting = Arc::new(Waiting::default());
        let (jobs, queue) = mpsc::channel();
        let writer = Writer {
            stream: Stream::new(&device)?,
            idle: (0..options.pieces.max(1))
                .map(|_| piece())
                .collect::<Result<_, CudaError>>()?,
            piece_bytes: piece_bytes as u64,
            under_way: VecDeque::new(),
            active: VecDeque::new(),
            waiting: waiting.clone(),
            device: device.clone(),
        };
        let writer = thread::Builder::new()
            .name("burnscope-dump".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok(Self {
            device,
            jobs: Some(jobs),
            waiting,
            limit: options.waiting_bytes,
            writer: Some(writer),
        })
    }

    /// Hands a tensor over, to be copied once `stream` has come past its work so far.
    ///
    /// Returns before anything is copied, unless more tensors wait than the options allow.
    /// `keep` is dropped when the copy is done. A quantised tensor is dumped as what it is stored
    /// in: describe it as plain bytes or words.
    ///
    /// A tensor whose layout cannot be walked, a driver that refuses, a writer that has stopped:
    /// all end in the sink's `close`.
    ///
    /// # Safety
    /// Every element is inside memory of the device that stays allocated and unwritten, after the
    /// work that `stream` has now, for as long as `keep` lives.
    pub unsafe fn dump(
        &self,
        stream: ProducerStream,
        tensor: &DeviceTensor,
        keep: Box<dyn Any + Send>,
        sink: Box<dyn DumpSink>,
    ) {
        /// What a job costs beyond the tensor it keeps.
        const JOB_BYTES: u64 = 4096;
        let prepared = Source::new(tensor).and_then(|source| {
            self.device.bind()?;
            let mut ready = Event::new(&self.device)?;
            ready.record(stream)?;
            let cost = source.bytes + JOB_BYTES;
            self.waiting.enter(cost, self.limit)?;
            Ok((ready, source, cost))
        });
        let (ready, source, cost) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return sink.close(Err(error.into())),
        };
        let job = Job {
            ready,
            source,
            keep,
            sink,
            cost,
        };
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|mpsc::SendError(job)| job),
            None => Some(job),
        };
        if let Some(job) = refused {
            job.sink.close(Err(CudaError::WriterStopped.into()));
        }
    }

    /// Waits until every dump is written and its sink closed.
    ///
    /// # Errors
    /// If the writer's thread has panicked.
    pub fn finish(mut self) -> Result<(), CudaError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), CudaError> {
        drop(self.jobs.take());
        match self.writer.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(CudaError::WriterStopped),
            _ => Ok(()),
        }
    }
}

impl Drop for Dumper {
    fn drop(&mut self) {
        // A panic of the writer was printed by its thread.
        let _ = self.stop();
    }
}

impl Source {
    fn new(tensor: &DeviceTensor) -> Result<Self, CudaError> {
        if let Elements::Quantized(_) = tensor.elements {
            return Err(CudaError::Unsupported(
                "a quantised tensor's dump".to_owned(),
            ));
        }
        if let Elements::Plain(dtype) = &tensor.elements
            && dtype.size().is_none()
        {
            return Err(CudaError::Unsupported(dtype.to_string()));
        }
        let size = element_bytes(&tensor.elements);
        let walk = Walk::logical(&tensor.shape, &tensor.strides)?;
        let gather = (!walk.is_contiguous() && walk.count > 0)
            .then(|| (Gather::new(tensor.data, &walk, size), size));
        Ok(Self {
            data: tensor.data,
            bytes: walk.count * size,
            gather,
        })
    }
}

/// A pinned buffer, and device memory to gather in where it was needed once.
struct Piece {
    landing: Landing,
    staging: Option<DeviceBuffer>,
}

/// A job of which something is copied or about to be.
struct Active {
    job: Job,
    /// Bytes whose copy was started, and bytes that were written or given up.
    started: u64,
    finished: u64,
    outcome: Result<(), DumpError>,
}

impl Active {
    /// Whether no copy is left to be started.
    fn is_started(&self) -> bool {
        self.outcome.is_err() || self.started == self.job.source.bytes
    }

    fn is_finished(&self) -> bool {
        self.is_started() && self.finished == self.started
    }
}

/// What the writer's thread owns.
struct Writer {
    stream: Stream,
    idle: Vec<Piece>,
    piece_bytes: u64,
    /// Copies in the order they were started, with their lengths.
    under_way: VecDeque<(Piece, u64)>,
    /// Jobs in the order they came; only the last one may have copies left to start.
    active: VecDeque<Active>,
    waiting: Arc<Waiting>,
    device: Arc<Device>,
}

impl Writer {
    fn run(mut self, queue: &mpsc::Receiver<Job>) {
        let bound = self.device.bind();
        loop {
            self.start_copies(queue, &bound);
            self.close_finished();
            if self.write_oldest() {
                continue;
            }
            if self.active.is_empty() {
                match queue.recv() {
                    Ok(job) => self.accept(job, &bound),
                    Err(mpsc::RecvError) => return,
                }
            }
        }
    }

    /// Starts copies as long as there are buffers and jobs.
    fn start_copies(&mut self, queue: &mpsc::Receiver<Job>, bound: &Result<(), CudaError>) {
        while !self.idle.is_empty() {
            if self.active.back().is_none_or(Active::is_started) {
                match queue.try_recv() {
                    Ok(job) => self.accept(job, bound),
                    Err(_) => return,
                }
                continue;
            }
            let (Some(active), Some(mut piece)) = (self.active.back_mut(), self.idle.pop()) else {
                return;
            };
            let bytes = self
                .piece_bytes
                .min(active.job.source.bytes - active.started);
            let copy = active.job.source.copy(
                active.started,
                bytes,
                &mut piece,
                &self.stream,
                &self.device,
                self.piece_bytes,
            );
            match copy {
                Ok(()) => {
                    active.started += bytes;
                    self.under_way.push_back((piece, bytes));
                }
                Err(error) => {
                    active.outcome = Err(error.into());
                    // The copy may run although its event could not be recorded.
                    let _ = self.stream.synchronize();
                    self.idle.push(piece);
                }
            }
        }
    }

    fn accept(&mut self, job: Job, bound: &Result<(), CudaError>) {
        let ready = bound
            .clone()
            .and_then(|()| self.stream.wait_for(&job.ready));
        self.active.push_back(Active {
            job,
            started: 0,
            finished: 0,
            outcome: ready.map_err(DumpError::from),
        });
    }

    /// Waits for the oldest copy and writes it; false if none is under way.
    fn write_oldest(&mut self) -> bool {
        let Some((piece, bytes)) = self.under_way.pop_front() else {
            return false;
        };
        // Copies come back in the order of their jobs.
        let Some(active) = self.active.iter_mut().find(|active| !active.is_finished()) else {
            return false;
        };
        let arrived = piece.landing.wait();
        if active.outcome.is_ok() {
            active.outcome = arrived.map_err(DumpError::from).and_then(|()| {
                let bytes = &piece.landing.bytes()[..bytes as usize];
                active.job.sink.write(bytes).map_err(DumpError::from)
            });
        }
        active.finished += bytes;
        self.idle.push(piece);
        self.close_finished();
        true
    }

    fn close_finished(&mut self) {
        while self.active.front().is_some_and(Active::is_finished) {
            let Some(Active { job, outcome, .. }) = self.active.pop_front() else {
                return;
            };
            drop(job.keep);
            job.sink.close(outcome);
            self.waiting.leave(job.cost);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Also after a panic: nobody may wait for this thread, and no copy outlive its buffers.
        let _ = self.stream.synchronize();
        self.waiting.lock().1 = true;
        self.waiting.changed.notify_all();
    }
}

impl Source {
    /// Starts the copy of `bytes` from byte `at` of the tensor on.
    fn copy(
        &mut self,
        at: u64,
        bytes: u64,
        piece: &mut Piece,
        stream: &Stream,
        device: &Arc<Device>,
        piece_bytes: u64,
    ) -> Result<(), CudaError> {
        let from = match &mut self.gather {
            None => self.data + at,
            Some((gather, size)) => {
                let staging = match &mut piece.staging {
                    Some(staging) => staging,
                    none => none.insert(DeviceBuffer::new(device, piece_bytes as usize)?),
                };
                gather.target = staging.pointer();
                (gather.first, gather.count) = (at / *size, bytes / *size);
                // SAFETY: `Dumper::dump` was promised the source; the staging memory holds a
                // piece and is this piece's alone.
                unsafe { device.launch_gather(gather, *size, stream) }?;
                gather.target
            }
        };
        // SAFETY: the source as above; a piece is reused only after its copy was awaited.
        unsafe {
            piece
                .landing
                .start(from, bytes as usize, stream.as_producer())
        }
    }
}
