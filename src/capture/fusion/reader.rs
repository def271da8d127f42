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

impl Numbers {
    /// Those of a tensor with the same elements in the same order: what is printed of them depends on
    /// the shape.
    pub(crate) fn in_another_shape(self) -> Self {
        Self {
            edges: None,
            ..self
        }
    }
}

/// Numbers by the session's numbers of tensors.
pub(super) type Readings = HashMap<u64, Numbers>;

/// Told on the reader's thread that there are more readings.
pub(super) type Listener = Box<dyn Fn(&Mutex<Readings>) + Send>;

/// Reads batches in the order in which they come.
pub(super) struct Reader {
    batches: Option<mpsc::Sender<Batch>>,
    thread: Option<JoinHandle<()>>,
    readings: Arc<Mutex<Readings>>,
}

impl Reader {
    /// Its thread starts now and ends with [`finish`](Self::finish).
    pub(super) fn start(listener: Listener) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<Batch>();
        let readings = Arc::new(Mutex::new(Readings::new()));
        let results = readings.clone();
        let thread = std::thread::Builder::new()
            .name("burnscope readings".to_owned())
            .spawn(move || {
                for batch in receiver {
                    read(batch, &results);
                    // Its fault must not end the readings.
                    let _ = catch_unwind(AssertUnwindSafe(|| listener(&results)));
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

fn read(batch: Batch, readings: &Mutex<Readings>) {
    let wanted = batch.wanted.clone();
    let arrived = match catch_unwind(AssertUnwindSafe(|| batch.wait())) {
        Ok(arrived) => arrived,
        Err(_) => return refuse(readings, &wanted, "reading the device's results panicked"),
    };
    for (of, reading) in arrived {
        let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
        let (Wanted::Summary(id) | Wanted::Edges(id)) = of;
        let numbers = readings.entry(id).or_default();
        match reading {
            Ok(Reading::Summary(summary)) => numbers.summary = Some(summary),
            Ok(Reading::Edges(edges)) => numbers.edges = Some(edges),
            Err(why) => numbers.refused = Some(why),
        }
    }
    refuse(readings, &wanted, "the device gave no result for it");
}

/// Says why there is no summary where there is neither that nor a reason yet.
fn refuse(readings: &Mutex<Readings>, wanted: &[Wanted], why: &str) {
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    for wanted in wanted {
        if let Wanted::Summary(id) = wanted {
            let numbers = readings.entry(*id).or_default();
            if numbers.summary.is_none() {
                numbers.refused.get_or_insert_with(|| why.to_owned());
            }
        }
    }
}
