//! What the summary on a device costs: one request, and one pass over a tensor until it is read back.
//!
//! Runs on the machine's own device, or else on a software Vulkan device. Beside it stands a copy of
//! the same tensor on the device, which reads every element once and writes it.

use std::hint::black_box;

use burnscope::summary::cube::{CubeSummariser, DeviceTensor, Storage};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cubecl::Device;
use cubecl::wgpu::WgpuDeviceKind;

fn summaries(criterion: &mut Criterion) {
    let device =
        Device::wgpu(WgpuDeviceKind::DefaultDevice).or_else(|_| Device::wgpu(WgpuDeviceKind::Cpu));
    let Ok(device) = device else {
        eprintln!("skipped: this machine has no adapter");
        return;
    };
    let client = device.client();
    let mut group = criterion.benchmark_group("cube_summary");
    for (storage, count) in [
        (Storage::F32, 1 << 10),
        (Storage::F32, 1 << 20),
        (Storage::BF16, 1 << 20),
        (Storage::I64, 1 << 20),
    ] {
        let bytes: Vec<u8> = (0..count * storage.size())
            .map(|k| ((k * 2_654_435_761) >> 7) as u8 & 0x3f)
            .collect();
        let handle = client.create_from_slice(&bytes);
        let tensor = DeviceTensor {
            handle: &handle,
            storage,
            shape: &[count],
            strides: &[1],
            offset: 0,
        };
        let id = |what| BenchmarkId::new(what, format!("{storage:?}/{count}"));
        let mut summariser = CubeSummariser::new(&client);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(id("summary"), |bencher| {
            bencher.iter(|| {
                summariser.enqueue(&tensor).unwrap();
                black_box(summariser.flush().wait().unwrap())
            });
        });
        group.bench_function(id("copy"), |bencher| {
            bencher.iter(|| black_box(summariser.enqueue_copy(&tensor).unwrap().wait().unwrap()));
        });
    }
    group.finish();
}

criterion_group!(benches, summaries);
criterion_main!(benches);
