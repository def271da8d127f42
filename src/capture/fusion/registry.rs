//! The sessions whose runs may be on any thread's stream: what a device's own thread looks through.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering},
};

use burn_fusion::stream::StreamId;

use super::log::{DeviceLog, Place};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LOGS: RwLock<Vec<Arc<DeviceLog>>> = RwLock::new(Vec::new());

/// Whether any session is there: all that an operation costs while none is.
#[inline]
pub(super) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

pub(super) fn add(log: &Arc<DeviceLog>) {
    let mut logs = LOGS.write().unwrap_or_else(PoisonError::into_inner);
    logs.push(log.clone());
    COUNT.store(logs.len(), Ordering::Relaxed);
}

pub(super) fn remove(log: &Arc<DeviceLog>) {
    let mut logs = LOGS.write().unwrap_or_else(PoisonError::into_inner);
    logs.retain(|known| !Arc::ptr_eq(known, log));
    COUNT.store(logs.len(), Ordering::Relaxed);
}

/// The sessions that record what this thread asked for at that moment.
pub(super) fn recorders(stream: StreamId, first_output: u64) -> Vec<(Arc<DeviceLog>, Place)> {
    let logs = LOGS.read().unwrap_or_else(PoisonError::into_inner);
    logs.iter()
        .filter_map(|log| Some((log.clone(), log.place_at(stream, first_output)?)))
        .collect()
}
