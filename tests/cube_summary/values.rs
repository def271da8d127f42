//! Values that break sums, comparisons or conversions.

use burnscope::summary::DType;
use burnscope::summary::cube::Storage;
use half::{bf16, f16};

use crate::support::{Case, Random, STORAGES, TILE, check, client, close, on_device};

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
    type Value = Box<dyn FnMut(&mut Random, usize) -> f64>;
    let mut case = |name: &str, mut value: Value| {
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
