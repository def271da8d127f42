//! What a summary must say, in float64 and exact integers, straight from the definitions.

use burnscope::summary::{DType, Number, Summary};
use half::{bf16, f16};

/// Every dtype that the kernels read.
pub const DTYPES: [DType; 15] = [
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

/// A small generator of test values (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().max(1e-300).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The float that a bit pattern stands for.
pub fn float(dtype: &DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(bits),
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F16 => f16::from_bits(bits as u16).into(),
        DType::BF16 => bf16::from_bits(bits as u16).into(),
        DType::F8E4M3 => minifloat(bits, 4, 3),
        DType::F8E5M2 => minifloat(bits, 5, 2),
        _ => integer(dtype, bits) as f64,
    }
}

/// An 8-bit float by its fields (OCP 8-bit floating point specification 1.0).
fn minifloat(bits: u64, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    if exponent_bits == 4 && bits & 0x7f == 0x7f {
        return f64::NAN;
    }
    if exponent_bits == 5 && exponent == top {
        return if mantissa == 0 {
            sign * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let bias = (1 << (exponent_bits - 1)) - 1;
    let fraction = mantissa as f64 / f64::from(1 << mantissa_bits);
    if exponent == 0 {
        sign * fraction * 2f64.powi(1 - bias)
    } else {
        sign * (1.0 + fraction) * 2f64.powi(exponent as i32 - bias)
    }
}

fn integer(dtype: &DType, bits: u64) -> i128 {
    match dtype {
        DType::I64 => (bits as i64).into(),
        DType::I32 => (bits as i32).into(),
        DType::I16 => (bits as i16).into(),
        DType::I8 => (bits as i8).into(),
        DType::U64 => bits.into(),
        DType::U32 => (bits as u32).into(),
        DType::U16 => (bits as u16).into(),
        _ => (bits as u8).into(),
    }
}

/// The nearest bit pattern; integers saturate.
pub fn encode(dtype: &DType, value: f64) -> u64 {
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => (value as f32).to_bits().into(),
        DType::F16 => f16::from_f64(value).to_bits().into(),
        DType::BF16 => bf16::from_f64(value).to_bits().into(),
        DType::F8E4M3 | DType::F8E5M2 => {
            let distance = |bits: u64| (float(dtype, bits) - value).abs();
            if value.is_nan() {
                return 0x7f;
            }
            (0..256)
                .filter(|&bits| !float(dtype, bits).is_nan())
                .filter(|&bits| float(dtype, bits).is_infinite() == value.is_infinite())
                .min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
                .or_else(|| value.is_infinite().then_some(0x7e))
                .unwrap()
        }
        DType::I64 => value as i64 as u64,
        DType::I32 => (value as i32 as u32).into(),
        DType::I16 => (value as i16 as u16).into(),
        DType::I8 => (value as i8 as u8).into(),
        DType::U64 => value as u64,
        DType::U32 => (value as u32).into(),
        DType::U16 => (value as u16).into(),
        DType::Bool => (value > 0.0).into(),
        _ => (value as u8).into(),
    }
}

/// The bytes of some elements in order.
pub fn bytes(dtype: &DType, elements: &[u64]) -> Vec<u8> {
    let size = dtype.size().unwrap();
    elements
        .iter()
        .flat_map(|bits| bits.to_le_bytes()[..size].to_vec())
        .collect()
}

/// The summary by definition, and how far a computed spread may be from it, relatively.
pub fn summary(dtype: &DType, elements: &[u64]) -> Summary {
    let count = elements.len() as f64;
    let floats: Vec<f64> = elements.iter().map(|&bits| float(dtype, bits)).collect();
    let number_of =
        |test: fn(&f64) -> bool| floats.iter().filter(|&value| test(value)).count() as u64;
    let nan = number_of(|value| value.is_nan());
    let pos_inf = number_of(|&value| value == f64::INFINITY);
    let neg_inf = number_of(|&value| value == f64::NEG_INFINITY);
    let (mean, std, l2, min, max, abs_max);
    if dtype.is_float() {
        mean = sum(floats.iter().copied()) / count;
        let squares = sum(floats.iter().map(|value| (value - mean) * (value - mean)));
        std = (squares / (count - 1.0)).sqrt();
        l2 = sum(floats.iter().map(|value| value * value)).sqrt();
        let all_nan = |value: f64| if nan > 0 { f64::NAN } else { value };
        let low = all_nan(floats.iter().copied().fold(f64::INFINITY, f64::min));
        let high = all_nan(floats.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        (min, max) = (Number::Float(low), Number::Float(high));
        abs_max = low.abs().max(high.abs());
        let abs = if nan > 0 { f64::NAN } else { abs_max };
        return Summary {
            count: elements.len() as u64,
            mean: Some(if pos_inf + neg_inf + nan > 0 {
                special_mean(nan, pos_inf, neg_inf)
            } else {
                mean
            }),
            std: Some(if pos_inf + neg_inf + nan > 0 {
                f64::NAN
            } else {
                std
            }),
            min: Some(min),
            max: Some(max),
            nan,
            pos_inf,
            neg_inf,
            zeros: number_of(|&value| value == 0.0),
            abs_max: Some(abs),
            l2: match (nan, pos_inf + neg_inf) {
                (0, 0) => l2,
                (0, _) => f64::INFINITY,
                _ => f64::NAN,
            },
            first_non_finite: floats
                .iter()
                .position(|value| !value.is_finite())
                .map(|k| k as u64),
            checksum: checksum(elements),
        };
    }
    // Integers: exact sums of the distances from the first element.
    let integers: Vec<i128> = elements.iter().map(|&bits| integer(dtype, bits)).collect();
    let first = integers[0];
    let total: i128 = integers.iter().map(|value| value - first).sum();
    let offset = total as f64 / count;
    mean = first as f64 + offset;
    let squares = sum(integers.iter().map(|value| {
        let distance = (value - first) as f64 - offset;
        distance * distance
    }));
    std = (squares / (count - 1.0)).sqrt();
    l2 = sum(integers.iter().map(|&value| value as f64 * value as f64)).sqrt();
    let (low, high) = (
        *integers.iter().min().unwrap(),
        *integers.iter().max().unwrap(),
    );
    let number = |value: i128| match i64::try_from(value) {
        Ok(value) => Number::Int(value),
        Err(_) => Number::UInt(value as u64),
    };
    Summary {
        count: elements.len() as u64,
        mean: Some(mean),
        std: Some(std),
        min: Some(number(low)),
        max: Some(number(high)),
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
        zeros: integers.iter().filter(|&&value| value == 0).count() as u64,
        abs_max: Some(low.unsigned_abs().max(high.unsigned_abs()) as f64),
        l2,
        first_non_finite: None,
        checksum: checksum(elements),
    }
}

fn special_mean(nan: u64, pos_inf: u64, neg_inf: u64) -> f64 {
    match (nan, pos_inf, neg_inf) {
        (0, _, 0) => f64::INFINITY,
        (0, 0, _) => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}

fn checksum(elements: &[u64]) -> u64 {
    elements
        .iter()
        .zip(1u64..)
        .fold(0, |sum: u64, (&bits, rank)| {
            sum.wrapping_add(rank.wrapping_mul(bits))
        })
}

/// Neumaier's compensated sum.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}

/// Fails unless `found` says what `wanted` says: counts, bounds and checksum exactly, the rest to
/// the precision that the kernels promise.
pub fn assert_agrees(found: &Summary, wanted: &Summary, case: &str) {
    let exact = |summary: &Summary| {
        (
            (summary.count, summary.nan, summary.pos_inf, summary.neg_inf),
            (summary.zeros, summary.first_non_finite, summary.checksum),
            (key(summary.min), key(summary.max)),
            summary.abs_max.map(|value| value.to_bits() << 1),
        )
    };
    assert_eq!(
        exact(found),
        exact(wanted),
        "{case}: {found:?}, not {wanted:?}"
    );
    let std = wanted.std.unwrap();
    let mean = wanted.mean.unwrap();
    // Relative to the spread, and the last bits of the mean itself.
    let slack = 3e-8 * if std.is_finite() { std } else { 0.0 } + 4e-16 * mean.abs();
    close(found.mean.unwrap(), mean, slack, &format!("{case}: mean"));
    close(
        found.std.unwrap(),
        std,
        3e-7 * std + 1e-300,
        &format!("{case}: std"),
    );
    close(
        found.l2,
        wanted.l2,
        3e-7 * wanted.l2,
        &format!("{case}: l2"),
    );
}

/// Numbers by class and bits; all NaN are alike, and zeros of either sign.
fn key(number: Option<Number>) -> Option<(u8, u64)> {
    number.map(|number| match number {
        Number::Int(value) => (0, value as u64),
        Number::UInt(value) => (1, value),
        Number::Float(value) if value.is_nan() => (2, f64::NAN.to_bits()),
        Number::Float(0.0) => (2, 0),
        Number::Float(value) => (2, value.to_bits()),
    })
}

fn close(found: f64, wanted: f64, slack: f64, case: &str) {
    let same = found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan());
    assert!(
        same || found == wanted || (found - wanted).abs() <= slack,
        "{case}: {found:e}, not {wanted:e} (within {slack:e})"
    );
}

/// Everything a summary says, to the last bit.
pub fn all_bits(summary: &Summary) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (
            summary.count,
            summary.nan,
            summary.pos_inf,
            summary.neg_inf,
            summary.zeros,
        ),
        (
            summary.first_non_finite,
            summary.checksum,
            summary.l2.to_bits(),
        ),
        (
            summary.mean.map(f64::to_bits),
            summary.std.map(f64::to_bits),
        ),
        (
            key(summary.min),
            key(summary.max),
            summary.abs_max.map(f64::to_bits),
        ),
    )
}
