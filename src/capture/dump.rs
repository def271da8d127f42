//! Tensor files written in the background while the model goes on.
//!
//! The queue holds a bounded number of bytes, on the host and on devices together: a model that
//! produces faster than the disk takes waits, or drops files where it cannot wait, and memory stays
//! flat.

use std::{
    collections::VecDeque,
    io,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
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
    pub(crate) elements: Elements,
}

/// Where a job's elements are.
pub(crate) enum Elements {
    /// On the host, row-major.
    Host(Vec<u8>),
    /// Copied from their device, row-major.
    #[cfg(feature = "fusion")]
    Device(Arriving),
}

/// Waits for a copy of a tensor's elements that was started, or says why there is none.
#[cfg(feature = "fusion")]
pub(crate) type Arriving = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// How much may be dumped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpLimits {
    /// Bytes of all files together.
    pub(crate) total: Option<u64>,
    /// Bytes that wait for the disk at a time.
    pub(crate) in_flight: usize,
}

/// The thread that writes tensor files, and its queue; clones are the same one.
#[derive(Clone)]
pub(crate) struct DumpQueue(Arc<Queue>);

/// Without the state, which may be in use.
impl std::fmt::Debug for DumpQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DumpQueue")
            .field("folder", &self.0.folder)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

struct Queue {
    folder: PathBuf,
    limits: DumpLimits,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    thread: Option<JoinHandle<()>>,
    /// Bytes accepted that are not yet written.
    in_flight: usize,
    /// Bytes accepted since the beginning.
    accepted: u64,
    dropped: Dropped,
    closed: bool,
    /// The first failure; later ones are only counted.
    failed: Option<(String, WriteError)>,
    lost: u64,
}

/// Tensors that got no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Because of [`DumpLimits::total`].
    pub(crate) total: u64,
    /// Because of [`DumpLimits::in_flight`], where the program could not wait.
    pub(crate) in_flight: u64,
    /// Because their device gave no copy.
    pub(crate) not_copied: u64,
    /// The file and the reason of the first of those.
    pub(crate) first_not_copied: Option<(String, String)>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // The state is consistent after every statement that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DumpQueue {
    /// A queue into `folder`; its thread starts with the first file.
    pub(crate) fn new(folder: PathBuf, limits: DumpLimits) -> Self {
        Self(Arc::new(Queue {
            folder,
            limits,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Whether a file of `size` bytes is within the budget.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        let accepted = self.0.lock().accepted;
        let total = self.0.limits.total;
        total.is_none_or(|total| accepted.saturating_add(size as u64) <= total)
    }

    /// Takes room for a file of `size` bytes, waiting while too much is in flight.
    ///
    /// `before_waiting` sets going what the wait is for. False if the budget does not allow the file;
    /// it then counts as dropped.
    pub(crate) fn reserve(&self, size: usize, before_waiting: impl FnOnce()) -> bool {
        let mut before_waiting = Some(before_waiting);
        let mut state = self.0.lock();
        loop {
            if !self.within_total(&mut state, size) {
                return false;
            }
            if self.fits(&state, size) {
                break;
            }
            if let Some(before_waiting) = before_waiting.take() {
                drop(state);
                before_waiting();
                state = self.0.lock();
                continue;
            }
            let changed = self.0.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
        state.in_flight += size;
        state.accepted += size as u64;
        true
    }

    /// The same without waiting: a file that would have to wait is dropped.
    #[cfg(feature = "fusion")]
    pub(crate) fn try_reserve(&self, size: usize) -> bool {
        let mut state = self.0.lock();
        if !self.within_total(&mut state, size) {
            return false;
        }
        if !self.fits(&state, size) {
            state.dropped.in_flight += 1;
            return false;
        }
        state.in_flight += size;
        state.accepted += size as u64;
        true
    }

    fn within_total(&self, state: &mut QueueState, size: usize) -> bool {
        let limit = self.0.limits.total;
        let within = limit.is_none_or(|total| state.accepted.saturating_add(size as u64) <= total);
        state.dropped.total += u64::from(!within);
        within
    }

    /// A file larger than the limit goes alone.
    fn fits(&self, state: &QueueState, size: usize) -> bool {
        state.in_flight == 0 || state.in_flight.saturating_add(size) <= self.0.limits.in_flight
    }

    /// Notes that a tensor got no file for lack of room.
    pub(crate) fn drop_one(&self) {
        self.0.lock().dropped.total += 1;
    }

    /// Queues a file for which room was taken.
    pub(crate) fn submit(&self, job: Job, reserved: usize) {
        let mut state = self.0.lock();
        if state.thread.is_none() {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new()
                .name("burnscope dumps".to_owned())
                .spawn(move || write_all(&queue));
            match thread {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    let error = refused(&self.0.folder, &job.name, error);
                    return self.lose(state, job.name, reserved, error);
                }
            }
        }
        // Room is given back by what the job itself holds.
        state.in_flight -= reserved - job.size().min(reserved);
        state.jobs.push_back(job);
        drop(state);
        self.0.changed.notify_all();
    }

    /// Gives back the room of a file whose elements cannot be copied.
    #[cfg(feature = "fusion")]
    pub(crate) fn give_up(&self, name: String, reserved: usize, why: String) {
        let mut state = self.0.lock();
        state.in_flight -= reserved;
        state.dropped.not_copied += 1;
        state.dropped.first_not_copied.get_or_insert((name, why));
        drop(state);
        self.0.changed.notify_all();
    }

    fn lose(
        &self,
        mut state: MutexGuard<'_, QueueState>,
        name: String,
        reserved: usize,
        error: WriteError,
    ) {
        state.in_flight -= reserved;
        state.lost += 1;
        state.failed.get_or_insert((name, error));
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits until every file is written; says what was dropped for lack of room.
    ///
    /// # Errors
    /// The first failure, with its file's name and how many files were lost in all.
    pub(crate) fn finish(&self) -> (Dropped, Result<(), Lost>) {
        let thread = {
            let mut state = self.0.lock();
            state.closed = true;
            state.thread.take()
        };
        self.0.changed.notify_all();
        if let Some(thread) = thread {
            // The thread catches every failure itself and has no other way to panic.
            let _ = thread.join();
        }
        let mut state = self.0.lock();
        let files = state.lost;
        let result = match state.failed.take() {
            Some((name, error)) => Err(Lost { name, error, files }),
            None => Ok(()),
        };
        (std::mem::take(&mut state.dropped), result)
    }
}

impl Job {
    fn size(&self) -> usize {
        match &self.elements {
            Elements::Host(bytes) => bytes.len(),
            #[cfg(feature = "fusion")]
            Elements::Device(_) => {
                let elements = self.shape.iter().product::<usize>();
                elements * self.dtype.size().unwrap_or(0)
            }
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

fn write_all(queue: &Queue) {
    let mut state = queue.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            let (name, size) = (job.name.clone(), job.size());
            // A panic here must not leave a producer waiting for room that never comes.
            let result =
                std::panic::catch_unwind(AssertUnwindSafe(|| write_one(&queue.folder, job)))
                    .unwrap_or_else(|_| {
                        let error = io::Error::other("writing it panicked");
                        Err(refused(&queue.folder, &name, error))
                    });
            state = queue.lock();
            state.in_flight -= size;
            match result {
                Ok(None) => {}
                Ok(Some(why)) => {
                    state.dropped.not_copied += 1;
                    state.dropped.first_not_copied.get_or_insert((name, why));
                }
                Err(error) => {
                    state.lost += 1;
                    state.failed.get_or_insert((name, error));
                }
            }
            queue.changed.notify_all();
        } else if state.closed {
            return;
        } else {
            let changed = queue.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes a file; returns why its elements are not there, if their device did not give them.
fn write_one(folder: &Path, job: Job) -> Result<Option<String>, WriteError> {
    #[cfg_attr(
        not(feature = "fusion"),
        allow(clippy::infallible_destructuring_match, reason = "one kind of many")
    )]
    let bytes = match job.elements {
        Elements::Host(bytes) => bytes,
        #[cfg(feature = "fusion")]
        Elements::Device(arriving) => match arriving() {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Some(why)),
        },
    };
    let tensor = TensorView::contiguous(job.dtype, &job.shape, &bytes)
        .map_err(|error| refused(folder, &job.name, io::Error::other(error)))?;
    dump::write_tensor(folder, &job.name, &tensor)?;
    Ok(None)
}

fn refused(folder: &Path, name: &str, source: io::Error) -> WriteError {
    WriteError::Io {
        path: folder.join(name),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn queue(folder: &Path, total: Option<u64>, in_flight: usize) -> DumpQueue {
        DumpQueue::new(folder.to_owned(), DumpLimits { total, in_flight })
    }

    fn job(name: String, size: usize) -> Job {
        Job {
            name,
            dtype: DType::U8,
            shape: vec![size],
            elements: Elements::Host(vec![7; size]),
        }
    }

    impl DumpQueue {
        fn in_flight(&self) -> usize {
            self.0.lock().in_flight
        }
    }

    /// Looked at after every file, by threads that are all ahead of the disk.
    #[test]
    fn no_more_than_the_limit_is_ever_in_flight() {
        const LIMIT: usize = 25_000;
        let folder = tempfile::tempdir().unwrap();
        let queue = queue(folder.path(), None, LIMIT);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let queue = &queue;
                scope.spawn(move || {
                    for file in 0..60 {
                        let size = 4_000 + 1_000 * (file % 5);
                        assert!(queue.reserve(size, || ()));
                        assert!(queue.in_flight() <= LIMIT);
                        let name = format!("{thread}_{file}.safetensors");
                        queue.submit(job(name, size), size);
                        assert!(queue.in_flight() <= LIMIT);
                    }
                });
            }
        });
        let (dropped, written) = queue.finish();
        assert!(written.is_ok());
        assert_eq!(dropped, Dropped::default());
        assert_eq!(queue.in_flight(), 0);
        assert_eq!(folder.path().read_dir().unwrap().count(), 180);
    }

    #[test]
    fn who_finds_no_room_waits_until_a_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let queue = queue(folder.path(), None, 100);
        assert!(queue.reserve(60, || panic!("there is room")));
        let (sender, events) = mpsc::channel();
        std::thread::scope(|scope| {
            let (queue, sender) = (&queue, sender);
            scope.spawn(move || {
                let asked = sender.clone();
                // Larger than the limit: alone it may go.
                assert!(queue.reserve(150, || asked.send("waits").unwrap()));
                sender.send("has room").unwrap();
                queue.submit(job("second.safetensors".to_owned(), 150), 150);
            });
            assert_eq!(events.recv(), Ok("waits"));
            let early = events.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "it {} too early", early.unwrap());
            queue.submit(job("first.safetensors".to_owned(), 60), 60);
            assert_eq!(events.recv(), Ok("has room"));
        });
        assert!(queue.finish().1.is_ok());
        assert_eq!(folder.path().read_dir().unwrap().count(), 2);
    }

    #[cfg(feature = "fusion")]
    #[test]
    fn who_cannot_wait_loses_the_file_and_it_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let queue = queue(folder.path(), Some(200), 100);
        assert!(queue.try_reserve(60));
        assert!(!queue.try_reserve(60));
        assert!(queue.try_reserve(40));
        assert!(!queue.try_reserve(1));
        queue.give_up("a.safetensors".to_owned(), 60, "no copy".to_owned());
        assert_eq!(queue.in_flight(), 40);
        assert!(queue.try_reserve(60));
        // Here and now there is room, in the budget of all files there is none.
        queue.submit(job("b.safetensors".to_owned(), 60), 60);
        queue.submit(job("c.safetensors".to_owned(), 40), 40);
        assert!(!queue.reserve(50, || ()));
        assert!(!queue.try_reserve(50));
        let (dropped, written) = queue.finish();
        let counted = Dropped {
            total: 2,
            in_flight: 2,
            not_copied: 1,
            first_not_copied: Some(("a.safetensors".to_owned(), "no copy".to_owned())),
        };
        assert_eq!(dropped, counted);
        assert!(written.is_ok());
    }
}
