//! Host summaries in bytes a second, beside a plain read of the same memory and beside mean, std,
//! min and max as four separate passes, on one and two threads.
//!
//! A second is one of CPU time, that of all threads added up, so that the numbers bear a machine
//! with other work on it: with two threads, perfect scaling shows as an unchanged number.

mod cpu_time;

use std::hint::black_box;

use burnscope::summary::{DType, TensorView, summarise, torch};
use cpu_time::CpuTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use rayon::prelude::*;

/// Elements of the large tensors: 64 Mi.
const LARGE: usize = 64 << 20;

/// Bytes of one thread's piece of the comparison passes.
const PIECE: usize = 1 << 20;

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

/// The least that anything can do with the memory: a sum of its words, eight vectors at a time.
fn plain_read(words: &[u64]) -> u64 {
    let piece = |words: &[u64]| {
        let mut sums = [0u64; 64];
        for row in words.as_chunks::<64>().0 {
            for (sum, word) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(*word);
            }
        }
        sums.iter().fold(0u64, |a, &b| a.wrapping_add(b))
    };
    words
        .par_chunks(PIECE / 8)
        .map(piece)
        .reduce(|| 0, u64::wrapping_add)
}

/// Mean, std, min and max, each with its own pass over the memory.
fn four_passes(values: &[f32]) -> [f64; 4] {
    let pieces = || values.par_chunks(PIECE / 4);
    let sum = |values: &[f32], shift: f64, square: bool| {
        let mut sums = [0f64; 32];
        for row in values.as_chunks::<32>().0 {
            for (sum, &x) in sums.iter_mut().zip(row) {
                let d = f64::from(x) - shift;
                *sum += if square { d * d } else { d };
            }
        }
        sums.iter().sum::<f64>()
    };
    let extreme = |values: &[f32], low: bool| {
        let mut best = [if low {
            f32::INFINITY
        } else {
            f32::NEG_INFINITY
        }; 32];
        for row in values.as_chunks::<32>().0 {
            for (best, &x) in best.iter_mut().zip(row) {
                *best = if (x < *best) == low { x } else { *best };
            }
        }
        best.iter()
            .fold(best[0], |a, &b| if low { a.min(b) } else { a.max(b) })
    };
    let mean = pieces().map(|p| sum(p, 0.0, false)).sum::<f64>() / values.len() as f64;
    let squares = pieces().map(|p| sum(p, mean, true)).sum::<f64>();
    let min = pieces()
        .map(|p| extreme(p, true))
        .reduce(|| f32::INFINITY, f32::min);
    let max = pieces()
        .map(|p| extreme(p, false))
        .reduce(|| f32::NEG_INFINITY, f32::max);
    [
        mean,
        (squares / (values.len() - 1) as f64).sqrt(),
        min.into(),
        max.into(),
    ]
}

/// Bytes that look like activations for float types and like anything for integers.
fn filled(dtype: &DType, bytes: usize) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut words = vec![0u64; bytes / 8];
    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let uniform = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
    match dtype {
        DType::F64 => bytemuck::cast_slice_mut::<u8, f64>(memory)
            .iter_mut()
            .for_each(|x| *x = uniform(next()).into()),
        DType::F32 => bytemuck::cast_slice_mut::<u8, f32>(memory)
            .iter_mut()
            .for_each(|x| *x = uniform(next())),
        DType::F16 => bytemuck::cast_slice_mut::<u8, half::f16>(memory)
            .iter_mut()
            .for_each(|x| *x = half::f16::from_f32(uniform(next()))),
        DType::BF16 => bytemuck::cast_slice_mut::<u8, half::bf16>(memory)
            .iter_mut()
            .for_each(|x| *x = half::bf16::from_f32(uniform(next()))),
        DType::F8E4M3 | DType::F8E5M2 => memory.iter_mut().for_each(|x| *x = next() as u8 & 0xbf),
        DType::Bool => memory.iter_mut().for_each(|x| *x = next() as u8 & 1),
        _ => words.iter_mut().for_each(|x| *x = next()),
    }
    words
}

fn measure(group: &mut BenchmarkGroup<CpuTime>, name: &str, bytes: usize, f: impl Fn() + Sync) {
    group.throughput(Throughput::Bytes(bytes as u64));
    for threads in [1, 2] {
        let pool = pool(threads);
        group.bench_function(format!("{name}/{threads} threads"), |b| {
            pool.install(|| b.iter(&f));
        });
    }
}

fn large_f32(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("64Mi f32");
    group.sample_size(10);
    let words = filled(&DType::F32, LARGE * 4);
    let memory: &[u8] = bytemuck::cast_slice(&words);
    let view = TensorView::contiguous(DType::F32, &[LARGE], memory).unwrap();
    let bytes = memory.len();
    measure(&mut group, "plain read", bytes, || {
        black_box(plain_read(&words));
    });
    measure(&mut group, "summary", bytes, || {
        black_box(summarise(&view));
    });
    measure(&mut group, "summary with torch's", bytes, || {
        black_box(torch::summarise(&view));
    });
    measure(&mut group, "four passes", bytes, || {
        black_box(four_passes(bytemuck::cast_slice(&words)));
    });
    let square = 1 << 13;
    let transposed =
        TensorView::strided(DType::F32, &[square; 2], &[1, square as isize], 0, memory).unwrap();
    measure(&mut group, "summary of a transpose", bytes, || {
        black_box(summarise(&transposed));
    });
}

fn dtypes(c: &mut Criterion<CpuTime>) {
    for (name, bytes) in [("256 MiB", 256 << 20), ("256 KiB", 256 << 10)] {
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        let words = filled(&DType::F32, bytes);
        measure(&mut group, "plain read", bytes, || {
            black_box(plain_read(&words));
        });
        for dtype in [
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
        ] {
            let words = filled(&dtype, bytes);
            let count = bytes / dtype.size().unwrap();
            let memory = bytemuck::cast_slice(&words);
            let view = TensorView::contiguous(dtype.clone(), &[count], memory).unwrap();
            measure(&mut group, &dtype.to_string(), bytes, || {
                black_box(summarise(&view));
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = large_f32, dtypes
}
criterion_main!(benches);
