//! Tensors on both sides, and what it means that their summaries agree.

use std::sync::OnceLock;

use burnscope::summary::cube::{CubeSummariser, DeviceTensor, Reading, Slot, Storage};
use burnscope::summary::{Number, Summary, TensorView, summarise};
use cubecl::Device;
use cubecl::client::Client;
use cubecl::server::Handle;
use cubecl::wgpu::WgpuDeviceKind;
use half::{bf16, f16};

/// Elements that one cube of the kernel takes.
pub const TILE: usize = 4096;

pub fn client() -> Option<Client> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        Device::wgpu(WgpuDeviceKind::Cpu)
            .or_else(|_| Device::wgpu(WgpuDeviceKind::DefaultDevice))
            .ok()
    });
    if device.is_none() {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
    }
    device.as_ref().map(Device::client)
}

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

pub const STORAGES: [Storage; 16] = [
    Storage::F64,
    Storage::F32,
    Storage::F16,
    Storage::BF16,
    Storage::F8E4M3,
    Storage::F8E5M2,
    Storage::I64,
    Storage::I32,
    Storage::I16,
    Storage::I8,
    Storage::U64,
    Storage::U32,
    Storage::U16,
    Storage::U8,
    Storage::Bool8,
    Storage::Bool32,
];

/// Finite elements of one type as the host keeps them: normal numbers, or bits of the full range.
pub fn elements(storage: Storage, count: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::new();
    for _ in 0..count {
        match storage {
            Storage::F64 => bytes.extend(random.normal().to_ne_bytes()),
            Storage::F32 => bytes.extend((random.normal() as f32).to_ne_bytes()),
            Storage::F16 => bytes.extend(f16::from_f64(random.normal()).to_ne_bytes()),
            Storage::BF16 => bytes.extend(bf16::from_f64(random.normal()).to_ne_bytes()),
            // Exponents of ones are left out: they are NaN or infinite.
            Storage::F8E4M3 => bytes.push(random.bits() as u8 & 0xf7),
            Storage::F8E5M2 => bytes.push(random.bits() as u8 & 0xfb),
            Storage::Bool8 | Storage::Bool32 => bytes.push(random.bits() as u8 & 1),
            _ => bytes.extend(&random.bits().to_ne_bytes()[..storage.size()]),
        }
    }
    bytes
}

/// What the device keeps of the host's bytes.
pub fn device_bytes(storage: Storage, bytes: &[u8]) -> Vec<u8> {
    match storage {
        // A device takes any bit for true.
        Storage::Bool32 => bytes
            .iter()
            .flat_map(|&b| (u32::from(b) * 0x100).to_ne_bytes())
            .collect(),
        _ => bytes.to_vec(),
    }
}

/// A tensor on both sides.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub storage: Storage,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    pub offset: usize,
    pub bytes: Vec<u8>,
}

impl Case {
    pub fn contiguous(name: &str, storage: Storage, shape: &[usize], bytes: Vec<u8>) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        Self {
            name: format!("{name} {storage:?} {shape:?}"),
            storage,
            shape: shape.to_vec(),
            strides,
            offset: 0,
            bytes,
        }
    }

    pub fn floats(name: &str, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        Self::contiguous(name, Storage::F32, &[values.len()], bytes)
    }

    pub fn random(storage: Storage, shape: &[usize], strides: &[usize], offset: usize) -> Self {
        let reach: usize = shape
            .iter()
            .zip(strides)
            .map(|(&dim, &stride)| dim.saturating_sub(1) * stride)
            .sum();
        let seed = (reach + 31 * offset) as u64;
        Self {
            name: format!("{storage:?} {shape:?} {strides:?} from {offset}"),
            storage,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            bytes: elements(storage, offset + reach + 1, seed),
        }
    }

    pub fn view(&self) -> TensorView<'_> {
        let strides: Vec<isize> = self.strides.iter().map(|&s| s as isize).collect();
        let dtype = self.storage.dtype();
        TensorView::strided(dtype, &self.shape, &strides, self.offset, &self.bytes).unwrap()
    }

    pub fn upload(&self, client: &Client) -> Handle {
        client.create_from_slice(&device_bytes(self.storage, &self.bytes))
    }

    pub fn tensor<'a>(&'a self, handle: &'a Handle) -> DeviceTensor<'a> {
        DeviceTensor {
            handle,
            storage: self.storage,
            shape: &self.shape,
            strides: &self.strides,
            offset: self.offset,
        }
    }
}

pub fn summary(reading: Reading) -> Summary {
    match reading {
        Reading::Summary(summary) => summary,
        Reading::Edges(_) => panic!("edge items where a summary was asked for"),
    }
}

/// Summarises all cases with one flush.
pub fn on_device(client: &Client, cases: &[Case]) -> Vec<Summary> {
    let mut summariser = CubeSummariser::new(client);
    let slots: Vec<Slot> = cases
        .iter()
        .map(|case| {
            let handle = case.upload(client);
            summariser.enqueue(&case.tensor(&handle)).unwrap()
        })
        .collect();
    let readings = summariser.flush().wait().unwrap();
    assert_eq!(slots, readings.iter().map(|r| r.0).collect::<Vec<_>>());
    readings.into_iter().map(|r| summary(r.1)).collect()
}

/// Like `==`, but NaN equals NaN and zeros have signs.
pub fn same(a: Option<Number>, b: Option<Number>) -> bool {
    match (a, b) {
        (Some(Number::Float(a)), Some(Number::Float(b))) => identical(a, b),
        _ => a == b,
    }
}

pub fn identical(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

pub fn close(a: f64, b: f64, tolerance: f64) -> bool {
    identical(a, b) || (a - b).abs() <= tolerance
}

pub fn assert_agree(device: &Summary, host: &Summary, name: &str) {
    let context = || format!("{name}:\n device {device:?}\n   host {host:?}");
    assert_eq!(device.count, host.count, "{}", context());
    assert!(same(device.min, host.min), "min of {}", context());
    assert!(same(device.max, host.max), "max of {}", context());
    assert_eq!(device.zeros, host.zeros, "zeros of {}", context());
    assert_eq!(device.nan, host.nan, "NaNs of {}", context());
    assert_eq!(device.pos_inf, host.pos_inf, "+Inf of {}", context());
    assert_eq!(device.neg_inf, host.neg_inf, "-Inf of {}", context());
    assert_eq!(
        device.first_non_finite,
        host.first_non_finite,
        "first of {}",
        context()
    );
    assert_eq!(device.checksum, host.checksum, "checksum of {}", context());
    let number = |value: Option<f64>| value.unwrap_or(f64::from_bits(1));
    let (abs_device, abs_host) = (number(device.abs_max), number(host.abs_max));
    assert!(identical(abs_device, abs_host), "abs_max of {}", context());
    // A mean may cancel to almost nothing: then it is exact in proportion to the elements.
    let (mean, std) = (number(host.mean), number(host.std));
    let of_elements = if abs_host.is_finite() { abs_host } else { 0.0 };
    assert!(
        close(
            number(device.mean),
            mean,
            1e-9 * mean.abs() + 1e-12 * of_elements
        ),
        "mean of {}",
        context()
    );
    assert!(
        close(number(device.std), std, 1e-8 * std),
        "std of {}",
        context()
    );
    assert!(
        close(device.l2, host.l2, 1e-9 * host.l2),
        "l2 of {}",
        context()
    );
}

pub fn check(cases: &[Case]) {
    let Some(client) = client() else { return };
    for (device, case) in on_device(&client, cases).iter().zip(cases) {
        assert_agree(device, &summarise(&case.view()), &case.name);
    }
}
