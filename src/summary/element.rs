//! How a tile of each element type is read from its bytes and put through the inner loops.

use std::marker::PhantomData;

use super::cascade::{Addend, BlockSum};
use super::checksum::Word;
use super::narrow::Widen;
use super::simd::prefetch;
use super::tile::{Extreme, Extremes, Integer, Partial, Sums, TILE, float_tile, strip};

/// How the elements of one type are read from a tile's bytes and reduced.
pub(super) trait Element: Sync {
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
pub(super) struct Scratch {
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

/// `f64`; the field is a power of two that brings extreme magnitudes to where their squares are
/// finite.
pub(super) struct Float64(pub(super) f64);

impl Element for Float64 {
    type Extreme = f64;
    type Addend = f64;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        mut cascade: Option<&mut BlockSum<f64>>,
    ) -> Partial<f64> {
        let words: &[u64] = cast(bytes, &mut scratch.words);
        let values: &[f64] = bytemuck::cast_slice(words);
        let (mut extremes, mut sums) = (Extremes::<f64>::new(), Sums::new());
        let mut checksum = Default::default();
        for part in values.chunks(strip::<f64>()) {
            prefetch(part);
            extremes.push(part);
            sums.push(part, |value| value * self.0);
            u64::accumulate(&mut checksum, bytemuck::cast_slice(part));
            if let Some(cascade) = &mut cascade {
                cascade.push::<16>(part);
            }
        }
        let moments = sums.moments(values, |value| value * self.0);
        let mut partial = float_tile(values, start, &extremes, moments);
        partial.checksum = u64::checksum(&checksum, start);
        partial
    }
}

pub(super) struct Float32;

impl Element for Float32 {
    type Extreme = f64;
    type Addend = f32;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        mut cascade: Option<&mut BlockSum<f32>>,
    ) -> Partial<f64> {
        let words: &[u32] = cast(bytes, &mut scratch.words);
        let values: &[f32] = bytemuck::cast_slice(words);
        let (mut extremes, mut sums) = (Extremes::<f32>::new(), Sums::new());
        let mut checksum = Default::default();
        for part in values.chunks(strip::<f32>()) {
            prefetch(part);
            extremes.push(part);
            sums.push(part, f64::from);
            u32::accumulate(&mut checksum, bytemuck::cast_slice(part));
            if let Some(cascade) = &mut cascade {
                cascade.push::<32>(part);
            }
        }
        let mut partial = float_tile(values, start, &extremes, sums.moments(values, f64::from));
        partial.checksum = u32::checksum(&checksum, start);
        partial
    }
}

/// A float narrower than `f32`.
pub(super) struct Narrow<F>(pub(super) PhantomData<fn() -> F>);

impl<F: Widen> Element for Narrow<F> {
    type Extreme = f64;
    type Addend = f32;

    #[inline(always)]
    fn tile(
        &self,
        bytes: &[u8],
        start: usize,
        scratch: &mut Scratch,
        mut cascade: Option<&mut BlockSum<f32>>,
    ) -> Partial<f64> {
        let words: &[F::Word] = cast(bytes, &mut scratch.words);
        scratch.floats.resize(TILE, 0.0);
        let values = &mut scratch.floats[..words.len()];
        let (mut extremes, mut sums) = (Extremes::<f32>::new(), Sums::new());
        let mut checksum = Default::default();
        for (words, part) in words
            .chunks(strip::<f32>())
            .zip(values.chunks_mut(strip::<f32>()))
        {
            prefetch(words);
            F::widen(words, part);
            extremes.push(part);
            sums.push(part, f64::from);
            F::Word::accumulate(&mut checksum, words);
            if let Some(cascade) = &mut cascade {
                cascade.push::<32>(part);
            }
        }
        let mut partial = float_tile(values, start, &extremes, sums.moments(values, f64::from));
        partial.checksum = F::Word::checksum(&checksum, start);
        partial
    }
}

/// Integers `I` whose bit patterns are the words `W`.
pub(super) struct Int<I, W>(pub(super) PhantomData<fn() -> (I, W)>);

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
        let values: &[I] = bytemuck::cast_slice(words);
        let (mut extremes, mut zeros, mut sums) = (I::NONE, 0, I::sums());
        let mut checksum = Default::default();
        for part in values.chunks(strip::<I>()) {
            prefetch(part);
            let (min, max, count) = I::extremes(extremes, part);
            (extremes, zeros) = ((min, max), zeros + count);
            I::push(&mut sums, part);
            W::accumulate(&mut checksum, bytemuck::cast_slice(part));
        }
        let (min, max) = extremes;
        let moments = I::moments(&sums, values, min);
        let mut partial = Partial::finite(moments, min.into(), max.into(), zeros);
        partial.checksum = W::checksum(&checksum, start);
        partial
    }
}
