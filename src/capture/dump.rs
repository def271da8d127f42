//! Tensor files written in the background while the model goes on.
//!
//! The queue holds a bounded number of bytes: a model that produces faster than the disk takes waits,
//! and memory stays flat.

use std::{
    io,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
};

use crate::{
    format::{WriteError, dump},
    summary::{DType, TensorView},
};

/// What is kept of tensors' elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dump {
    /// Nothing: summaries only.
    #[default]
    None,
    /// The lines that PyTorch would print.
    Repr,
    /// Every element, each tensor in a safetensors file of its own.
    Safetensors,
}

/// One tensor on its way to a file.
pub(crate) struct Job {
    /// The file's plain name.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Row-major elements.
    pub(crate) bytes: Vec<u8>,
}

/// The thread that writes tensor files, and its queue.
pub(crate) struct DumpWriter {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

struct Queue {
    folder: PathBuf,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: std::collections::VecDeque<Job>,
    /// Bytes waiting or being written.
    pending: usize,
    closed: bool,
    /// The first failure; later ones are only counted.
    failed: Option<(String, WriteError)>,
    lost: u64,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        // The state is consistent after every statement that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DumpWriter {
    /// The most bytes that wait for the disk at a time.
    const IN_FLIGHT: usize = 256 << 20;

    /// A writer into `folder`; its thread starts with the first file.
    pub(crate) fn new(folder: PathBuf) -> Self {
        let queue = Arc::new(Queue {
            folder,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        Self {
            queue,
            thread: None,
        }
    }

    /// Queues a file, waiting while too much is in flight.
    pub(crate) fn submit(&mut self, job: Job) {
        let size = job.bytes.len();
        let mut state = self.queue.lock();
        while state.pending > 0 && state.pending + size > Self::IN_FLIGHT {
            state = self
                .queue
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if self.thread.is_none() {
            let queue = self.queue.clone();
            let name = "burnscope dumps".to_owned();
            match std::thread::Builder::new()
                .name(name)
                .spawn(move || write_all(&queue))
            {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    let error = refused(&self.queue.folder, &job, error);
                    state.lost += 1;
                    state.failed.get_or_insert((job.name, error));
                    return;
                }
            }
        }
        state.pending += size;
        state.jobs.push_back(job);
        drop(state);
        self.queue.changed.notify_all();
    }

    /// Waits until every file is written.
    ///
    /// # Errors
    /// The first failure, with its file's name and how many files were lost in all.
    pub(crate) fn finish(&mut self) -> Result<(), Lost> {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread catches every failure itself and has no other way to panic.
            let _ = thread.join();
        }
        let mut state = self.queue.lock();
        let files = state.lost;
        match state.failed.take() {
            Some((name, error)) => Err(Lost { name, error, files }),
            None => Ok(()),
        }
    }
}

/// What could not be written.
pub(crate) struct Lost {
    /// The first such file.
    pub(crate) name: String,
    /// What went wrong with it.
    pub(crate) error: WriteError,
    /// How many there are in all.
    pub(crate) files: u64,
}

impl Drop for DumpWriter {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn write_all(queue: &Queue) {
    let mut state = queue.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panic here must not leave a producer waiting for room that never comes.
            let result =
                std::panic::catch_unwind(AssertUnwindSafe(|| write_one(&queue.folder, &job)))
                    .unwrap_or_else(|_| {
                        Err(refused(
                            &queue.folder,
                            &job,
                            io::Error::other("writing it panicked"),
                        ))
                    });
            state = queue.lock();
            state.pending -= job.bytes.len();
            if let Err(error) = result {
                state.lost += 1;
                state.failed.get_or_insert((job.name, error));
            }
            queue.changed.notify_all();
        } else if state.closed {
            return;
        } else {
            state = queue
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn write_one(folder: &Path, job: &Job) -> Result<(), WriteError> {
    let tensor = TensorView::contiguous(job.dtype.clone(), &job.shape, &job.bytes)
        .map_err(|error| refused(folder, job, io::Error::other(error)))?;
    dump::write_tensor(folder, &job.name, &tensor)?;
    Ok(())
}

fn refused(folder: &Path, job: &Job, source: io::Error) -> WriteError {
    WriteError::Io {
        path: folder.join(&job.name),
        source,
    }
}
