//! Which operation a device's thread is about to run, with the identities that the program gave.
//!
//! A fused operation sees Burn's relative form only, which has neither scalars nor identities; the
//! observer of the stream is told the global form right before, on the same thread.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use burn_fusion::{
    observer::{BlockOperations, FusionObservation, FusionObserver},
    stream::StreamId,
};

use super::{
    describe::Description,
    log::{DeviceLog, Place},
    registry,
};

/// An operation about to run, and who records it.
pub(super) struct Upcoming {
    pub(super) description: Description,
    pub(super) stream: StreamId,
    pub(super) recorders: Vec<(Arc<DeviceLog>, Place)>,
}

thread_local! {
    static UPCOMING: RefCell<Option<Upcoming>> = const { RefCell::new(None) };
}

/// The operation that this thread is about to run, if a session records it.
pub(super) fn take() -> Option<Upcoming> {
    UPCOMING.take()
}

struct Observer;

impl FusionObserver for Observer {
    fn registered(&self, _: &burn_ir::OperationIr) {}

    fn block_starts(&self, block: BlockOperations<'_>) {
        UPCOMING.set(None);
        // Burn would make a panic of ours the operation's. The operation runs unrecorded then.
        if let Ok(upcoming) = catch_unwind(AssertUnwindSafe(|| upcoming(block))) {
            UPCOMING.set(upcoming);
        }
    }

    fn block_ran(&self) {
        UPCOMING.set(None);
    }
}

/// The only operation of a block, if a session records it.
fn upcoming(block: BlockOperations<'_>) -> Option<Upcoming> {
    let mut operations = block.iter();
    let (Some(operation), None) = (operations.next(), operations.next()) else {
        return None;
    };
    // A marker of ours has no results, as the end of a tensor has none.
    let first = operation.outputs().map(|out| out.id.value()).min()?;
    let stream = StreamId::current();
    let recorders = registry::recorders(stream, first);
    if recorders.is_empty() {
        return None;
    }
    Some(Upcoming {
        description: Description::of(operation)?,
        stream,
        recorders,
    })
}

/// The observation that the sessions share, and how many they are.
static SHARED: Mutex<(usize, Option<FusionObservation>)> = Mutex::new((0, None));

/// Observes while it lives.
pub(super) struct Observing(());

impl Observing {
    pub(super) fn begin() -> Self {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0 += 1;
        shared
            .1
            .get_or_insert_with(|| FusionObservation::new(Arc::new(Observer)));
        Self(())
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0 -= 1;
        if shared.0 == 0 {
            shared.1 = None;
        }
    }
}
