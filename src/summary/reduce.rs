//! Drives the tiles of one tensor through the inner loops, over all threads, and merges them in order.
//!
//! Tiles and blocks depend on the element count alone and are merged in index order, so a tensor
//! gives the same bits whatever its strides, the CPU and the number of threads.

use std::marker::PhantomData;

use half::{bf16, f16};
use rayon::prelude::*;

use super::cascade::{BlockSum, Plan, total};
use super::element::{Element, Float32, Float64, Int, Narrow, Scratch};
use super::narrow::{F8E4M3, F8E5M2};
use super::simd::{Kernel, vectorised};
use super::tile::{Partial, TILE};
use super::walk::Walk;
use super::{DType, Number, Summary, TensorView};

/// Elements that one thread takes at a time; fewer stay on the calling thread.
const BLOCK: usize = 32 * TILE;

/// Magnitudes of `f64` whose squares, and the sums of those, neither overflow nor vanish.
const SAFE: std::ops::Range<f64> =
    f64::from_bits((1023 - 400) << 52)..f64::from_bits((1023 + 400) << 52);

/// The loop over the tiles of one block.
struct Block<'a, E: Element> {
    element: &'a E,
    walk: &'a Walk<'a>,
    start: usize,
    end: usize,
    plan: Option<Plan>,
}

/// A tensor's summary, and PyTorch's sum of it where that is wanted.
type Reduced<E> = (
    Partial<<E as Element>::Extreme>,
    Option<<E as Element>::Addend>,
);

/// The same of one block, of which PyTorch's sum is not complete.
type BlockResult<E> = (
    Partial<<E as Element>::Extreme>,
    Option<BlockSum<<E as Element>::Addend>>,
);

impl<E: Element> Kernel for Block<'_, E> {
    /// `None` for a block without elements.
    type Output = Option<BlockResult<E>>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let mut gathered = Vec::new();
        let mut scratch = Scratch::default();
        let mut sum = self.plan.map(BlockSum::new);
        let mut all: Option<Partial<E::Extreme>> = None;
        let mut start = self.start;
        while start < self.end {
            let count = TILE.min(self.end - start);
            let bytes = self.walk.read(start, count, &mut gathered);
            let tile = self.element.tile(bytes, start, &mut scratch, sum.as_mut());
            match &mut all {
                Some(all) => all.merge(&tile),
                None => all = Some(tile),
            }
            start += count;
        }
        Some((all?, sum))
    }
}

/// Reduces all elements; `None` where there are none.
///
/// The second value is PyTorch's own sum of them, if asked for.
fn reduce<E: Element>(element: &E, view: &TensorView, cascade: bool) -> Option<Reduced<E>> {
    let walk = Walk::new(view);
    let count = view.count();
    let plan = cascade.then(|| Plan::new::<E::Addend>(count));
    let step = plan.map_or(BLOCK, |plan| BLOCK.max(plan.unit::<E::Addend>()));
    let block = |index: usize| {
        let start = index * step;
        let end = count.min(start.saturating_add(step));
        vectorised(Block {
            element,
            walk: &walk,
            start,
            end,
            plan,
        })
    };
    let blocks = 0..count.div_ceil(step);
    let results: Vec<BlockResult<E>> = if blocks.len() > 1 {
        blocks.into_par_iter().filter_map(block).collect()
    } else {
        blocks.filter_map(block).collect()
    };
    let (partials, sums): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let all = partials.into_iter().reduce(|mut all, next| {
        all.merge(&next);
        all
    })?;
    let sums: Option<Vec<_>> = sums.into_iter().collect();
    Some((all, plan.zip(sums).map(|(plan, sums)| total(plan, &sums))))
}

/// A summary, and PyTorch's own sum of the elements if it was asked for and the type is a float's.
pub(super) fn summarise(view: &TensorView, cascade: bool) -> (Summary, Option<f64>) {
    match view.dtype() {
        DType::F64 => float64(view, cascade),
        DType::F32 => float(&Float32, view, cascade),
        DType::F16 => float(&Narrow::<f16>(PhantomData), view, cascade),
        DType::BF16 => float(&Narrow::<bf16>(PhantomData), view, cascade),
        DType::F8E4M3 => float(&Narrow::<F8E4M3>(PhantomData), view, cascade),
        DType::F8E5M2 => float(&Narrow::<F8E5M2>(PhantomData), view, cascade),
        DType::I64 => integer(&Int::<i64, u64>(PhantomData), view),
        DType::I32 => integer(&Int::<i32, u32>(PhantomData), view),
        DType::I16 => integer(&Int::<i16, u16>(PhantomData), view),
        DType::I8 => integer(&Int::<i8, u8>(PhantomData), view),
        DType::U64 => integer(&Int::<u64, u64>(PhantomData), view),
        DType::U32 => integer(&Int::<u32, u32>(PhantomData), view),
        DType::U16 => integer(&Int::<u16, u16>(PhantomData), view),
        DType::U8 | DType::Bool => integer(&Int::<u8, u8>(PhantomData), view),
        // A view's constructor admits only element types of a known size.
        DType::Quantized(_) | DType::Other(_) => (Summary::empty(), None),
    }
}

fn float<E>(element: &E, view: &TensorView, cascade: bool) -> (Summary, Option<f64>)
where
    E: Element<Extreme = f64>,
    E::Addend: Into<f64>,
{
    match reduce(element, view, cascade) {
        Some((partial, sum)) => (
            float_summary(view.count() as u64, &partial, 1.0),
            sum.map(Into::into),
        ),
        None => (Summary::empty(), cascade.then_some(0.0)),
    }
}

/// What elements of that greatest magnitude must be multiplied by for their squares to be finite and
/// not to vanish, if anything.
pub(super) fn rescale(abs_max: f64) -> Option<f64> {
    let harmless = !abs_max.is_finite() || abs_max == 0.0 || SAFE.contains(&abs_max);
    (!harmless).then(|| 2f64.powi(-(abs_max.log2() as i32).clamp(-1000, 1000)))
}

/// Squares of very large or very small `f64` leave its range: those tensors are read again, scaled.
fn float64(view: &TensorView, cascade: bool) -> (Summary, Option<f64>) {
    let (summary, sum) = float(&Float64(1.0), view, cascade);
    let Some(scale) = summary.abs_max.and_then(rescale) else {
        return (summary, sum);
    };
    match reduce(&Float64(scale), view, false) {
        Some((partial, _)) => (float_summary(view.count() as u64, &partial, scale), sum),
        None => (summary, sum),
    }
}

/// What PyTorch's rules make of a tensor's parts; `scale` is what the moments were multiplied by.
pub(super) fn float_summary(count: u64, partial: &Partial<f64>, scale: f64) -> Summary {
    let (nan, pos_inf, neg_inf) = (partial.nan, partial.pos_inf, partial.neg_inf);
    let or_nan = |value: f64| if nan > 0 { f64::NAN } else { value };
    let infinite = pos_inf + neg_inf > 0;
    let mean = match (pos_inf > 0, neg_inf > 0) {
        (false, false) => partial.moments.mean() / scale,
        (true, false) => f64::INFINITY,
        (false, true) => f64::NEG_INFINITY,
        (true, true) => f64::NAN,
    };
    let (std, l2) = if infinite {
        (f64::NAN, f64::INFINITY)
    } else {
        (partial.moments.std() / scale, partial.moments.l2() / scale)
    };
    Summary {
        count,
        mean: Some(or_nan(mean)),
        std: Some(or_nan(std)),
        min: Some(Number::Float(or_nan(partial.min))),
        max: Some(Number::Float(or_nan(partial.max))),
        nan,
        pos_inf,
        neg_inf,
        zeros: partial.zeros,
        abs_max: Some(or_nan(partial.min.abs().max(partial.max.abs()))),
        l2: or_nan(l2),
        first_non_finite: partial.first_non_finite,
        checksum: partial.checksum,
    }
}

fn integer<E: Element<Extreme = i128>>(element: &E, view: &TensorView) -> (Summary, Option<f64>) {
    let summary = reduce(element, view, false).map_or_else(Summary::empty, |(partial, _)| {
        integer_summary(view.count() as u64, &partial)
    });
    (summary, None)
}

/// What a tensor's parts tell; none of its elements is special.
pub(super) fn integer_summary(count: u64, partial: &Partial<i128>) -> Summary {
    Summary {
        count,
        mean: Some(partial.moments.mean()),
        std: Some(partial.moments.std()),
        min: Some(whole(partial.min)),
        max: Some(whole(partial.max)),
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
        zeros: partial.zeros,
        abs_max: Some(partial.min.unsigned_abs().max(partial.max.unsigned_abs()) as f64),
        l2: partial.moments.l2(),
        first_non_finite: None,
        checksum: partial.checksum,
    }
}

/// An element of any integer type.
fn whole(value: i128) -> Number {
    match i64::try_from(value) {
        Ok(value) => Number::Int(value),
        Err(_) => Number::UInt(value as u64),
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::summary::simd::every_way;

    fn same_bits<E: Element>(element: &E, dtype: DType, bytes: &[u8])
    where
        E::Extreme: std::fmt::Debug,
        E::Addend: std::fmt::Debug,
    {
        let count = bytes.len() / dtype.size().unwrap();
        let view = TensorView::contiguous(dtype, &[count], bytes).unwrap();
        let walk = Walk::new(&view);
        let outputs = every_way(|| Block {
            element,
            walk: &walk,
            start: 0,
            end: count,
            plan: Some(Plan::new::<E::Addend>(count)),
        });
        // The text of a float that is not NaN names it exactly.
        let texts: Vec<String> = outputs.iter().map(|output| format!("{output:?}")).collect();
        assert!(
            texts.len() > 1 && texts[0].contains("deviations"),
            "{texts:?}"
        );
        for text in &texts {
            assert_eq!(*text, texts[0]);
        }
    }

    #[test]
    fn the_width_of_the_vectors_does_not_change_a_bit() {
        let values: Vec<f32> = (0..9001).map(|k| (k as f32 * 0.37).sin() + 0.5).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let doubles: Vec<f64> = values.iter().map(|&x| f64::from(x).cbrt()).collect();
        let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        same_bits(&Float32, DType::F32, bytes);
        same_bits(&Float64(0.25), DType::F64, bytemuck::cast_slice(&doubles));
        same_bits(
            &Narrow::<f16>(PhantomData),
            DType::F16,
            bytemuck::cast_slice(&halves),
        );
        same_bits(&Narrow::<bf16>(PhantomData), DType::BF16, bytes);
        same_bits(&Narrow::<F8E4M3>(PhantomData), DType::F8E4M3, bytes);
        same_bits(&Int::<i64, u64>(PhantomData), DType::I64, &bytes[..36_000]);
        same_bits(&Int::<u32, u32>(PhantomData), DType::U32, bytes);
        same_bits(&Int::<i16, u16>(PhantomData), DType::I16, bytes);
        same_bits(&Int::<i8, u8>(PhantomData), DType::I8, bytes);
    }
}
