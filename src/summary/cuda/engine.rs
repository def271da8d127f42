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
//! [`UnderWay`] lets another thread wait for results while the engine goes on.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    under_way: VecDeque<Copying>,
    landings: Arc<Landings>,
}

/// The host buffers of one stream that are not under way.
#[derive(Default)]
struct Landings {
    idle: Mutex<Vec<Landing>>,
    /// Buffers that a copy may still run to although it was not awaited: used no more, and freed
    /// only after the engine has waited for the device.
    lost: Mutex<Vec<Landing>>,
}

/// A copy of slots to the host that was started.
struct Copying {
    landing: Landing,
    expected: Vec<Expected>,
    landings: Arc<Landings>,
}

/// Results on their way to the host, apart from their engine.
#[must_use = "results are lost unless they are awaited"]
pub(super) struct UnderWay {
    device: Arc<Device>,
    ready: Vec<Summarised>,
    copies: VecDeque<Copying>,
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
    /// If there is no driver, no such device, the device is older than the kernels, or the driver
    /// is too old to take them.
    pub fn new(ordinal: usize) -> Result<Self, CudaError> {
        let device = Device::new(ordinal)?;
        device.bind()?;
        device.try_module()?;
        Ok(Self {
            device,
            lanes: HashMap::new(),
            ready: Vec::new(),
            next_sequence: 1,
        })
    }

    /// Whether the kernels can read a tensor, wherever it is: its address is not looked at.
    ///
    /// # Errors
    /// Why they cannot.
    pub fn check(tensor: &DeviceTensor) -> Result<(), CudaError> {
        Planned::new(tensor).map(|_| ())
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
        self.send().wait()
    }

    /// Starts the copies of all results to the host and hands over what is under way. Does not
    /// wait.
    pub(super) fn send(&mut self) -> UnderWay {
        let bound = self.device.bind();
        let mut copies = VecDeque::new();
        for lane in self.lanes.values_mut() {
            let sent = bound.clone().and_then(|()| match lane.open.is_empty() {
                true => Ok(()),
                false => lane.send(&self.device, &mut self.ready),
            });
            if let Err(error) = sent {
                fail(lane.open.drain(..), &error, &mut self.ready);
            }
            copies.append(&mut lane.under_way);
        }
        UnderWay {
            device: self.device.clone(),
            ready: std::mem::take(&mut self.ready),
            copies,
        }
    }
}

impl UnderWay {
    /// Waits for all of it; what failed comes as an error.
    pub fn wait(mut self) -> Vec<Summarised> {
        let bound = self.device.bind();
        while let Some(copying) = self.copies.pop_front() {
            match bound.clone().and_then(|()| copying.landing.wait()) {
                Ok(()) => copying.read(&mut self.ready),
                Err(error) => {
                    let Copying {
                        landing,
                        expected,
                        landings,
                    } = copying;
                    fail(expected.into_iter(), &error, &mut self.ready);
                    lock(&landings.lost).push(landing);
                }
            }
        }
        std::mem::take(&mut self.ready)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        for copying in self.copies.drain(..) {
            lock(&copying.landings.lost).push(copying.landing);
        }
    }
}

impl Copying {
    /// Reads a copy that has arrived.
    fn read(self, ready: &mut Vec<Summarised>) {
        let slots = self.landing.bytes().chunks_exact(size_of::<Slot>());
        for (expected, bytes) in self.expected.into_iter().zip(slots) {
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
        lock(&self.landings.idle).push(self.landing);
    }
}

fn lock(landings: &Mutex<Vec<Landing>>) -> MutexGuard<'_, Vec<Landing>> {
    landings.lock().unwrap_or_else(PoisonError::into_inner)
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
        let slots = DeviceBuffer::new(device, RING * size_of::<Slot>())?;
        let parts = DeviceBuffer::new(device, MAX_LAUNCH_TILES as usize * PART_BYTES)?;
        let mut tickets = DeviceBuffer::new(device, ticket_bytes)?;
        let landing = || Landing::new(device, RING * size_of::<Slot>());
        let idle = (0..LANDINGS).map(|_| landing()).collect::<Result<_, _>>()?;
        // Last: what fails after it would free memory that the stream still writes.
        tickets.zero(ticket_bytes, stream)?;
        Ok(Self {
            stream,
            slots,
            parts,
            tickets,
            open: Vec::with_capacity(RING),
            under_way: VecDeque::new(),
            landings: Arc::new(Landings {
                idle: Mutex::new(idle),
                lost: Mutex::default(),
            }),
        })
    }

    /// Starts the copy of the open slots to the host.
    fn send(&mut self, device: &Arc<Device>, ready: &mut Vec<Summarised>) -> Result<(), CudaError> {
        self.collect(ready)?;
        let idle = lock(&self.landings.idle).pop();
        let mut landing = match idle {
            Some(landing) => landing,
            None => Landing::new(device, RING * size_of::<Slot>())?,
        };
        let bytes = self.open.len() * size_of::<Slot>();
        // SAFETY: the slots live as long as the lane, and an idle landing has been read.
        let started = unsafe { landing.start(self.slots.pointer(), bytes, self.stream) };
        if let Err(error) = started {
            // The copy may run although its event could not be recorded.
            lock(&self.landings.lost).push(landing);
            return Err(error);
        }
        self.under_way.push_back(Copying {
            landing,
            expected: std::mem::replace(&mut self.open, Vec::with_capacity(RING)),
            landings: self.landings.clone(),
        });
        Ok(())
    }

    /// Reads the results that have arrived.
    fn collect(&mut self, ready: &mut Vec<Summarised>) -> Result<(), CudaError> {
        while let Some(first) = self.under_way.front()
            && first.landing.has_arrived()?
            && let Some(first) = self.under_way.pop_front()
        {
            first.read(ready);
        }
        Ok(())
    }
}

/// Hands out an error for each of some tensors.
fn fail(expected: impl Iterator<Item = Expected>, error: &CudaError, ready: &mut Vec<Summarised>) {
    ready.extend(expected.map(|expected| (expected.number, Err(error.clone()))));
}
