//! The thread that waits for a session's results, so that neither the program nor the device does.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use super::lane::{Batch, Wanted};
use crate::summary::{EdgeItems, Summary, cube::Reading};

/// What was read of a tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) summary: Option<Summary>,
    pub(crate) edges: Option<EdgeItems>,
    /// Why there is no summary.
    pub(crate) refused: Option<String>,
}

/// Numbers by the session's numbers of tensors.
pub(super) type Readings = HashMap<u64, Numbers>;

/// What a reading is told to, on the reader's thread.
pub(super) type Listener = Box<dyn Fn(u64, &Summary) + Send>;

/// Reads batches in the order in which they come.
pub(super) struct Reader {
    batches: Option<mpsc::Sender<Batch>>,
    thread: Option<JoinHandle<()>>,
    readings: Arc<Mutex<Readings>>,
}

impl Reader {
    /// Its thread starts now and ends with [`finish`](Self::finish).
    pub(super) fn start(listener: Option<Listener>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<Batch>();
        let readings = Arc::new(Mutex::new(Readings::new()));
        let results = readings.clone();
        let thread = std::thread::Builder::new()
            .name("burnscope readings".to_owned())
            .spawn(move || {
                for batch in receiver {
                    read(batch, &results, listener.as_ref());
                }
            })?;
        Ok(Self {
            batches: Some(sender),
            thread: Some(thread),
            readings,
        })
    }

    /// Has a batch read; never waits.
    pub(super) fn submit(&self, batch: Batch) {
        if batch.wanted.is_empty() {
            return;
        }
        if let Some(batches) = &self.batches
            && let Err(mpsc::SendError(lost)) = batches.send(batch)
        {
            refuse(
                &self.readings,
                &lost.wanted,
                "the thread that reads results ended",
            );
        }
    }

    /// Waits for every batch and returns all numbers.
    pub(super) fn finish(&mut self) -> Readings {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // It catches every panic that could end it.
            let _ = thread.join();
        }
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut readings)
    }
}

fn read(batch: Batch, readings: &Mutex<Readings>, listener: Option<&Listener>) {
    let Batch { pending, wanted } = batch;
    let results = match catch_unwind(AssertUnwindSafe(|| pending.wait())) {
        Ok(Ok(results)) => results,
        Ok(Err(error)) => return refuse(readings, &wanted, &error.to_string()),
        Err(_) => return refuse(readings, &wanted, "reading the device's results panicked"),
    };
    let mut by_slot: HashMap<_, _> = results.into_iter().collect();
    for (slot, wanted) in &wanted {
        let reading = by_slot.remove(slot);
        if let (Wanted::Summary(id), Some(Reading::Summary(summary)), Some(listener)) =
            (wanted, &reading, listener)
        {
            listener(*id, summary);
        }
        let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
        match (wanted, reading) {
            (Wanted::Summary(id), Some(Reading::Summary(summary))) => {
                readings.entry(*id).or_default().summary = Some(summary);
            }
            (Wanted::Edges(id), Some(Reading::Edges(edges))) => {
                readings.entry(*id).or_default().edges = Some(edges);
            }
            (Wanted::Summary(id) | Wanted::Edges(id), _) => {
                let refused = "the device gave no result for it".to_owned();
                readings.entry(*id).or_default().refused = Some(refused);
            }
        }
    }
}

fn refuse(readings: &Mutex<Readings>, wanted: &[(crate::summary::cube::Slot, Wanted)], why: &str) {
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, wanted) in wanted {
        if let Wanted::Summary(id) = wanted {
            readings.entry(*id).or_default().refused = Some(why.to_owned());
        }
    }
}
