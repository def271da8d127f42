//! Dumps: the right bytes, in bounded memory, in the background, and never too late to see them.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use burnscope::summary::{
    DType,
    cuda::{CudaError, DeviceTensor, DumpError, DumpOptions, DumpSink, Dumper, Elements},
};

use crate::{
    reference::{Random, bytes},
    standin::{Owner, standin},
};

const SMALL: DumpOptions = DumpOptions {
    piece_bytes: 4096,
    pieces: 3,
    waiting_bytes: 1 << 20,
};

/// Collects a dump and says how it ended.
struct Collect {
    bytes: Vec<u8>,
    pause: Duration,
    /// Bytes after which writing fails.
    room: usize,
    done: mpsc::Sender<(Vec<u8>, Result<(), DumpError>)>,
}

impl DumpSink for Collect {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        std::thread::sleep(self.pause);
        if self.bytes.len() + bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn close(self: Box<Self>, outcome: Result<(), DumpError>) {
        let _ = self.done.send((self.bytes, outcome));
    }
}

type Done = mpsc::Receiver<(Vec<u8>, Result<(), DumpError>)>;

fn sink(pause: Duration, room: usize) -> (Box<Collect>, Done) {
    let (done, receiver) = mpsc::channel();
    let sink = Collect {
        bytes: Vec::new(),
        pause,
        room,
        done,
    };
    (Box::new(sink), receiver)
}

fn plain(dtype: DType, data: u64, shape: &[usize], strides: &[isize]) -> DeviceTensor {
    DeviceTensor {
        data,
        elements: Elements::Plain(dtype),
        shape: shape.to_vec(),
        strides: strides.to_vec(),
    }
}

fn random_bytes(count: usize, random: &mut Random) -> Vec<u8> {
    (0..count).map(|_| random.bits() as u8).collect()
}

#[test]
fn a_dump_holds_the_bytes_the_producer_wrote_last() {
    let Some(standin) = standin() else { return };
    let mut random = Random(71);
    let stream = standin.stream();
    let dumper = Dumper::new(0, SMALL).unwrap();
    standin.delay(1000);
    let mut all = Vec::new();
    for size in [1, 4095, 4096, 4097, 50_000] {
        let data = random_bytes(size, &mut random);
        let memory = standin.allocate(size).into_owner();
        stream.write(memory.address, &data);
        let (sink, done) = sink(Duration::ZERO, usize::MAX);
        let tensor = plain(DType::U8, memory.address, &[size], &[1]);
        // SAFETY: the owner frees the memory only when the dumper drops it.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        all.push((data, done));
    }
    for (data, done) in all {
        let (found, outcome) = done.recv().unwrap();
        outcome.unwrap();
        assert!(found == data, "{} bytes", data.len());
    }
}

#[test]
fn a_dump_is_row_major_whatever_the_layout() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let dumper = Dumper::new(0, SMALL).unwrap();
    let layouts: [(&[usize], &[isize], i64); 5] = [
        (&[50, 40], &[1, 50], 0),
        (&[50, 30], &[40, 1], 0),
        (&[10, 20, 5], &[1, 10, 200], 0),
        (&[40, 50], &[-50, -1], 1999),
        (&[3, 2000], &[0, 1], 0),
    ];
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        let size = dtype.size().unwrap();
        let elements: Vec<u64> = (0..2000u64)
            .map(|k| k.wrapping_mul(0x0101_0101_0101_0107))
            .collect();
        for (shape, strides, first) in layouts {
            let memory = standin.memory(&bytes(&dtype, &elements)).into_owner();
            let count: usize = shape.iter().product();
            let wanted: Vec<u64> = (0..count)
                .map(|k| {
                    let (mut rest, mut at) = (k, first as isize);
                    for (&size, &stride) in shape.iter().zip(strides).rev() {
                        at += (rest % size) as isize * stride;
                        rest /= size;
                    }
                    elements[at as usize]
                })
                .collect();
            let tensor = plain(
                dtype.clone(),
                memory.address + first as u64 * size as u64,
                shape,
                strides,
            );
            let (sink, done) = sink(Duration::ZERO, usize::MAX);
            // SAFETY: as above.
            unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
            let (found, outcome) = done.recv().unwrap();
            outcome.unwrap();
            assert!(
                found == bytes(&dtype, &wanted),
                "{dtype} {shape:?} {strides:?}"
            );
        }
    }
}

/// Tells when the tensor's memory is given back.
struct Watched {
    _memory: Owner,
    copied: Arc<Mutex<Vec<&'static str>>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.copied.lock().unwrap().push("freed");
    }
}

#[test]
fn dumping_returns_at_once_and_keeps_the_tensor_until_it_was_copied() {
    let Some(standin) = standin() else { return };
    let mut random = Random(73);
    let stream = standin.stream();
    let dumper = Dumper::new(0, SMALL).unwrap();
    let data = random_bytes(20_000, &mut random);
    let memory = standin.memory(&data).into_owner();
    standin.delay(20_000);
    let before = standin.host_waits();
    let order = Arc::new(Mutex::new(Vec::new()));
    let tensor = plain(DType::U8, memory.address, &[20_000], &[1]);
    let keep = Watched {
        _memory: memory,
        copied: order.clone(),
    };
    let (sink, done) = sink(Duration::ZERO, usize::MAX);
    // SAFETY: as above.
    unsafe { dumper.dump(stream.producer(), &tensor, Box::new(keep), sink) };
    order.lock().unwrap().push("returned");
    let (found, outcome) = done.recv().unwrap();
    outcome.unwrap();
    assert!(found == data);
    assert_eq!(*order.lock().unwrap(), ["returned", "freed"]);
    assert!(
        standin.host_waits() > before,
        "the writer's thread does wait"
    );
}

#[test]
fn pinned_memory_is_the_pool_and_no_more() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let before = (standin.pinned_bytes(), standin.live_bytes());
    let dumper = Dumper::new(0, SMALL).unwrap();
    let pool = standin.pinned_bytes();
    assert_eq!(pool - before.0, 3 * 4096);
    let mut all = Vec::new();
    for _ in 0..20 {
        let memory = standin.memory(&[5; 30_000]).into_owner();
        let tensor = plain(DType::U8, memory.address, &[200, 75], &[150, 2]);
        let (sink, done) = sink(Duration::ZERO, usize::MAX);
        // SAFETY: as above.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        assert_eq!(standin.pinned_bytes(), pool);
        all.push(done);
    }
    for done in all {
        let (found, outcome) = done.recv().unwrap();
        outcome.unwrap();
        assert!(found == [5; 15_000]);
    }
    dumper.finish().unwrap();
    assert_eq!((standin.pinned_bytes(), standin.live_bytes()), before);
}

#[test]
fn a_slow_sink_holds_its_producer_back_instead_of_filling_the_device() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let options = DumpOptions {
        waiting_bytes: 50_000,
        ..SMALL
    };
    let dumper = Dumper::new(0, options).unwrap();
    let before = standin.live_bytes();
    let most = AtomicU64::new(0);
    for _ in 0..12 {
        let memory = standin.memory(&[1; 20_000]).into_owner();
        let tensor = plain(DType::U8, memory.address, &[20_000], &[1]);
        let (sink, _) = sink(Duration::from_millis(4), usize::MAX);
        // SAFETY: as above.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        most.fetch_max(standin.live_bytes() - before, Ordering::Relaxed);
    }
    dumper.finish().unwrap();
    // Two wait, and the third is let in as the first one ends.
    assert!(
        most.load(Ordering::Relaxed) <= 3 * 20_000 + 4096,
        "{most:?} bytes kept"
    );
}

#[test]
fn a_sink_that_fails_is_told_and_the_others_are_written() {
    let Some(standin) = standin() else { return };
    let mut random = Random(79);
    let stream = standin.stream();
    let dumper = Dumper::new(0, SMALL).unwrap();
    let data = random_bytes(30_000, &mut random);
    let mut all = Vec::new();
    for room in [usize::MAX, 10_000, usize::MAX] {
        let memory = standin.memory(&data).into_owner();
        let tensor = plain(DType::U8, memory.address, &[30_000], &[1]);
        let (sink, done) = sink(Duration::ZERO, room);
        // SAFETY: as above.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        all.push(done.recv().unwrap());
    }
    assert!(all[0].0 == data && all[0].1.is_ok());
    assert!(
        matches!(&all[1].1, Err(DumpError::Write(error)) if error.kind() == io::ErrorKind::StorageFull)
    );
    assert!(all[2].0 == data && all[2].1.is_ok());
}

#[test]
fn a_driver_that_fails_is_reported_to_the_sink() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    for call in [
        "cuMemcpyDtoHAsync_v2",
        "cuEventSynchronize",
        "cuStreamWaitEvent",
    ] {
        let dumper = Dumper::new(0, SMALL).unwrap();
        standin.fail(call, 700, 0);
        let memory = standin.memory(&[1; 9000]).into_owner();
        let tensor = plain(DType::U8, memory.address, &[9000], &[1]);
        let (sink, done) = sink(Duration::ZERO, usize::MAX);
        // SAFETY: as above.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        let (_, outcome) = done.recv().unwrap();
        assert!(
            matches!(outcome, Err(DumpError::Cuda(CudaError::Driver { .. }))),
            "{call}"
        );
        standin.heal();
        dumper.finish().unwrap();
    }
}

/// A sink that breaks its contract, but says how it was closed.
struct Panics(mpsc::Sender<Result<(), DumpError>>);

impl DumpSink for Panics {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        panic!("a sink that panics");
    }

    fn close(self: Box<Self>, outcome: Result<(), DumpError>) {
        let _ = self.0.send(outcome);
    }
}

#[test]
fn a_panicking_sink_stops_the_writer_and_nobody_hangs() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    // Full with one dump, so that the next one has to wait for the writer.
    let options = DumpOptions {
        waiting_bytes: 10_000,
        ..SMALL
    };
    let dumper = Dumper::new(0, options).unwrap();
    let dump = || {
        let (closed, outcome) = mpsc::channel();
        let memory = standin.memory(&[1; 9000]).into_owner();
        let tensor = plain(DType::U8, memory.address, &[9000], &[1]);
        let sink = Box::new(Panics(closed));
        // SAFETY: as above.
        unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), sink) };
        outcome.recv_timeout(Duration::from_millis(5))
    };
    // Sooner or later the thread is gone, and saying so takes no waiting.
    let stopped =
        (0..1000).any(|_| matches!(dump(), Ok(Err(DumpError::Cuda(CudaError::WriterStopped)))));
    assert!(stopped);
    assert!(matches!(dumper.finish(), Err(CudaError::WriterStopped)));
}

#[test]
fn empty_and_quantised_tensors_are_told_apart() {
    let Some(standin) = standin() else { return };
    let stream = standin.stream();
    let dumper = Dumper::new(0, SMALL).unwrap();
    let memory = standin.memory(&[1; 16]).into_owner();
    let tensor = plain(DType::F32, memory.address, &[0, 4], &[4, 1]);
    let (collect, done) = sink(Duration::ZERO, usize::MAX);
    // SAFETY: as above.
    unsafe { dumper.dump(stream.producer(), &tensor, Box::new(memory), collect) };
    let (found, outcome) = done.recv().unwrap();
    outcome.unwrap();
    assert!(found.is_empty());
    let unreadable = plain(DType::Quantized("q4f".to_owned()), 0, &[4], &[1]);
    let (collect, done) = sink(Duration::ZERO, usize::MAX);
    // SAFETY: nothing is read.
    unsafe { dumper.dump(stream.producer(), &unreadable, Box::new(()), collect) };
    let (_, outcome) = done.recv().unwrap();
    assert!(matches!(
        outcome,
        Err(DumpError::Cuda(CudaError::Unsupported(_)))
    ));
}
