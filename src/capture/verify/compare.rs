//! Outputs of two runs side by side: which differ, and by how much.

use std::fmt;

use half::{bf16, f16};

use super::outputs::{Item, Outputs};
use crate::{format::dump::Dump, summary::DType};

/// What two runs of the same closure have in common.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// How many outputs were compared.
    pub outputs: usize,
    /// How many could not be: they were too large to keep.
    pub not_compared: usize,
    /// The outputs that differ, in order.
    pub differences: Vec<Difference>,
}

/// One output that differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Which output: `output`, `output.0`, `output.logits`.
    pub output: String,
    /// How it differs.
    pub how: Differs,
}

/// How an output differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Differs {
    /// One run has it and the other has not.
    Missing,
    /// In what it is: its shape, its element type, or its text where it is no tensor.
    Kind {
        /// In the first run.
        first: String,
        /// In the second run.
        second: String,
    },
    /// Not known: its elements were too many to keep, and have no digest.
    Unknown,
    /// In its elements, which were too many to keep: their digests differ.
    Digest,
    /// In its elements.
    Elements {
        /// How many elements it has.
        count: u64,
        /// How many of them differ in any bit.
        different: u64,
        /// The largest absolute difference; infinite if one is NaN or infinite and the other is not.
        largest_absolute: f64,
        /// The largest difference relative to the larger of both magnitudes.
        largest_relative: f64,
    },
}

impl Comparison {
    /// Whether every output is the same to the last bit.
    pub fn identical(&self) -> bool {
        self.differences.is_empty()
    }

    pub(super) fn of(first: &Outputs, second: &Outputs) -> Self {
        let mut comparison = Self::default();
        for (index, (label, item)) in first.items.iter().enumerate() {
            let other = second.items.get(index).filter(|(other, _)| other == label);
            comparison.add(label, Some(item), other.map(|(_, item)| item));
        }
        for (index, (label, item)) in second.items.iter().enumerate() {
            if first
                .items
                .get(index)
                .is_none_or(|(other, _)| other != label)
            {
                comparison.add(label, None, Some(item));
            }
        }
        comparison
    }

    /// Of those outputs that were saved.
    pub(super) fn of_saved(ours: &Outputs, saved: &Outputs) -> Self {
        let mut comparison = Self::default();
        for (label, item) in &saved.items {
            let same = |(other, _): &&(String, Item)| other == label;
            let ours = ours.items.iter().find(same);
            comparison.add(label, ours.map(|(_, item)| item), Some(item));
        }
        comparison
    }

    fn add(&mut self, label: &str, first: Option<&Item>, second: Option<&Item>) {
        self.outputs += 1;
        let how = match (first, second) {
            (Some(first), Some(second)) => differs(first, second),
            _ => Some(Differs::Missing),
        };
        if let Some(how) = how {
            self.differences.push(Difference {
                output: label.to_owned(),
                how,
            });
        }
    }
}

fn differs(first: &Item, second: &Item) -> Option<Differs> {
    let kind = |first: String, second: String| Some(Differs::Kind { first, second });
    match (first, second) {
        (Item::Text(first), Item::Text(second)) if first == second => None,
        (Item::Tensor(first), Item::Tensor(second)) => {
            if first.what() != second.what() {
                return kind(first.what(), second.what());
            }
            match (&first.elements, &second.elements) {
                // A digest is a sum: two changes may cancel in it.
                (Some(first), Some(second)) if first.bytes == second.bytes => None,
                (Some(first), Some(second)) => Some(elements(first, second)),
                _ if first.digest.is_none() => Some(Differs::Unknown),
                _ if first.digest == second.digest => None,
                _ => Some(Differs::Digest),
            }
        }
        (first, second) => kind(first.what(), second.what()),
    }
}

/// Compares the elements of two tensors of one shape and type, which differ.
fn elements(first: &Dump, second: &Dump) -> Differs {
    let size = first.dtype.size().unwrap_or(1);
    let (mut count, mut different) = (0, 0);
    let (mut largest_absolute, mut largest_relative) = (0.0f64, 0.0f64);
    let pairs = first.bytes.chunks_exact(size);
    for (a, b) in pairs.zip(second.bytes.chunks_exact(size)) {
        count += 1;
        if a == b {
            continue;
        }
        different += 1;
        let (a, b) = (value(&first.dtype, a), value(&first.dtype, b));
        let absolute = match (a.is_nan(), b.is_nan()) {
            (true, true) => 0.0,
            (false, false) => (a - b).abs(),
            _ => f64::INFINITY,
        };
        let larger = a.abs().max(b.abs());
        let relative = if absolute == 0.0 {
            0.0
        } else if absolute.is_finite() {
            absolute / larger
        } else {
            f64::INFINITY
        };
        largest_absolute = largest_absolute.max(absolute);
        largest_relative = largest_relative.max(relative);
    }
    Differs::Elements {
        count,
        different,
        largest_absolute,
        largest_relative,
    }
}

/// A little-endian element as a number; 64-bit integers beyond 2^53 are rounded.
fn value(dtype: &DType, bytes: &[u8]) -> f64 {
    macro_rules! number {
        ($($dtype:ident $type:ty),*) => {
            match dtype {
                $(DType::$dtype => bytes
                    .try_into()
                    .map_or(f64::NAN, |bytes| <$type>::from_le_bytes(bytes) as f64),)*
                DType::F16 => bytes
                    .try_into()
                    .map_or(f64::NAN, |bytes| f16::from_le_bytes(bytes).to_f64()),
                DType::BF16 => bytes
                    .try_into()
                    .map_or(f64::NAN, |bytes| bf16::from_le_bytes(bytes).to_f64()),
                // Truth values; Burn has no 8-bit floats to return.
                _ => bytes.first().map_or(f64::NAN, |byte| f64::from(*byte)),
            }
        };
    }
    number!(F64 f64, F32 f32, I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let output = &self.output;
        match &self.how {
            Differs::Missing => write!(f, "{output} is there in one run only"),
            Differs::Kind { first, second } => write!(f, "{output} is {first} and {second}"),
            Differs::Unknown => write!(f, "{output} is too large to say whether it differs"),
            Differs::Digest => write!(f, "{output} differs, and is too large to say by how much"),
            Differs::Elements {
                count,
                different,
                largest_absolute,
                largest_relative,
            } => write!(
                f,
                "{output} differs in {different} of {count} elements, by up to {largest_absolute:.3e} \
                 ({largest_relative:.3e} relative)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::verify::outputs::Tensor;

    fn tensor(values: &[f32]) -> Dump {
        Dump {
            dtype: DType::F32,
            shape: vec![values.len()],
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }

    #[test]
    fn differences_of_elements_are_counted_and_measured() {
        /// First, second, how many differ, by how much at most, and relative to the larger.
        type Case = (&'static [f32], &'static [f32], u64, f64, f64);
        let cases: [Case; 6] = [
            (&[1.0, 2.0, 3.0], &[1.0, 2.5, 3.0], 1, 0.5, 0.2),
            (&[-4.0, 0.0], &[4.0, 1.0], 2, 8.0, 2.0),
            (&[0.0], &[-0.0], 1, 0.0, 0.0),
            (
                &[f32::NAN, 1.0],
                &[0.0, 1.0],
                1,
                f64::INFINITY,
                f64::INFINITY,
            ),
            (&[f32::INFINITY], &[1.0], 1, f64::INFINITY, f64::INFINITY),
            (&[f32::NAN], &[-f32::NAN], 1, 0.0, 0.0),
        ];
        for (first, second, different, absolute, relative) in cases {
            let found = elements(&tensor(first), &tensor(second));
            let expected = Differs::Elements {
                count: first.len() as u64,
                different,
                largest_absolute: absolute,
                largest_relative: relative,
            };
            assert_eq!(found, expected, "{first:?} {second:?}");
        }
    }

    /// Two changes may cancel in the sum that a checksum is.
    #[test]
    fn elements_decide_where_they_are_kept() {
        let item = |values: &[f32], kept: bool| {
            let elements = tensor(values);
            Item::Tensor(Tensor::new(
                elements.dtype.clone(),
                elements.shape.clone(),
                Some(7),
                kept.then_some(elements),
            ))
        };
        let (first, second) = ([1.0, 2.0], [1.0, 3.0]);
        let found = differs(&item(&first, true), &item(&second, true));
        assert!(
            matches!(found, Some(Differs::Elements { different: 1, .. })),
            "{found:?}"
        );
        assert_eq!(differs(&item(&first, true), &item(&first, true)), None);
        assert_eq!(differs(&item(&first, false), &item(&second, true)), None);
        let unknown = || Item::Tensor(Tensor::new(DType::F32, vec![2], None, None));
        assert_eq!(differs(&unknown(), &unknown()), Some(Differs::Unknown));
    }

    #[test]
    fn elements_of_every_type_are_numbers() {
        for (dtype, bytes, expected) in [
            (DType::F64, 1.5f64.to_le_bytes().to_vec(), 1.5),
            (DType::F16, f16::from_f64(-2.5).to_le_bytes().to_vec(), -2.5),
            (DType::BF16, bf16::from_f64(3.0).to_le_bytes().to_vec(), 3.0),
            (DType::I64, (-7i64).to_le_bytes().to_vec(), -7.0),
            (DType::I8, vec![0xFF], -1.0),
            (DType::U8, vec![0xFF], 255.0),
            (DType::Bool, vec![1], 1.0),
        ] {
            assert_eq!(value(&dtype, &bytes), expected, "{dtype}");
        }
    }
}
