//! The engine that summarises tensors where they are: launches, result slots and their way back.
//!
//! Work is only ever added to the stream that produces the tensor, so it comes after the tensor is
//! written and before its memory is used for anything else. The host waits in [`Engine::flush`]
//! and nowhere else.
//!
//! For each stream there is a ring of result slots in device memory. When it has been written round
//! once it is copied to pinned host memory and an event is recorded, on the same stream: the stream
//! itself keeps later kernels from writing a slot before it is copied. Host buffers are used again
//! only when their event has passed and their results were read; until then more are allocated.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    CudaError, DeviceTensor, ProducerStream,
    batch::{
        Destination, MAX_LAUNCH_TENSORS, MAX_LAUNCH_TILES, PART_BYTES, Planned, launch,
        launch_length,
    },
    driver::{Device, DeviceBuffer, Landing},
    slot::{KeyClass, Slot},
};
use crate::summary::Summary;

/// Slots of one stream's ring.
const RING: usize = 128;
/// Host buffers that a stream starts with.
const LANDINGS: usize = 4;

/// A summary, under the number that its tensor was handed in with.
pub type Summarised = (u64, Result<Summary, CudaError>);

/// Summarises tensors in the memory of one CUDA device.
pub struct Engine {
    device: Arc<Device>,
    lanes: HashMap<ProducerStream, Lane>,
    ready: Vec<Summarised>,
    next_sequence: u64,
}

/// What belongs to one stream.
struct Lane {
    stream: ProducerStream,
    slots: DeviceBuffer,
    parts: DeviceBuffer,
    tickets: DeviceBuffer,
    /// Tensors whose slots are written, or will be, since the last copy: slot 0, 1, ...
    open: Vec<Expected>,
    under_way: VecDeque<(Landing, Vec<Expected>)>,
    idle: Vec<Landing>,
}

/// A result that a slot will hold.
struct Expected {
    number: u64,
    sequence: u64,
    class: KeyClass,
}

impl Engine {
    /// An engine for the device with this ordinal, in its primary context.
    ///
    /// # Errors
    /// If there is no driver, no such device, or the device is older than the kernels.
    pub fn new(ordinal: usize) -> Result<Self, CudaError> {
        Ok(Self {
            device: Device::new(ordinal)?,
            lanes: HashMap::new(),
            ready: Vec::new(),
            next_sequence: 1,
        })
    }

    /// Adds the summaries of some tensors to `stream`, as few launches as it takes.
    ///
    /// Each tensor comes with a number under which its summary is handed out later. Does not wait
    /// for the device. The tensors' memory may be freed or written by later work of `stream`.
    ///
    /// # Errors
    /// If a tensor cannot be read by the kernels, before anything is launched; or if the driver
    /// refuses a call, after which the tensors launched so far still get their summaries.
    ///
    /// # Safety
    /// When `stream` comes to this work, every element that a tensor's address, shape and strides
    /// name is inside memory that the device can read, and nothing outside `stream` writes it.
    pub unsafe fn summarise(
        &mut self,
        stream: ProducerStream,
        tensors: &[(u64, DeviceTensor)],
    ) -> Result<(), CudaError> {
        self.device.bind()?;
        let mut planned = Vec::with_capacity(tensors.len());
        let mut empty = Vec::new();
        for (number, tensor) in tensors {
            let plan = Planned::new(tensor)?;
            if plan.count == 0 {
                empty.push((*number, Ok(Summary::empty())));
            } else {
                planned.push((*number, KeyClass::of(&tensor.elements), plan));
            }
        }
        self.ready.append(&mut empty);
        if planned.is_empty() {
            return Ok(());
        }
        // Tensors that share a kernel go together, whatever order they came in.
        planned.sort_by(|a, b| a.2.kernel.function.cmp(&b.2.kernel.function));
        let keys = planned.iter().map(|(number, class, _)| (*number, *class));
        let mut keys = keys.collect::<Vec<_>>().into_iter();
        let mut plans: Vec<Planned> = planned.into_iter().map(|(_, _, plan)| plan).collect();

        let mut plans = plans.as_mut_slice();
        while !plans.is_empty() {
            let lane = lane(&mut self.lanes, &self.device, stream)?;
            if lane.open.len() == RING {
                lane.send(&self.device, &mut self.ready)?;
            }
            let room = RING - lane.open.len();
            let length = launch_length(plans).min(room);
            let (now, later) = plans.split_at_mut(length);
            let to = Destination {
                parts: lane.parts.pointer(),
                tickets: lane.tickets.pointer(),
                slots: lane.slots.pointer(),
                first_slot: lane.open.len() as u32,
                first_sequence: self.next_sequence,
            };
            let (argument, blocks) = launch(now, to);
            // SAFETY: the tensors are the caller's promise; parts, tickets and slots belong to
            // this stream and hold as much as `launch_length` and `room` allow.
            unsafe {
                self.device
                    .launch_summary(&now[0].kernel, &argument, blocks, stream)
            }?;
            for (number, class) in keys.by_ref().take(length) {
                lane.open.push(Expected {
                    number,
                    sequence: self.next_sequence,
                    class,
                });
                self.next_sequence += 1;
            }
            plans = later;
        }
        Ok(())
    }

    /// The summaries that have arrived so far. Does not wait, and starts no copy.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn collect(&mut self) -> Result<Vec<Summarised>, CudaError> {
        self.device.bind()?;
        for lane in self.lanes.values_mut() {
            lane.collect(&mut self.ready)?;
        }
        Ok(std::mem::take(&mut self.ready))
    }

    /// Waits for all summaries and hands out those not handed out yet, failed ones as errors.
    pub fn flush(&mut self) -> Vec<Summarised> {
        for lane in self.lanes.values_mut() {
            lane.flush(&self.device, &mut self.ready);
        }
        std::mem::take(&mut self.ready)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Kernels and copies may still use the buffers; there is nobody to tell of a failure.
        if self.device.bind().is_ok() {
            let _ = self.device.synchronize();
        }
    }
}

fn lane<'a>(
    lanes: &'a mut HashMap<ProducerStream, Lane>,
    device: &Arc<Device>,
    stream: ProducerStream,
) -> Result<&'a mut Lane, CudaError> {
    use std::collections::hash_map::Entry;
    Ok(match lanes.entry(stream) {
        Entry::Occupied(lane) => lane.into_mut(),
        Entry::Vacant(vacant) => vacant.insert(Lane::new(device, stream)?),
    })
}

impl Lane {
    fn new(device: &Arc<Device>, stream: ProducerStream) -> Result<Self, CudaError> {
        let ticket_bytes = MAX_LAUNCH_TENSORS * size_of::<u32>();
        let mut tickets = DeviceBuffer::new(device, ticket_bytes)?;
        tickets.zero(ticket_bytes, stream)?;
        let landing = || Landing::new(device, RING * size_of::<Slot>());
        Ok(Self {
            stream,
            slots: DeviceBuffer::new(device, RING * size_of::<Slot>())?,
            parts: DeviceBuffer::new(device, MAX_LAUNCH_TILES as usize * PART_BYTES)?,
            tickets,
            open: Vec::with_capacity(RING),
            under_way: VecDeque::new(),
            idle: (0..LANDINGS).map(|_| landing()).collect::<Result<_, _>>()?,
        })
    }

    /// Starts the copy of the open slots to the host.
    fn send(&mut self, device: &Arc<Device>, ready: &mut Vec<Summarised>) -> Result<(), CudaError> {
        self.collect(ready)?;
        let mut landing = match self.idle.pop() {
            Some(landing) => landing,
            None => Landing::new(device, RING * size_of::<Slot>())?,
        };
        let bytes = self.open.len() * size_of::<Slot>();
        // SAFETY: the slots live as long as the lane, and an idle landing has been read.
        unsafe { landing.start(self.slots.pointer(), bytes, self.stream) }?;
        let open = std::mem::replace(&mut self.open, Vec::with_capacity(RING));
        self.under_way.push_back((landing, open));
        Ok(())
    }

    /// Reads the results that have arrived.
    fn collect(&mut self, ready: &mut Vec<Summarised>) -> Result<(), CudaError> {
        while let Some((landing, _)) = self.under_way.front() {
            if !landing.has_arrived()? {
                break;
            }
            self.read_first(ready);
        }
        Ok(())
    }

    fn flush(&mut self, device: &Arc<Device>, ready: &mut Vec<Summarised>) {
        if let Err(error) = device.bind().and_then(|()| match self.open.is_empty() {
            true => Ok(()),
            false => self.send(device, ready),
        }) {
            fail(self.open.drain(..), &error, ready);
        }
        while let Some((landing, _)) = self.under_way.front() {
            if let Err(error) = landing.wait() {
                // The copy may still come: the buffer must not be used again, nor freed before
                // the engine has synchronised, so it stays where nothing touches it.
                for (_, expected) in &mut self.under_way {
                    fail(expected.drain(..), &error, ready);
                }
                break;
            }
            self.read_first(ready);
        }
    }

    /// Reads the oldest copy, which has arrived.
    fn read_first(&mut self, ready: &mut Vec<Summarised>) {
        let Some((landing, expected)) = self.under_way.pop_front() else {
            return;
        };
        let slots = landing.bytes().chunks_exact(size_of::<Slot>());
        for (expected, bytes) in expected.into_iter().zip(slots) {
            let slot: Slot = bytemuck::pod_read_unaligned(bytes);
            let summary = if slot.sequence == expected.sequence {
                Ok(slot.summary(expected.class))
            } else {
                Err(CudaError::MissingResult {
                    expected: expected.sequence,
                    found: slot.sequence,
                })
            };
            ready.push((expected.number, summary));
        }
        self.idle.push(landing);
    }
}

/// Hands out an error for each of some tensors.
fn fail(expected: impl Iterator<Item = Expected>, error: &CudaError, ready: &mut Vec<Summarised>) {
    ready.extend(expected.map(|expected| (expected.number, Err(error.clone()))));
}
