//! The result that a kernel leaves for one tensor, and the summary it stands for.
//!
//! The kernels report statistics of the finite elements and counts of the others; what PyTorch
//! makes of NaN and Inf is decided here.

use super::Elements;
use crate::summary::{DType, Number, Summary};

/// Values of a sign-sum sketch that a slot has room for, `SKETCH` of the kernels.
const SKETCH: usize = 64;

/// `Slot` of `kernels/batch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Slot {
    pub sequence: u64,
    count: u64,
    pivot: f64,
    offset: f64,
    m2: f64,
    finite: u64,
    min: u64,
    max: u64,
    pos_inf: u64,
    neg_inf: u64,
    zeros: u64,
    first_non_finite: u64,
    checksum: u64,
    reserved: [u64; 3],
    sketch: [f64; SKETCH],
}

const _: () = assert!(size_of::<Slot>() == 128 + 8 * SKETCH);

/// How a kernel's ordered key stands for a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyClass {
    Float,
    Signed,
    Unsigned,
}

impl KeyClass {
    pub fn of(elements: &Elements) -> Self {
        match elements {
            Elements::Quantized(_) => KeyClass::Float,
            Elements::Plain(dtype) if dtype.is_float() => KeyClass::Float,
            Elements::Plain(DType::U64) => KeyClass::Unsigned,
            Elements::Plain(_) | Elements::WideBool => KeyClass::Signed,
        }
    }

    fn number(self, key: u64) -> Number {
        const SIGN: u64 = 1 << 63;
        match self {
            KeyClass::Float if key & SIGN != 0 => Number::Float(f64::from_bits(key ^ SIGN)),
            KeyClass::Float => Number::Float(f64::from_bits(!key)),
            KeyClass::Signed => Number::Int((key ^ SIGN) as i64),
            KeyClass::Unsigned => i64::try_from(key).map_or(Number::UInt(key), Number::Int),
        }
    }
}

impl Slot {
    /// The summary, with PyTorch's meaning of NaN and Inf.
    pub fn summary(&self, class: KeyClass) -> Summary {
        let nan = self.count - self.finite - self.pos_inf - self.neg_inf;
        let infinite = self.pos_inf + self.neg_inf;
        let (finite, finite_mean) = (self.finite as f64, self.pivot + self.offset);
        // Squares that overflow f64 may cancel to NaN on the way: the spread is infinite.
        let m2 = if self.m2.is_nan() {
            f64::INFINITY
        } else {
            self.m2
        };

        let mean = if nan > 0 || (self.pos_inf > 0 && self.neg_inf > 0) {
            f64::NAN
        } else if infinite > 0 {
            if self.pos_inf > 0 {
                f64::INFINITY
            } else {
                f64::NEG_INFINITY
            }
        } else {
            finite_mean
        };
        let std = if nan + infinite > 0 || self.count == 1 {
            f64::NAN
        } else {
            (m2 / (finite - 1.0)).sqrt()
        };
        let l2 = if nan > 0 {
            f64::NAN
        } else if infinite > 0 {
            f64::INFINITY
        } else {
            (m2 + finite * finite_mean * finite_mean).sqrt()
        };
        let bound = |key| match nan {
            0 => class.number(key),
            _ => Number::Float(f64::NAN),
        };
        let (min, max) = (bound(self.min), bound(self.max));
        let abs_max = match nan {
            0 => magnitude(min).max(magnitude(max)),
            _ => f64::NAN,
        };
        Summary {
            count: self.count,
            mean: Some(mean),
            std: Some(std),
            min: Some(min),
            max: Some(max),
            nan,
            pos_inf: self.pos_inf,
            neg_inf: self.neg_inf,
            zeros: self.zeros,
            abs_max: Some(abs_max),
            l2,
            first_non_finite: (self.first_non_finite != u64::MAX).then_some(self.first_non_finite),
            checksum: self.checksum,
        }
    }
}

fn magnitude(number: Number) -> f64 {
    match number {
        Number::Int(value) => value.unsigned_abs() as f64,
        Number::UInt(value) => value as f64,
        Number::Float(value) => value.abs(),
    }
}
