//! Which of Burn's numbers stand for the same tensor, and which memory is a parameter's.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use burn_cubecl::fusion::CubeFusionHandle;
use burn_ir::{HandleContainer, TensorId, TensorIr};

use super::handle::Memory;

/// A piece of memory with the shape and the strides that a tensor has there.
type Extent = (Memory, Vec<usize>, Vec<usize>);

/// The tensors that a session met.
#[derive(Default)]
pub(super) struct Identities {
    /// The session's numbers of Burn's tensors.
    numbers: HashMap<u64, u64>,
    /// The last tensor that was made in a piece of memory.
    by_memory: HashMap<Extent, (TensorId, u64)>,
    parameters: HashMap<Memory, String>,
}

impl Identities {
    /// Whether no tensor was met on any device.
    pub(super) fn is_empty(&self) -> bool {
        self.by_memory.is_empty() && self.parameters.is_empty()
    }

    /// The session's number for a tensor, the next one if it has none yet.
    pub(super) fn number(&mut self, tensor: TensorId, next: &AtomicU64) -> u64 {
        let next = || next.fetch_add(1, Ordering::Relaxed);
        *self.numbers.entry(tensor.value()).or_insert_with(next)
    }

    /// The number of a tensor that is read. Another thread's identity of a tensor is found by the
    /// memory: while both are there, they share it and nothing is written to it.
    pub(super) fn operand(
        &mut self,
        tensor: &TensorIr,
        handles: &HandleContainer<CubeFusionHandle>,
        next: &AtomicU64,
    ) -> u64 {
        if let Some(number) = self.numbers.get(&tensor.id.value()) {
            return *number;
        }
        let Some(handle) = handles.get_handle_ref(&tensor.id) else {
            return self.number(tensor.id, next);
        };
        match self.twin(tensor, handle, handles) {
            Some(number) => {
                self.numbers.insert(tensor.id.value(), number);
                number
            }
            None => {
                let number = self.number(tensor.id, next);
                self.place(tensor, handle, number);
                number
            }
        }
    }

    /// A tensor that was given a number before it was there is there now; returns the number that it
    /// turns out to have.
    pub(super) fn met(
        &mut self,
        tensor: &TensorIr,
        handle: &CubeFusionHandle,
        handles: &HandleContainer<CubeFusionHandle>,
        number: u64,
    ) -> u64 {
        let twin = self.twin(tensor, handle, handles);
        match twin {
            Some(twin) => {
                self.numbers.insert(tensor.id.value(), twin);
                twin
            }
            None => {
                self.place(tensor, handle, number);
                number
            }
        }
    }

    /// A tensor was made. A view of a whole tensor is no reason to forget what it is a view of.
    pub(super) fn made(
        &mut self,
        tensor: &TensorIr,
        handle: &CubeFusionHandle,
        handles: &HandleContainer<CubeFusionHandle>,
        number: u64,
    ) {
        if self.twin(tensor, handle, handles).is_none() {
            self.place(tensor, handle, number);
        }
    }

    /// The number of a tensor that is there, too, in the same memory with the same shape and strides.
    fn twin(
        &self,
        tensor: &TensorIr,
        handle: &CubeFusionHandle,
        handles: &HandleContainer<CubeFusionHandle>,
    ) -> Option<u64> {
        let (twin, number) = self.by_memory.get(&extent(handle, tensor))?;
        // A tensor stays in its memory as long as it is there.
        let alive = *twin != tensor.id && handles.has_handle(twin);
        alive.then_some(*number)
    }

    fn place(&mut self, tensor: &TensorIr, handle: &CubeFusionHandle, number: u64) {
        let extent = extent(handle, tensor);
        self.by_memory.insert(extent, (tensor.id, number));
    }

    /// That memory is this parameter's; of several that share it the first one gives the name.
    pub(super) fn parameter_is(&mut self, memory: Memory, path: String) {
        self.parameters.entry(memory).or_insert(path);
    }

    /// That memory holds something else now.
    pub(super) fn written(&mut self, memory: Memory) {
        self.parameters.remove(&memory);
    }

    /// The path of the parameter whose memory that is.
    pub(super) fn parameter(&self, memory: Memory) -> Option<String> {
        self.parameters.get(&memory).cloned()
    }
}

fn extent(handle: &CubeFusionHandle, tensor: &TensorIr) -> Extent {
    let shape = tensor.shape.iter().copied().collect();
    let strides = handle.strides.iter().copied().collect();
    (Memory::of(handle), shape, strides)
}
