//! The summary on a device equals that on the host, whatever the type, the layout and the values.
//!
//! The tests run on a software Vulkan device where there is one (Debian's `mesa-vulkan-drivers`), or
//! else on the machine's own device. Without any adapter each prints that it is skipped.

use std::sync::OnceLock;

use burnscope::summary::cube::{
    CubeSummariser, DeviceTensor, NotSummarised, Reading, Slot, Storage,
};
use burnscope::summary::{DType, EdgeItems, Number, Summary, TensorView, edge_runs, summarise};
use cubecl::Device;
use cubecl::client::Client;
use cubecl::server::Handle;
use cubecl::wgpu::WgpuDeviceKind;
use half::{bf16, f16};

/// Elements that one cube of the kernel takes.
const TILE: usize = 4096;

fn client() -> Option<Client> {
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
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

const STORAGES: [Storage; 16] = [
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
fn elements(storage: Storage, count: usize, seed: u64) -> Vec<u8> {
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
fn device_bytes(storage: Storage, bytes: &[u8]) -> Vec<u8> {
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
struct Case {
    name: String,
    storage: Storage,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    bytes: Vec<u8>,
}

impl Case {
    fn contiguous(name: &str, storage: Storage, shape: &[usize], bytes: Vec<u8>) -> Self {
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

    fn floats(name: &str, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        Self::contiguous(name, Storage::F32, &[values.len()], bytes)
    }

    fn random(storage: Storage, shape: &[usize], strides: &[usize], offset: usize) -> Self {
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

    fn view(&self) -> TensorView<'_> {
        let strides: Vec<isize> = self.strides.iter().map(|&s| s as isize).collect();
        let dtype = self.storage.dtype();
        TensorView::strided(dtype, &self.shape, &strides, self.offset, &self.bytes).unwrap()
    }

    fn upload(&self, client: &Client) -> Handle {
        client.create_from_slice(&device_bytes(self.storage, &self.bytes))
    }

    fn tensor<'a>(&'a self, handle: &'a Handle) -> DeviceTensor<'a> {
        DeviceTensor {
            handle,
            storage: self.storage,
            shape: &self.shape,
            strides: &self.strides,
            offset: self.offset,
        }
    }
}

fn summary(reading: Reading) -> Summary {
    match reading {
        Reading::Summary(summary) => summary,
        Reading::Edges(_) => panic!("edge items where a summary was asked for"),
    }
}

/// Summarises all cases with one flush.
fn on_device(client: &Client, cases: &[Case]) -> Vec<Summary> {
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
fn same(a: Option<Number>, b: Option<Number>) -> bool {
    match (a, b) {
        (Some(Number::Float(a)), Some(Number::Float(b))) => identical(a, b),
        _ => a == b,
    }
}

fn identical(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    identical(a, b) || (a - b).abs() <= tolerance
}

fn assert_agree(device: &Summary, host: &Summary, name: &str) {
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

fn check(cases: &[Case]) {
    let Some(client) = client() else { return };
    for (device, case) in on_device(&client, cases).iter().zip(cases) {
        assert_agree(device, &summarise(&case.view()), &case.name);
    }
}

#[test]
fn every_type_and_size_around_the_edges_of_tiles() {
    let mut cases = Vec::new();
    for storage in STORAGES {
        for count in [0, 1, 2, 3, TILE - 1, TILE, TILE + 1, 5 * TILE + 3] {
            let bytes = elements(storage, count, count as u64);
            cases.push(Case::contiguous("random", storage, &[count], bytes));
        }
    }
    check(&cases);
}

#[test]
fn a_million_elements() {
    let cases: Vec<Case> = [Storage::F32, Storage::BF16, Storage::I64, Storage::U8]
        .map(|storage| {
            let bytes = elements(storage, 1_000_000, 7);
            Case::contiguous("random", storage, &[1000, 1000], bytes)
        })
        .into();
    check(&cases);
}

#[test]
fn more_tiles_than_one_dimension_of_a_grid_has() {
    // 65536 tiles, all of them of one element.
    let case = Case {
        name: "broadcast".into(),
        shape: vec![1 << 28],
        strides: vec![0],
        ..Case::floats("", &[1.5])
    };
    let Some(client) = client() else { return };
    let device = &on_device(&client, &[case])[0];
    assert_eq!(device.count, 1 << 28);
    assert_eq!(device.mean, Some(1.5));
    assert_eq!(device.std, Some(0.0));
    let n = 1u64 << 28;
    let weights = (n / 2).wrapping_mul(n + 1);
    let expected = weights.wrapping_mul(u64::from(1.5f32.to_bits()));
    assert_eq!(device.checksum, expected);
}

#[test]
fn every_layout() {
    let mut cases = Vec::new();
    for storage in STORAGES {
        for (shape, strides, offset) in [
            // Padded rows.
            (vec![100, 100], vec![128, 1], 0),
            (vec![3, 50, 33], vec![3200, 64, 1], 0),
            // Permuted.
            (vec![70, 90], vec![1, 70], 0),
            (vec![20, 30, 11], vec![1, 220, 20], 0),
            // Broadcast along the first, a middle, the last and every dimension.
            (vec![50, 90], vec![0, 1], 0),
            (vec![9, 40, 30], vec![30, 0, 1], 0),
            (vec![90, 50], vec![1, 0], 0),
            (vec![90, 50], vec![0, 0], 0),
            // From an offset that splits words of narrow elements.
            (vec![5000], vec![1], 3),
            (vec![61, 67], vec![67, 1], 13),
            // Steps, odd rows, single items with odd strides, no dimension.
            (vec![4500], vec![2], 1),
            (vec![40, 41], vec![123, 3], 5),
            (vec![1, 70, 1, 60], vec![5, 60, 999, 1], 0),
            (vec![], vec![], 0),
            (vec![], vec![], 5),
            (vec![3, 0, 2], vec![0, 2, 1], 0),
        ] {
            cases.push(Case::random(storage, &shape, &strides, offset));
        }
    }
    check(&cases);
}

#[test]
fn a_handle_may_begin_inside_its_memory() {
    let Some(client) = client() else { return };
    for storage in STORAGES {
        let case = Case::contiguous("whole", storage, &[6000], elements(storage, 6000, 3));
        let handle = case.upload(&client);
        for first in [1usize, 2, 64, 1001] {
            let part = handle
                .clone()
                .offset_start((first * storage.size()) as u64)
                .offset_end((3 * storage.size()) as u64);
            let tensor = DeviceTensor {
                handle: &part,
                storage,
                shape: &[5990 - first],
                strides: &[1],
                offset: 2,
            };
            let mut summariser = CubeSummariser::new(&client);
            summariser.enqueue(&tensor).unwrap();
            let readings = summariser.flush().wait().unwrap();
            let view = TensorView::strided(
                storage.dtype(),
                &[5990 - first],
                &[1],
                first + 2,
                &case.bytes,
            );
            let name = format!("{storage:?} from {first}");
            let device = summary(readings.into_iter().next().unwrap().1);
            assert_agree(&device, &summarise(&view.unwrap()), &name);
        }
    }
}

/// Some elements, all but every `step`-th of which are normal numbers.
fn with(special: &[f32], step: usize, count: usize) -> Vec<f32> {
    let mut random = Random(11);
    (0..count)
        .map(|k| {
            if k % step == step - 1 {
                special[(k / step) % special.len()]
            } else {
                random.normal() as f32
            }
        })
        .collect()
}

#[test]
fn adversarial_floats() {
    let mut random = Random(5);
    let mut normal = |mean: f64, std: f64, count: usize| -> Vec<f32> {
        (0..count)
            .map(|_| (mean + std * random.normal()) as f32)
            .collect()
    };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let negative_nan = f32::from_bits(0xffc0_0001);
    let signalling = f32::from_bits(0x7f80_0001);
    let count = 2 * TILE + 77;
    let tiny = f32::from_bits(1);
    let mut outliers = normal(0.0, 1.0, count);
    (outliers[0], outliers[TILE + 9]) = (1e6, -3e7);
    let mut far = normal(0.0, 1.0, count);
    far[17] = f32::MAX;
    let cases = [
        Case::floats("NaN", &with(&[nan, negative_nan, signalling], 501, count)),
        Case::floats("+Inf", &with(&[inf], 1000, count)),
        Case::floats("-Inf", &with(&[-inf], 1000, count)),
        Case::floats("both", &with(&[inf, -inf], 1000, count)),
        Case::floats("all kinds", &with(&[nan, inf, -inf, 0.0, -0.0], 3, count)),
        Case::floats("NaN alone", &[nan; 3]),
        Case::floats("NaN in every element", &vec![nan; TILE + 1]),
        Case::floats("Inf alone", &[inf]),
        Case::floats("Inf in every element", &vec![-inf; TILE + 1]),
        Case::floats("NaN last", &{
            let mut values = vec![1.0; count];
            values[count - 1] = nan;
            values
        }),
        Case::floats("signs of zero", &with(&[0.0, -0.0], 2, count)),
        Case::floats("zero then negative zero", &[0.0, -0.0]),
        Case::floats("negative zero then zero", &[-0.0, 0.0, -0.0]),
        Case::floats("negative zeros", &vec![-0.0; count]),
        Case::floats("zeros", &vec![0.0; count]),
        Case::floats("one subnormal", &[tiny]),
        Case::floats("subnormals", &{
            let random = &mut Random(3);
            (0..count)
                .map(|_| f32::from_bits(random.bits() as u32 & 0x807f_ffff))
                .collect::<Vec<f32>>()
        }),
        Case::floats("subnormals among zeros", &with(&[tiny, -tiny], 2, 100)),
        Case::floats("around the least normal", &{
            let random = &mut Random(4);
            (0..count)
                .map(|_| f32::from_bits(random.bits() as u32 & 0x80ff_ffff))
                .collect::<Vec<f32>>()
        }),
        Case::floats("sums beyond f32", &vec![3e38; count]),
        Case::floats("large", &normal(1e30, 1e29, count)),
        Case::floats(
            "large of both signs",
            &with(&[f32::MAX, f32::MIN], 1, count),
        ),
        Case::floats("small", &normal(1e-30, 1e-31, count)),
        Case::floats("mean far from zero", &normal(1e4, 1.0, count)),
        Case::floats("mean very far from zero", &normal(-1e7, 1.0, count)),
        Case::floats("constant", &vec![0.1; count]),
        Case::floats("two neighbours", &{
            let next = f32::from_bits(0.1f32.to_bits() + 1);
            with(&[0.1, next], 1, count)
        }),
        Case::floats("outliers", &outliers),
        Case::floats("one far outlier", &far),
        Case::floats("all bits", &{
            let random = &mut Random(9);
            (0..count)
                .map(|_| f32::from_bits(random.bits() as u32))
                .collect::<Vec<f32>>()
        }),
        Case::floats("all magnitudes", &{
            let random = &mut Random(10);
            (0..count)
                .map(|_| f32::from_bits(random.bits() as u32))
                .map(|value| if value.is_finite() { value } else { 0.0 })
                .collect::<Vec<f32>>()
        }),
        Case::floats("ramp", &(0..count).map(|k| k as f32).collect::<Vec<_>>()),
    ];
    check(&cases);
}

#[test]
fn all_bit_patterns_of_narrow_floats() {
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let finite = |storage: Storage, pattern: u16| {
        let value = match storage {
            Storage::F16 => f16::from_bits(pattern).to_f32(),
            _ => bf16::from_bits(pattern).to_f32(),
        };
        value.is_finite()
    };
    let mut cases = Vec::new();
    for storage in [Storage::F16, Storage::BF16] {
        cases.push(Case::contiguous("all", storage, &[65536], halves.clone()));
        let only_finite: Vec<u8> = (0..=u16::MAX)
            .filter(|&pattern| finite(storage, pattern))
            .flat_map(u16::to_ne_bytes)
            .collect();
        let count = only_finite.len() / 2;
        cases.push(Case::contiguous("finite", storage, &[count], only_finite));
        // Each pattern on its own is its own least and greatest element.
        for pattern in (0..=u16::MAX).step_by(251) {
            let bytes = pattern.to_ne_bytes().to_vec();
            cases.push(Case::contiguous("one", storage, &[1], bytes));
        }
    }
    for storage in [Storage::F8E4M3, Storage::F8E5M2] {
        cases.push(Case::contiguous("all", storage, &[256], bytes.clone()));
        for pattern in 0..=u8::MAX {
            cases.push(Case::contiguous("one", storage, &[1], vec![pattern]));
        }
    }
    check(&cases);
}

#[test]
fn adversarial_doubles() {
    let mut random = Random(6);
    let count = TILE + 500;
    let mut case = |name: &str, mut value: Box<dyn FnMut(&mut Random, usize) -> f64>| {
        let bytes = (0..count).flat_map(|k| value(&mut random, k).to_ne_bytes());
        Case::contiguous(name, Storage::F64, &[count], bytes.collect())
    };
    let cases = [
        case("beyond f32", Box::new(|r, _| 1e300 * r.normal())),
        case("squares vanish", Box::new(|r, _| 1e-300 * r.normal())),
        case("subnormal", Box::new(|r, _| f64::from_bits(r.bits() >> 12))),
        case("far from zero", Box::new(|r, _| 1e10 + 1e-3 * r.normal())),
        case("constant", Box::new(|_, _| 0.1)),
        case("greatest", Box::new(|_, _| f64::MAX)),
        case(
            "signs",
            Box::new(|_, k| if k % 2 == 0 { 0.0 } else { -0.0 }),
        ),
        case("bits", Box::new(|r, _| f64::from_bits(r.bits()))),
        case(
            "special",
            Box::new(|r, k| match k % 700 {
                699 => f64::INFINITY,
                698 => f64::NEG_INFINITY,
                697 => f64::from_bits(0xfff0_0000_0000_0001),
                _ => r.normal(),
            }),
        ),
        case(
            "only the lower word makes it NaN",
            Box::new(|_, k| f64::from_bits(0x7ff0_0000_0000_0000 | u64::from(k == 9))),
        ),
        case(
            "all magnitudes",
            Box::new(|r, _| f64::from_bits(r.bits() & 0xbfff_ffff_ffff_ffff)),
        ),
    ];
    check(&cases);
}

#[test]
fn adversarial_integers() {
    let extremes = |storage: Storage| {
        let (mut low, mut high) = (vec![0u8; storage.size()], vec![0xffu8; storage.size()]);
        let top = storage.size() - 1;
        if format!("{storage:?}").starts_with('I') {
            (low[top], high[top]) = (0x80, 0x7f);
        }
        (low, high)
    };
    let mut cases = Vec::new();
    for storage in STORAGES {
        if storage.dtype().is_float() || storage.dtype() == DType::Bool {
            continue;
        }
        let (low, high) = extremes(storage);
        let many = |one: &[u8], count| one.repeat(count);
        let mixed = [many(&low, TILE), many(&high, TILE + 3)].concat();
        let turns = many(&[low.clone(), high.clone()].concat(), TILE);
        cases.extend([
            Case::contiguous("lowest", storage, &[TILE + 1], many(&low, TILE + 1)),
            Case::contiguous("highest", storage, &[TILE + 1], many(&high, TILE + 1)),
            Case::contiguous("halves", storage, &[2 * TILE + 3], mixed),
            Case::contiguous("turns", storage, &[2 * TILE], turns),
            Case::contiguous("zeros", storage, &[77], vec![0; 77 * storage.size()]),
        ]);
    }
    // Time stamps: far from zero, close to each other, beyond the precision of a double.
    let stamps = (0..9000i64).flat_map(|k| (1_700_000_000_000_000_001 + k % 977).to_ne_bytes());
    cases.push(Case::contiguous(
        "stamps",
        Storage::I64,
        &[9000],
        stamps.collect(),
    ));
    check(&cases);
}

#[test]
fn numbers_are_those_of_a_float64_reference() {
    let Some(client) = client() else { return };
    let mut random = Random(21);
    let values: Vec<f32> = (0..3 * TILE + 5)
        .map(|_| (1e4 + random.normal()) as f32)
        .collect();
    let device = &on_device(&client, &[Case::floats("reference", &values)])[0];
    // Differences from 1e4 are exact in double precision, and so is their mean to 1e-15.
    let distances: Vec<f64> = values.iter().map(|&v| f64::from(v) - 1e4).collect();
    let count = distances.len() as f64;
    let mean = distances.iter().sum::<f64>() / count;
    let squares: f64 = distances.iter().map(|d| (d - mean) * (d - mean)).sum();
    let std = (squares / (count - 1.0)).sqrt();
    assert!(close(device.mean.unwrap(), 1e4 + mean, 1e-9));
    assert!(close(device.std.unwrap(), std, 1e-9));
    let checksum = values.iter().zip(1u64..).fold(0u64, |sum, (value, k)| {
        sum.wrapping_add(k.wrapping_mul(u64::from(value.to_bits())))
    });
    assert_eq!(device.checksum, checksum);
}

#[test]
fn a_repeat_and_another_layout_give_the_same_bits() {
    let Some(client) = client() else { return };
    let (rows, columns) = (300, 200);
    let bytes = elements(Storage::F32, rows * columns, 1);
    let plain = Case::contiguous("plain", Storage::F32, &[rows, columns], bytes.clone());
    let mut transposed = vec![0; bytes.len()];
    for (k, element) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let at = (k % columns) * rows + k / columns;
        transposed[4 * at..4 * at + 4].copy_from_slice(element);
    }
    let permuted = Case {
        strides: vec![1, rows],
        bytes: transposed,
        ..plain.clone()
    };
    let all = on_device(&client, &[plain.clone(), plain.clone(), permuted, plain]);
    for summary in &all[1..] {
        // All digits of every number, signs and NaNs included.
        assert_eq!(format!("{summary:?}"), format!("{:?}", all[0]));
    }
}

#[test]
fn full_buffers_are_kept_until_the_flush() {
    let Some(client) = client() else { return };
    // Room for three tiles; the tensor of five tiles needs a buffer of its own.
    let mut summariser = CubeSummariser::with_buffer_bytes(&client, 3 * 72);
    let counts = [100, TILE + 1, 5, 5 * TILE, 0, 1, 2 * TILE, 2 * TILE, 7];
    let cases = counts.map(|count| {
        let bytes = elements(Storage::F32, count, count as u64);
        Case::contiguous("random", Storage::F32, &[count], bytes)
    });
    for round in 0..2u64 {
        for case in &cases {
            let handle = case.upload(&client);
            summariser.enqueue(&case.tensor(&handle)).unwrap();
        }
        assert_eq!(summariser.pending_bytes(), (3 + 3 + 5 + 3 + 3 + 3) * 72);
        let readings = summariser.flush().wait().unwrap();
        assert_eq!(summariser.pending_bytes(), 0);
        assert_eq!(readings.len(), cases.len());
        for (index, (slot, reading)) in readings.into_iter().enumerate() {
            assert_eq!(slot, Slot(round * cases.len() as u64 + index as u64));
            let case = &cases[index];
            assert_agree(&summary(reading), &summarise(&case.view()), &case.name);
        }
    }
    assert!(summariser.flush().wait().unwrap().is_empty());
}

#[test]
fn results_are_of_the_time_of_the_request_and_read_on_another_thread() {
    let Some(client) = client() else { return };
    let case = Case::contiguous(
        "before",
        Storage::F32,
        &[900],
        elements(Storage::F32, 900, 8),
    );
    let handle = case.upload(&client);
    let mut summariser = CubeSummariser::new(&client);
    summariser.enqueue(&case.tensor(&handle)).unwrap();
    summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
    let copy = summariser.enqueue_copy(&case.tensor(&handle)).unwrap();
    client.write(
        &handle,
        cubecl::bytes::Bytes::from_bytes_vec(vec![0xff; 3600]),
    );
    let pending = summariser.flush();
    let (readings, bytes) = std::thread::spawn(move || {
        let readings = cubecl::future::block_on(pending.read()).unwrap();
        (readings, cubecl::future::block_on(copy.read()).unwrap())
    })
    .join()
    .unwrap();
    let [first, second] = readings.try_into().unwrap();
    assert_agree(&summary(first.1), &summarise(&case.view()), "before");
    assert_eq!(second.1, Reading::Edges(EdgeItems::gather(&case.view())));
    assert_eq!(bytes, case.bytes);
    // The write did take place.
    assert_eq!(&client.read_one(handle).unwrap()[..], [0xff; 3600]);
}

fn shapes_with_edges() -> Vec<(Vec<usize>, Vec<usize>, usize)> {
    vec![
        (vec![], vec![], 3),
        (vec![7], vec![1], 0),
        (vec![1000], vec![1], 1),
        (vec![1001], vec![1], 1),
        (vec![1001], vec![3], 0),
        (vec![6, 200], vec![200, 1], 0),
        (vec![7, 200], vec![256, 1], 0),
        (vec![200, 7], vec![1, 200], 2),
        (vec![5, 1, 40, 30], vec![1200, 77, 30, 1], 0),
        (vec![40, 30, 20], vec![1, 0, 40], 0),
        (vec![3, 4, 5, 6, 5], vec![600, 150, 30, 5, 1], 0),
        (vec![9, 8, 7, 6, 5], vec![1680, 210, 30, 5, 1], 0),
        (vec![4, 0, 9], vec![0, 9, 1], 0),
    ]
}

#[test]
fn edge_items_are_those_of_the_host() {
    let Some(client) = client() else { return };
    for storage in STORAGES {
        let cases: Vec<Case> = shapes_with_edges()
            .iter()
            .map(|(shape, strides, offset)| Case::random(storage, shape, strides, *offset))
            .collect();
        let mut summariser = CubeSummariser::with_buffer_bytes(&client, 4096);
        for case in &cases {
            let handle = case.upload(&client);
            summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
        }
        let readings = summariser.flush().wait().unwrap();
        assert_eq!(readings.len(), cases.len());
        for ((_, reading), case) in readings.into_iter().zip(&cases) {
            let host = EdgeItems::gather(&case.view());
            assert_eq!(reading, Reading::Edges(host), "{}", case.name);
        }
    }
}

#[test]
fn edge_items_keep_every_bit_of_wide_integers() {
    let Some(client) = client() else { return };
    let values: Vec<i64> = (0..1500).map(|k| i64::MIN + k * 0x0123_4567_89ab).collect();
    let bytes = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let case = Case::contiguous("wide", Storage::I64, &[30, 50], bytes);
    let handle = case.upload(&client);
    let mut summariser = CubeSummariser::new(&client);
    summariser.enqueue_edges(&case.tensor(&handle)).unwrap();
    let readings = summariser.flush().wait().unwrap();
    let Reading::Edges(items) = &readings[0].1 else {
        panic!("no edge items");
    };
    let expected: Vec<i128> = edge_runs(&[30, 50])
        .into_iter()
        .flatten()
        .map(|k| values[k].into())
        .collect();
    assert_eq!(expected.len(), 36);
    assert_eq!(
        items.values(),
        &burnscope::summary::EdgeValues::Int(expected)
    );
}

#[test]
fn copies_are_row_major() {
    let Some(client) = client() else { return };
    let summariser = CubeSummariser::new(&client);
    for storage in STORAGES {
        for (shape, strides, offset) in shapes_with_edges() {
            let case = Case::random(storage, &shape, &strides, offset);
            let handle = case.upload(&client);
            let copy = summariser.enqueue_copy(&case.tensor(&handle)).unwrap();
            let view = case.view();
            let expected = view.to_row_major_bytes();
            assert_eq!(copy.bytes(), expected.len(), "{}", case.name);
            assert_eq!(copy.shape(), shape, "{}", case.name);
            assert_eq!(copy.dtype(), storage.dtype());
            assert_eq!(copy.wait().unwrap(), expected.as_ref(), "{}", case.name);
        }
    }
}

#[test]
fn tensors_that_cannot_be_read_say_why() {
    let Some(client) = client() else { return };
    let handle = client.create_from_slice(&[0; 64]);
    let mut summariser = CubeSummariser::new(&client);
    let mut refuse = |shape: &[usize], strides: &[usize], offset: usize| {
        let tensor = DeviceTensor {
            handle: &handle,
            storage: Storage::F32,
            shape,
            strides,
            offset,
        };
        let error = summariser.enqueue(&tensor).unwrap_err();
        assert_eq!(summariser.enqueue_edges(&tensor).unwrap_err(), error);
        assert_eq!(summariser.enqueue_copy(&tensor).unwrap_err(), error);
        error
    };
    let out_of_bounds = |shape: &[usize]| NotSummarised::OutOfBounds {
        shape: shape.to_vec(),
        bytes: 64,
    };
    assert_eq!(refuse(&[17], &[1], 0), out_of_bounds(&[17]));
    assert_eq!(refuse(&[16], &[1], 1), out_of_bounds(&[16]));
    assert_eq!(refuse(&[4, 4], &[5, 1], 0), out_of_bounds(&[4, 4]));
    let rank = NotSummarised::Rank {
        shape: 2,
        strides: 1,
    };
    assert_eq!(refuse(&[4, 4], &[1], 0), rank);
    for (shape, strides) in [
        (vec![1 << 32], vec![0]),
        (vec![1 << 20, 1 << 20, 1 << 30], vec![0, 0, 0]),
        (vec![2, 2], vec![usize::MAX, 1]),
        (vec![3], vec![usize::MAX / 2]),
    ] {
        let error = refuse(&shape, &strides, 0);
        assert_eq!(error, NotSummarised::TooLarge { shape });
    }
    assert!(summariser.flush().wait().unwrap().is_empty());

    let quantised = DType::Quantized("q8s".into());
    let error = Storage::try_from(&quantised).unwrap_err();
    assert!(error.to_string().contains("quantized.q8s"), "{error}");
}
