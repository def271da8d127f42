//! Drives the tiles of one tensor through the inner loops, over all threads, and merges them in order.
//!
//! Tiles and blocks depend on the element count alone and are merged in index order, so a tensor
//! gives the same bits whatever its strides, the CPU and the number of threads.

use std::marker::PhantomData;

use half::{bf16, f16};
use rayon::prelude::*;

use super::cascade::{Addend, BlockSum, Plan, total};
use super::narrow::{F8E4M3, F8E5M2, Widen};
use super::simd::{Kernel, vectorised};
use super::tile::{Extreme, Integer, Partial, TILE, Word, f32_tile, f64_tile};
use super::walk::Walk;
use super::{DType, Number, Summary, TensorView};

/// Elements that one thread takes at a time; fewer stay on the calling thread.
const BLOCK: usize = 32 * TILE;

/// Magnitudes of `f64` whose squares, and the sums of those, neither overflow nor vanish.
const SAFE: std::ops::Range<f64> =
    f64::from_bits((1023 - 400) << 52)..f64::from_bits((1023 + 400) << 52);

/// How the elements of one type are read from a tile's bytes and reduced.
trait Element: Sync {
    /// The class of its extremes.
    type Extreme: Extreme + Send;
    /// The type in which PyTorch would sum it.
    type Addend: Addend + Send;

    /// Reduces the tile whose first element has logical index `start`.
    ///
    /// Where `cascade` is given, PyTorch's own sum takes in the tile too.
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        cascade: Option<&mut BlockSum<Self::Addend>>,
    ) -> Partial<Self::Extreme>;
}

/// One thread's buffers, each of a tile.
#[derive(Default)]
struct Scratch {
    words: Vec<u64>,
    floats: Vec<f32>,
}

/// A tile's bytes as its elements, copied only where they are not aligned.
#[inline(always)]
fn cast<'a, T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
    bytes: &'a [u8],
    words: &'a mut Vec<u64>,
) -> &'a [T] {
    if let Ok(values) = bytemuck::try_cast_slice(bytes) {
        return values;
    }
    words.resize(TILE * size_of::<T>() / 8, 0);
    let copy = &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..bytes.len()];
    copy.copy_from_slice(bytes);
    bytemuck::cast_slice(copy)
}

struct Float64 {
    /// A power of two that brings extreme magnitudes to where their squares are finite.
    scale: f64,
}

impl Element for Float64 {
    type Extreme = f64;
    type Addend = f64;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        cascade: Option<&mut BlockSum<f64>>,
    ) -> Partial<f64> {
        let words: &[u64] = cast(bytes, &mut scratch.words);
        let values: &[f64] = bytemuck::cast_slice(words);
        if let Some(cascade) = cascade {
            cascade.push::<16>(values);
        }
        let mut partial = f64_tile(values, self.scale, start);
        partial.checksum = u64::checksum(words, start);
        partial
    }
}

struct Float32;

impl Element for Float32 {
    type Extreme = f64;
    type Addend = f32;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        cascade: Option<&mut BlockSum<f32>>,
    ) -> Partial<f64> {
        let words: &[u32] = cast(bytes, &mut scratch.words);
        let values: &[f32] = bytemuck::cast_slice(words);
        if let Some(cascade) = cascade {
            cascade.push::<32>(values);
        }
        let mut partial = f32_tile(values, 1.0, start);
        partial.checksum = u32::checksum(words, start);
        partial
    }
}

/// A float narrower than `f32`.
struct Narrow<F>(PhantomData<fn() -> F>);

impl<F: Widen> Element for Narrow<F> {
    type Extreme = f64;
    type Addend = f32;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        cascade: Option<&mut BlockSum<f32>>,
    ) -> Partial<f64> {
        let words: &[F::Word] = cast(bytes, &mut scratch.words);
        scratch.floats.resize(TILE, 0.0);
        let values = &mut scratch.floats[..words.len()];
        F::widen(words, values);
        if let Some(cascade) = cascade {
            cascade.push::<32>(values);
        }
        let mut partial = f32_tile(values, 1.0, start);
        partial.checksum = F::Word::checksum(words, start);
        partial
    }
}

/// Integers `I` whose bit patterns are the words `W`.
struct Int<I, W>(PhantomData<fn() -> (I, W)>);

impl<I, W> Element for Int<I, W>
where
    I: Integer + bytemuck::AnyBitPattern + bytemuck::NoUninit,
    W: Word + bytemuck::AnyBitPattern + bytemuck::NoUninit,
{
    type Extreme = i128;
    type Addend = f64;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        _: Option<&mut BlockSum<f64>>,
    ) -> Partial<i128> {
        let words: &[W] = cast(bytes, &mut scratch.words);
        let mut partial = I::tile(bytemuck::cast_slice(words));
        partial.checksum = W::checksum(words, start);
        partial
    }
}

/// The loop over the tiles of one block.
struct Block<'a, E: Element> {
    element: &'a E,
    walk: &'a Walk<'a>,
    start: usize,
    end: usize,
    plan: Option<Plan>,
}

/// A block's part of the summary, and of PyTorch's sum where it is wanted.
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
fn reduce<E: Element>(
    element: &E,
    view: &TensorView,
    cascade: bool,
) -> Option<(Partial<E::Extreme>, Option<E::Addend>)> {
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
        DType::Quantized(_) | DType::Other(_) => (empty(), None),
    }
}

fn empty() -> Summary {
    Summary {
        count: 0,
        mean: None,
        std: None,
        min: None,
        max: None,
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
        zeros: 0,
        abs_max: None,
        l2: 0.0,
        first_non_finite: None,
        checksum: 0,
    }
}

fn float<E>(element: &E, view: &TensorView, cascade: bool) -> (Summary, Option<f64>)
where
    E: Element<Extreme = f64>,
    E::Addend: Into<f64>,
{
    match reduce(element, view, cascade) {
        Some((partial, sum)) => (float_summary(view, &partial, 1.0), sum.map(Into::into)),
        None => (empty(), cascade.then_some(0.0)),
    }
}

/// Squares of very large or very small `f64` leave its range: those tensors are read again, scaled.
fn float64(view: &TensorView, cascade: bool) -> (Summary, Option<f64>) {
    let (summary, sum) = float(&Float64 { scale: 1.0 }, view, cascade);
    let Some(abs_max) = summary.abs_max else {
        return (summary, sum);
    };
    if !abs_max.is_finite() || abs_max == 0.0 || SAFE.contains(&abs_max) {
        return (summary, sum);
    }
    let scale = 2f64.powi(-(abs_max.log2() as i32).clamp(-1000, 1000));
    match reduce(&Float64 { scale }, view, false) {
        Some((partial, _)) => (float_summary(view, &partial, scale), sum),
        None => (summary, sum),
    }
}

/// What PyTorch's rules make of a tensor's parts; `scale` is what the moments were multiplied by.
fn float_summary(view: &TensorView, partial: &Partial<f64>, scale: f64) -> Summary {
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
        count: view.count() as u64,
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
    let Some((partial, _)) = reduce(element, view, false) else {
        return (empty(), None);
    };
    let summary = Summary {
        count: view.count() as u64,
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
    };
    (summary, None)
}

/// An element of any integer type.
fn whole(value: i128) -> Number {
    match i64::try_from(value) {
        Ok(value) => Number::Int(value),
        Err(_) => Number::UInt(value as u64),
    }
}
