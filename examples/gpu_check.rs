//! What only a GPU can tell about the CUDA kernels: run by `scripts/gpu-check.sh`.
//!
//! Every kernel against the host's summary, then bandwidth, launch cost and dump rate, as rows of a
//! Markdown table. With `--quick` only the first part, on small tensors, for `compute-sanitizer`.

use std::{
    error::Error,
    fs::File,
    io::{self, Write},
    sync::mpsc,
    time::Instant,
};

use burnscope::summary::{
    self, DType, Number, Summary, TensorView,
    cuda::{
        DeviceTensor, DumpError, DumpOptions, DumpSink, Dumper, Elements, Engine, ProducerStream,
    },
};
use cudarc::driver::{result, sys};
use half::{bf16, f16};

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: usize = 1 << 20;
const DTYPES: [DType; 15] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

fn main() -> Outcome<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let gpu = Gpu::new()?;
    let cases = correctness(&gpu, quick)?;
    println!("| what | elements | size | result |");
    println!("|---|---|---|---|");
    println!("| agrees with the host | all | {cases} cases | yes |");
    if quick {
        return Ok(());
    }
    bandwidth(&gpu)?;
    launch_cost(&gpu)?;
    dump_rate(&gpu)
}

/// The first device's primary context, and a stream in it.
struct Gpu {
    stream: sys::CUstream,
}

impl Gpu {
    fn new() -> Outcome<Self> {
        result::init()?;
        let device = result::device::get(0)?;
        // SAFETY: the context is kept until the process ends.
        unsafe { result::ctx::set_current(result::primary_ctx::retain(device)?)? };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        println!("Device: {}\n", result::device::get_name(device)?);
        Ok(Self { stream })
    }

    fn producer(&self) -> ProducerStream {
        // SAFETY: the stream lives until the process ends.
        unsafe { ProducerStream::new(self.stream) }
    }

    fn allocate(&self, bytes: usize) -> Outcome<Memory> {
        // SAFETY: freed once, when dropped.
        Ok(Memory(unsafe { result::malloc_sync(bytes.max(16))? }))
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<Memory> {
        let memory = self.allocate(bytes.len())?;
        // SAFETY: the memory is that long.
        unsafe { result::memcpy_htod_sync(memory.0, bytes)? };
        Ok(memory)
    }

    /// Seconds that the device spends on what `work` adds to the stream.
    fn seconds(&self, work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
        let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let (start, end) = (event()?, event()?);
        // SAFETY: events and stream are alive, and destroyed once.
        unsafe {
            result::event::record(start, self.stream)?;
            work()?;
            result::event::record(end, self.stream)?;
            result::event::synchronize(end)?;
            let milliseconds = result::event::elapsed(start, end)?;
            result::event::destroy(start)?;
            result::event::destroy(end)?;
            Ok(f64::from(milliseconds) / 1e3)
        }
    }
}

/// Device memory.
struct Memory(sys::CUdeviceptr);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::allocate`; the driver waits for what still uses it.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

/// A small generator (xorshift64*).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Roughly normal: a sum of twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        (0..12)
            .map(|_| (self.bits() >> 11) as f64 / (1u64 << 53) as f64)
            .sum::<f64>()
            - 6.0
    }
}

fn random_bytes(dtype: &DType, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let bits = match dtype {
            DType::F64 => random.normal().to_bits(),
            DType::F32 => (random.normal() as f32).to_bits().into(),
            DType::F16 => f16::from_f64(random.normal()).to_bits().into(),
            DType::BF16 => bf16::from_f64(random.normal()).to_bits().into(),
            // Magnitudes up to 1, no NaN and no Inf.
            DType::F8E4M3 => (random.bits() & 0x80) | (random.bits() % 0x38),
            DType::F8E5M2 => (random.bits() & 0x80) | (random.bits() % 0x3c),
            DType::Bool => random.bits() >> 63,
            _ => random.bits() >> 7,
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size().unwrap_or(1)]);
    }
    bytes
}

/// Compares every dtype, over sizes and layouts, with the host; tells how many cases there were.
fn correctness(gpu: &Gpu, quick: bool) -> Outcome<usize> {
    let mut random = Random(5);
    let mut cases = 0;
    let sizes: &[usize] = if quick {
        &[1, 1000, 70_001]
    } else {
        &[1, 1000, 70_001, 5_000_003]
    };
    for dtype in &DTYPES {
        for &count in sizes {
            let size = dtype.size().unwrap_or(1);
            let mut bytes = random_bytes(dtype, count, &mut random);
            if dtype.is_float() && count > 1000 {
                // All ones is a NaN in every format.
                bytes[700 * size..701 * size].fill(0xff);
            }
            // As it is; rows with a gap behind them; columns first; not aligned to a vector.
            let (rows, columns) = (count.div_ceil(100), count.min(99));
            let (tall, wide) = (rows as isize, columns as isize);
            let pitch = columns as isize + 1;
            let padded = (rows - 1) * (columns + 1) + columns <= count;
            let layouts = [
                (true, vec![count], vec![1], 0),
                (padded, vec![rows, columns], vec![pitch, 1], 0),
                (
                    rows * columns <= count,
                    vec![columns, rows],
                    vec![1, wide],
                    0,
                ),
                (
                    rows * columns <= count,
                    vec![rows, columns],
                    vec![1, tall],
                    0,
                ),
                (count > 1, vec![count - 1], vec![1], 1),
            ];
            let memory = gpu.upload(&bytes)?;
            for (_, shape, strides, offset) in layouts.into_iter().filter(|layout| layout.0) {
                let view = TensorView::strided(dtype.clone(), &shape, &strides, offset, &bytes)?;
                let wanted = summary::summarise(&view);
                let tensor = DeviceTensor {
                    data: memory.0 + (offset * size) as u64,
                    elements: Elements::Plain(dtype.clone()),
                    shape,
                    strides,
                };
                let case = format!("{dtype} {:?} {:?}", tensor.shape, tensor.strides);
                let mut engine = Engine::new(0)?;
                // SAFETY: the view has checked that the elements are inside the bytes.
                unsafe { engine.summarise(gpu.producer(), &[(0, tensor)])? };
                let (_, found) = engine.flush().pop().ok_or("no summary")?;
                compare(&found?, &wanted, &case)?;
                cases += 1;
            }
        }
    }
    Ok(cases)
}

fn compare(found: &Summary, wanted: &Summary, case: &str) -> Outcome<()> {
    let number = |number: Option<Number>| match number {
        Some(Number::Float(value)) => value.to_bits() << 1,
        Some(Number::Int(value)) => value as u64,
        Some(Number::UInt(value)) => value,
        None => 0,
    };
    let exact = |summary: &Summary| {
        (
            (
                summary.count,
                summary.nan,
                summary.pos_inf,
                summary.neg_inf,
                summary.zeros,
            ),
            (summary.first_non_finite, summary.checksum),
            (number(summary.min), number(summary.max)),
        )
    };
    let spread = wanted.std.filter(|std| std.is_finite()).unwrap_or(0.0);
    let close = |found: Option<f64>, wanted: Option<f64>, slack: f64| match (found, wanted) {
        (Some(found), Some(wanted)) if wanted.is_finite() => (found - wanted).abs() <= slack,
        (Some(found), Some(wanted)) => found.is_nan() == wanted.is_nan(),
        _ => found == wanted,
    };
    let slack = 2e-7 * spread + 4e-16 * wanted.mean.map_or(0.0, f64::abs);
    let same = exact(found) == exact(wanted)
        && close(found.mean, wanted.mean, slack)
        && close(found.std, wanted.std, 1e-6 * spread)
        && close(Some(found.l2), Some(wanted.l2), 1e-6 * wanted.l2);
    if same {
        Ok(())
    } else {
        Err(format!("{case}: the device says {found:?}, the host {wanted:?}").into())
    }
}

/// Bytes read per second for each dtype and size, beside a copy on the device.
fn bandwidth(gpu: &Gpu) -> Outcome<()> {
    const REPEATS: usize = 20;
    let (free, _) = result::mem_get_info()?;
    // Larger than any cache, so that every pass reads memory.
    let total = (free / 2).min(4096 * MIB) / (64 * MIB) * (64 * MIB);
    let memory = gpu.allocate(total)?;
    let sizes = [16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];
    for &bytes in sizes.iter().filter(|&&bytes| 2 * bytes <= total) {
        let places = total / (2 * bytes);
        let copy = || {
            for i in 0..REPEATS {
                let from = memory.0 + (i % places * 2 * bytes) as u64;
                // SAFETY: both halves of the place are inside the memory.
                unsafe { result::memcpy_dtod_async(from + bytes as u64, from, bytes, gpu.stream)? };
            }
            Ok(())
        };
        gpu.seconds(copy)?;
        let rate = 2.0 * (bytes * REPEATS) as f64 / gpu.seconds(copy)?;
        let mib = bytes / MIB;
        println!(
            "| copy on the device, read and written | | {mib} MiB | {:.0} GB/s |",
            rate / 1e9
        );
    }
    let mut random = Random(9);
    for dtype in &DTYPES {
        let size = dtype.size().unwrap_or(1);
        let pattern = random_bytes(dtype, MIB / size, &mut random);
        // SAFETY: the memory is a multiple of the pattern.
        unsafe {
            for at in (0..total).step_by(MIB) {
                let target = memory.0 + at as u64;
                result::memcpy_htod_async(target, &pattern, gpu.stream)?;
            }
            result::stream::synchronize(gpu.stream)?;
        }
        for &bytes in sizes.iter().filter(|&&bytes| bytes <= total) {
            let mut engine = Engine::new(0)?;
            let places = total / bytes;
            let mut pass = || {
                for i in 0..REPEATS {
                    let tensor = DeviceTensor {
                        data: memory.0 + (i % places * bytes) as u64,
                        elements: Elements::Plain(dtype.clone()),
                        shape: vec![bytes / size],
                        strides: vec![1],
                    };
                    // SAFETY: the place is inside the memory.
                    unsafe { engine.summarise(gpu.producer(), &[(i as u64, tensor)])? };
                }
                Ok(())
            };
            gpu.seconds(&mut pass)?;
            let rate = (bytes * REPEATS) as f64 / gpu.seconds(&mut pass)?;
            for (_, summary) in engine.flush() {
                summary?;
            }
            println!(
                "| summary | {dtype} | {} MiB | {:.0} GB/s |",
                bytes / MIB,
                rate / 1e9
            );
        }
    }
    Ok(())
}

/// What a summary of a tiny tensor costs the device and the calling thread.
fn launch_cost(gpu: &Gpu) -> Outcome<()> {
    const TENSORS: usize = 8000;
    let memory = gpu.upload(&[0; 4096])?;
    for batch in [1, 80] {
        let tensors: Vec<(u64, DeviceTensor)> = (0..batch)
            .map(|i| {
                let tensor = DeviceTensor {
                    data: memory.0,
                    elements: Elements::Plain(DType::F32),
                    shape: vec![1024],
                    strides: vec![1],
                };
                (i, tensor)
            })
            .collect();
        let mut engine = Engine::new(0)?;
        let mut host = 0.0;
        let mut pass = || {
            let start = Instant::now();
            for _ in 0..TENSORS / tensors.len() {
                // SAFETY: the memory holds 1024 floats.
                unsafe { engine.summarise(gpu.producer(), &tensors)? };
            }
            host = start.elapsed().as_secs_f64();
            Ok(())
        };
        gpu.seconds(&mut pass)?;
        let device = gpu.seconds(&mut pass)?;
        for (_, summary) in engine.flush() {
            summary?;
        }
        let microseconds = |seconds: f64| seconds * 1e6 / TENSORS as f64;
        println!(
            "| one tensor of {batch} in a launch | f32 | 4 KiB | {:.2} us on the device, {:.2} us for the caller |",
            microseconds(device),
            microseconds(host)
        );
    }
    Ok(())
}

/// Writes a dump somewhere and tells when it is complete.
struct Sink {
    file: Option<File>,
    done: mpsc::Sender<Result<(), DumpError>>,
}

impl DumpSink for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    fn close(self: Box<Self>, outcome: Result<(), DumpError>) {
        let _ = self.done.send(outcome);
    }
}

/// Bytes dumped per second, to nowhere and to a file in the folder for temporary files.
fn dump_rate(gpu: &Gpu) -> Outcome<()> {
    const TENSORS: usize = 8;
    let bytes = 256 * MIB;
    let memory = gpu.allocate(bytes)?;
    let path = std::env::temp_dir().join(format!("burnscope-gpu-check-{}", std::process::id()));
    for to_file in [false, true] {
        let dumper = Dumper::new(0, DumpOptions::default())?;
        let (done, outcomes) = mpsc::channel();
        let start = Instant::now();
        for _ in 0..TENSORS {
            let tensor = DeviceTensor {
                data: memory.0,
                elements: Elements::Plain(DType::U8),
                shape: vec![bytes],
                strides: vec![1],
            };
            let file = to_file.then(|| File::create(&path)).transpose()?;
            let sink = Sink {
                file,
                done: done.clone(),
            };
            // SAFETY: the memory outlives the dumper.
            unsafe { dumper.dump(gpu.producer(), &tensor, Box::new(()), Box::new(sink)) };
        }
        drop(done);
        dumper.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let rate = (TENSORS * bytes) as f64 / seconds / 1e9;
        let place = if to_file { "to a file" } else { "to nowhere" };
        println!(
            "| dump {place} | u8 | {} MiB | {rate:.2} GB/s |",
            bytes / MIB
        );
    }
    std::fs::remove_file(path)?;
    Ok(())
}
