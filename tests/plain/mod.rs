//! A summary computed plainly, one element at a time in double precision, to compare with.

use burnscope::summary::{DType, Number, Summary, TensorView, summarise};
use half::{bf16, f16};

/// An element as a number, exactly: integers do not fit `f64`.
#[derive(Clone, Copy, Debug)]
enum Element {
    Float(f64),
    Whole(i128),
}

fn float8(word: u8, exponent_bits: u32, bias: i32, finite_only: bool) -> f64 {
    let mantissa_bits = 7 - exponent_bits;
    let exponent = i32::from(word & 0x7f) >> mantissa_bits;
    let mantissa = f64::from(word & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let magnitude = match exponent {
        _ if finite_only && word & 0x7f == 0x7f => f64::NAN,
        31 if !finite_only && mantissa == 0.0 => f64::INFINITY,
        31 if !finite_only => f64::NAN,
        0 => mantissa * 2f64.powi(1 - bias),
        _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
    };
    if word >> 7 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

fn element(dtype: &DType, b: &[u8]) -> Element {
    use Element::{Float, Whole};
    match dtype {
        DType::F64 => Float(f64::from_ne_bytes(b.try_into().unwrap())),
        DType::F32 => Float(f32::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::F16 => Float(f16::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::BF16 => Float(bf16::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::F8E4M3 => Float(float8(b[0], 4, 7, true)),
        DType::F8E5M2 => Float(float8(b[0], 5, 15, false)),
        DType::I64 => Whole(i64::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::I32 => Whole(i32::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::I16 => Whole(i16::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::I8 => Whole(i8::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::U64 => Whole(u64::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::U32 => Whole(u32::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::U16 => Whole(u16::from_ne_bytes(b.try_into().unwrap()).into()),
        DType::U8 | DType::Bool => Whole(b[0].into()),
        other => panic!("{other}"),
    }
}

/// The bytes of each element, in row-major logical order, one index at a time.
pub fn elements(view: &TensorView) -> Vec<Vec<u8>> {
    let size = view.dtype().size().unwrap();
    (0..view.count())
        .map(|index| {
            let (mut rest, mut at) = (index, view.offset() as isize);
            for (&length, &stride) in view.shape().iter().zip(view.strides()).rev() {
                at += (rest % length) as isize * stride;
                rest /= length;
            }
            view.bytes()[at as usize * size..][..size].to_vec()
        })
        .collect()
}

/// A sum that loses next to nothing (Neumaier).
fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0f64, 0f64);
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

fn float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        other => panic!("{other:?} is not a float"),
    }
}

fn whole(number: Number) -> i128 {
    match number {
        Number::Int(value) => value.into(),
        Number::UInt(value) => {
            assert!(value > i64::MAX as u64, "an i64 would do");
            value.into()
        }
        other => panic!("{other:?} is not an integer"),
    }
}

#[track_caller]
fn close(what: &str, ours: f64, plain: f64, tolerance: f64) {
    let same = ours == plain || (ours.is_nan() && plain.is_nan());
    assert!(
        same || (ours - plain).abs() <= tolerance,
        "{what}: {ours:e} is not {plain:e} within {tolerance:e}"
    );
}

/// Compares every field with a plain computation.
#[track_caller]
pub fn check(view: &TensorView, context: &str) -> Summary {
    let summary = summarise(view);
    let bytes = elements(view);
    let count = bytes.len();
    assert_eq!(summary.count, count as u64, "count of {context}");
    let checksum = bytes.iter().enumerate().fold(0u64, |sum, (k, bytes)| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        sum.wrapping_add((k as u64 + 1).wrapping_mul(u64::from_le_bytes(word)))
    });
    if cfg!(target_endian = "little") {
        assert_eq!(summary.checksum, checksum, "checksum of {context}");
    }
    let all: Vec<Element> = bytes.iter().map(|b| element(view.dtype(), b)).collect();
    if all.is_empty() {
        assert_eq!(
            (
                summary.mean,
                summary.std,
                summary.min,
                summary.max,
                summary.abs_max
            ),
            (None, None, None, None, None)
        );
        assert_eq!(
            (summary.l2, summary.zeros, summary.first_non_finite),
            (0.0, 0, None)
        );
        return summary;
    }
    // Distances from an element in the middle keep 64-bit integers exact.
    let pivot = all[count / 2];
    let distance = |element: &Element| match (*element, pivot) {
        (Element::Whole(x), Element::Whole(pivot)) => (x - pivot) as f64,
        (Element::Float(x), Element::Float(pivot)) if pivot.is_finite() => x - pivot,
        (Element::Float(x), _) => x,
        _ => unreachable!(),
    };
    let values: Vec<f64> = all
        .iter()
        .map(|element| match *element {
            Element::Float(x) => x,
            Element::Whole(x) => x as f64,
        })
        .collect();
    let n = count as f64;
    let nan = values.iter().filter(|x| x.is_nan()).count() as u64;
    let pos_inf = values.iter().filter(|x| **x == f64::INFINITY).count() as u64;
    let neg_inf = values.iter().filter(|x| **x == f64::NEG_INFINITY).count() as u64;
    assert_eq!(
        (summary.nan, summary.pos_inf, summary.neg_inf),
        (nan, pos_inf, neg_inf),
        "{context}"
    );
    assert_eq!(
        summary.zeros,
        values.iter().filter(|x| **x == 0.0).count() as u64,
        "{context}"
    );
    let first = values.iter().position(|x| !x.is_finite()).map(|k| k as u64);
    assert_eq!(summary.first_non_finite, first, "{context}");

    match all[0] {
        Element::Whole(_) => {
            let whole_values = || {
                all.iter().map(|e| match e {
                    Element::Whole(x) => *x,
                    Element::Float(_) => unreachable!(),
                })
            };
            assert_eq!(summary.min.map(whole), whole_values().min(), "{context}");
            assert_eq!(summary.max.map(whole), whole_values().max(), "{context}");
        }
        Element::Float(_) => {
            let (min, max) = if nan > 0 {
                (f64::NAN, f64::NAN)
            } else {
                let order = |a: &&f64, b: &&f64| a.total_cmp(b);
                (
                    *values.iter().min_by(order).unwrap(),
                    *values.iter().max_by(order).unwrap(),
                )
            };
            let (ours_min, ours_max) = (float(summary.min.unwrap()), float(summary.max.unwrap()));
            let bits = |x: f64| {
                if x.is_nan() {
                    f64::NAN.to_bits()
                } else {
                    x.to_bits()
                }
            };
            assert_eq!(
                bits(ours_min),
                bits(min),
                "min of {context}: {ours_min} is not {min}"
            );
            assert_eq!(
                bits(ours_max),
                bits(max),
                "max of {context}: {ours_max} is not {max}"
            );
        }
    }
    let or_nan = |x: f64| if nan > 0 { f64::NAN } else { x };
    let abs_max = or_nan(values.iter().fold(0f64, |a, x| a.max(x.abs())));
    close(
        &format!("abs_max of {context}"),
        summary.abs_max.unwrap(),
        abs_max,
        0.0,
    );

    let (ours_mean, ours_std) = (summary.mean.unwrap(), summary.std.unwrap());
    if nan + pos_inf + neg_inf > 0 {
        let mean = values
            .iter()
            .fold(0.0, |a, x| if x.is_finite() { a } else { a + x });
        close(&format!("mean of {context}"), ours_mean, mean, 0.0);
        assert!(ours_std.is_nan(), "std of {context}: {ours_std}");
        close(
            &format!("l2 of {context}"),
            summary.l2,
            or_nan(f64::INFINITY),
            0.0,
        );
        return summary;
    }
    // Powers of two keep squares and sums in range, exactly.
    let scale = if abs_max > 0.0 {
        2f64.powi(-(abs_max.log2() as i32).clamp(-1000, 1000))
    } else {
        1.0
    };
    let scaled: Vec<f64> = match pivot {
        Element::Whole(_) => all.iter().map(|x| distance(x) * scale).collect(),
        Element::Float(pivot) => values.iter().map(|x| x * scale - pivot * scale).collect(),
    };
    let offset = sum(scaled.iter().copied()) / n;
    let deviations = sum(scaled.iter().map(|x| (x - offset) * (x - offset)));
    let std = (deviations / (n - 1.0)).sqrt() / scale;
    let l2 = sum(values.iter().map(|x| (x * scale) * (x * scale))).sqrt() / scale;
    let mean = match pivot {
        Element::Whole(pivot) => pivot as f64 + offset / scale,
        Element::Float(pivot) => (pivot * scale + offset) / scale,
    };
    let spread = if count > 1 { std } else { 0.0 };
    close(
        &format!("mean of {context}"),
        ours_mean,
        mean,
        1e-10 * spread + 1e-15 * mean.abs(),
    );
    close(&format!("std of {context}"), ours_std, std, 1e-9 * std);
    close(&format!("l2 of {context}"), summary.l2, l2, 1e-12 * l2);
    summary
}

/// A repeatable sequence of 64-bit words.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// About normal numbers for float types, without NaN and Inf; any bits for the others.
pub fn ordinary(dtype: &DType, count: usize, seed: u64) -> Vec<u8> {
    let mut next = random(seed);
    let mut normal = move || {
        (0..4)
            .map(|_| (next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5)
            .sum::<f64>()
    };
    let mut next = random(seed);
    (0..count)
        .flat_map(|_| match dtype {
            DType::F64 => normal().to_ne_bytes().to_vec(),
            DType::F32 => (normal() as f32).to_ne_bytes().to_vec(),
            DType::F16 => f16::from_f64(normal()).to_ne_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(normal()).to_ne_bytes().to_vec(),
            DType::F8E4M3 | DType::F8E5M2 => vec![next() as u8 & 0xbb],
            DType::Bool => vec![next() as u8 & 1],
            other => next().to_ne_bytes()[..other.size().unwrap()].to_vec(),
        })
        .collect()
}

/// Equality to the last bit.
#[track_caller]
pub fn assert_same(a: &Summary, b: &Summary, context: &str) {
    let bits = |s: &Summary| {
        let number = |n: Option<Number>| {
            n.map(|n| match n {
                Number::Float(x) => (0, x.to_bits()),
                Number::Int(x) => (1, x as u64),
                Number::UInt(x) => (2, x),
            })
        };
        (
            [
                s.count,
                s.nan,
                s.pos_inf,
                s.neg_inf,
                s.zeros,
                s.checksum,
                s.l2.to_bits(),
            ],
            [s.mean, s.std, s.abs_max].map(|x| x.map(f64::to_bits)),
            [number(s.min), number(s.max)],
            s.first_non_finite,
        )
    };
    assert_eq!(bits(a), bits(b), "{context}");
}
