//! The kernel that reduces each tile of a tensor to one partial result.
//!
//! One cube takes one tile. Every quantity of a partial result is an integer and combines exactly,
//! so a tensor gives the same words on every device and at every run.

#![allow(missing_docs)]

use cubecl::prelude::*;

use super::access::{
    high_bits, low_bits, magnitude, narrow_key, position, wide_key_high, wide_key_low,
};
use super::fixed::{
    Pair, add_square, add_word, distance_shift, exponent, fixed_point, shift_right, subtract,
    words_of_sums,
};
use super::partial::{PARTIAL_WORDS, TILE, word};
use super::storage::{Class, Format};

/// Words of a unit's first part: everything but the moments.
const FIRST_WORDS: u32 = 9;

/// What a kernel of one shape is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    pub(super) format: Format,
    /// Whether the elements lie in row-major order without gaps.
    pub(super) contiguous: bool,
    /// Units of a cube: a power of 4, at most 256.
    pub(super) units: u32,
}

/// What is asked of the bits of a float, as counts of one element.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Kind {
    zero: u32,
    nan: u32,
    positive_infinity: u32,
    negative_infinity: u32,
}

/// The key of element `at`.
#[cube]
fn key(data: &Tensor<u32>, at: u32, #[comptime] format: Format) -> Pair {
    let low = low_bits(data, at, format);
    if comptime!(format.wide()) {
        let high = high_bits(data, at);
        Pair {
            low: wide_key_low(low, high, format),
            high: wide_key_high(high, format),
        }
    } else {
        Pair {
            low: narrow_key(low, format),
            high: 0u32,
        }
    }
}

/// Judges a number by its key.
#[cube]
fn kind(key: Pair, #[comptime] format: Format) -> Kind {
    let (low, high) = (key.low, key.high);
    if comptime!(format.is_float() && format.wide()) {
        let negative = high < 0x8000_0000;
        let magnitude = magnitude(high);
        let lower = select(negative, !low, low);
        let infinite = magnitude == 0x7ff0_0000 && lower == 0;
        Kind {
            zero: u32::cast_from(magnitude == 0 && lower == 0),
            nan: u32::cast_from(
                magnitude > 0x7ff0_0000 || (magnitude == 0x7ff0_0000 && lower != 0),
            ),
            positive_infinity: u32::cast_from(infinite && !negative),
            negative_infinity: u32::cast_from(infinite && negative),
        }
    } else if comptime!(format.is_float()) {
        let magnitude = magnitude(low);
        Kind {
            zero: u32::cast_from(magnitude == 0),
            nan: u32::cast_from(magnitude > 0x7f80_0000),
            positive_infinity: u32::cast_from(low == 0xff80_0000),
            negative_infinity: u32::cast_from(low == 0x007f_ffff),
        }
    } else {
        let zero_key = comptime!(if format.class == Class::Signed {
            0x8000_0000u32
        } else {
            0u32
        });
        let zero = if comptime!(format.wide()) {
            low == 0 && high == zero_key
        } else {
            low == zero_key
        };
        Kind {
            zero: u32::cast_from(zero),
            nan: 0u32,
            positive_infinity: 0u32,
            negative_infinity: 0u32,
        }
    }
}

/// Whether key `a` is below key `b`.
#[cube]
fn below(a: Pair, b: Pair, #[comptime] wide: bool) -> bool {
    if comptime!(wide) {
        a.high < b.high || (a.high == b.high && a.low < b.low)
    } else {
        a.low < b.low
    }
}

/// Takes the first part of unit `other` into that of unit `own`.
#[cube]
fn combine_first(
    shared: &mut [u32],
    own: u32,
    other: u32,
    #[comptime] units: u32,
    #[comptime] wide: bool,
) {
    #[unroll]
    for i in 0..2u32 {
        let mine = (comptime!(i * units) + own) as usize;
        shared[mine] += shared[(comptime!(i * units) + other) as usize];
    }
    let (mine, theirs) = (
        (comptime!(word::FIRST_NON_FINITE * units) + own) as usize,
        (comptime!(word::FIRST_NON_FINITE * units) + other) as usize,
    );
    shared[mine] = select(shared[theirs] < shared[mine], shared[theirs], shared[mine]);

    let checksum = comptime!(word::CHECKSUM * units);
    let added = shared[(checksum + other) as usize];
    let low = shared[(checksum + own) as usize] + added;
    shared[(checksum + own) as usize] = low;
    let upper = comptime!((word::CHECKSUM + 1) * units);
    shared[(upper + own) as usize] = shared[(upper + own) as usize]
        + shared[(upper + other) as usize]
        + u32::cast_from(low < added);

    let minimum = key_of(shared, own, word::MIN, units, wide);
    let candidate = key_of(shared, other, word::MIN, units, wide);
    if below(candidate, minimum, wide) {
        set_key(shared, own, candidate, word::MIN, units, wide);
    }
    let maximum = key_of(shared, own, word::MAX, units, wide);
    let candidate = key_of(shared, other, word::MAX, units, wide);
    if below(maximum, candidate, wide) {
        set_key(shared, own, candidate, word::MAX, units, wide);
    }
}

#[cube]
fn key_of(
    shared: &mut [u32],
    unit: u32,
    #[comptime] at: u32,
    #[comptime] units: u32,
    #[comptime] wide: bool,
) -> Pair {
    let mut high = 0u32;
    if comptime!(wide) {
        high = shared[(comptime!((at + 1) * units) + unit) as usize];
    }
    Pair {
        low: shared[(comptime!(at * units) + unit) as usize],
        high,
    }
}

#[cube]
fn set_key(
    shared: &mut [u32],
    unit: u32,
    key: Pair,
    #[comptime] at: u32,
    #[comptime] units: u32,
    #[comptime] wide: bool,
) {
    shared[(comptime!(at * units) + unit) as usize] = key.low;
    if comptime!(wide) {
        shared[(comptime!((at + 1) * units) + unit) as usize] = key.high;
    }
}

/// Adds a number of some words of unit `other` to that of unit `own`.
#[cube]
fn combine_sum(
    shared: &mut [u32],
    own: u32,
    other: u32,
    #[comptime] from: u32,
    #[comptime] length: u32,
    #[comptime] units: u32,
) {
    let mut carry = 0u32;
    for i in 0..length {
        let row = (from + i) * units;
        let mine = shared[(row + own) as usize];
        let sum = mine + shared[(row + other) as usize];
        let total = sum + carry;
        carry = u32::cast_from(sum < mine) + u32::cast_from(total < sum);
        shared[(row + own) as usize] = total;
    }
}

/// Writes the partial result of every tile, one after the other, from word `first_word` on, and
/// `stamp` to the word before.
///
/// `data` has the shape and strides of the tensor; its first element is element `offset` of the
/// buffer. The cubes that are started beyond the last tile write nothing.
#[cube(launch_unchecked)]
pub(super) fn summarise_tiles(
    data: &Tensor<u32>,
    partials: &mut [u32],
    count: u32,
    offset: u32,
    first_word: u32,
    stamp: u32,
    #[comptime] variant: Variant,
) {
    let format = comptime!(variant.format);
    let units = comptime!(variant.units);
    let wide = comptime!(format.wide());
    let float = comptime!(format.is_float());
    let per_unit = comptime!(TILE / variant.units);
    let [sum_words, coarse_words, square_words] = comptime!(words_of_sums(variant.format));
    let squares_from = comptime!(sum_words + coarse_words);
    let all_words = comptime!(FIRST_WORDS.max(squares_from + square_words));
    let mut shared = Shared::<[u32]>::new_slice(comptime!((all_words * units) as usize));

    let unit = UNIT_POS;
    let tile = CUBE_POS as u32;
    let start = tile * TILE;

    let mut zeros_nans = 0u32;
    let mut infinities = 0u32;
    let mut first = 0xffff_ffffu32;
    let mut checksum_low = 0u32;
    let mut checksum_high = 0u32;
    let mut min_low = 0xffff_ffffu32;
    let mut min_high = 0xffff_ffffu32;
    let mut max_low = 0u32;
    let mut max_high = 0u32;

    for j in 0..per_unit {
        let local = j * units + unit;
        let k = start + local;
        if k < count {
            let at = offset + position(data, k, variant.contiguous);
            let low = low_bits(data, at, format);

            let product = low * (k + 1);
            checksum_low += product;
            checksum_high += low.mul_hi(k + 1) + u32::cast_from(checksum_low < product);

            if comptime!(wide) {
                checksum_high += high_bits(data, at) * (k + 1);
            }

            let key = key(data, at, format);
            let kind = kind(key, format);
            zeros_nans += kind.zero + (kind.nan << 16);
            if comptime!(float) {
                infinities += kind.positive_infinity + (kind.negative_infinity << 16);
                let special = kind.nan + kind.positive_infinity + kind.negative_infinity;
                first = select(special != 0 && local < first, local, first);
            }
            let lowest = Pair {
                low: min_low,
                high: min_high,
            };
            if below(key, lowest, wide) {
                min_low = key.low;
                min_high = key.high;
            }
            let highest = Pair {
                low: max_low,
                high: max_high,
            };
            if below(highest, key, wide) {
                max_low = key.low;
                max_high = key.high;
            }
        }
    }

    shared[(comptime!(word::ZEROS_NANS * units) + unit) as usize] = zeros_nans;
    shared[(comptime!(word::INFINITIES * units) + unit) as usize] = infinities;
    shared[(comptime!(word::FIRST_NON_FINITE * units) + unit) as usize] = first;
    shared[(comptime!(word::CHECKSUM * units) + unit) as usize] = checksum_low;
    shared[(comptime!((word::CHECKSUM + 1) * units) + unit) as usize] = checksum_high;
    let own_min = Pair {
        low: min_low,
        high: min_high,
    };
    let own_max = Pair {
        low: max_low,
        high: max_high,
    };
    set_key(&mut shared, unit, own_min, word::MIN, units, wide);
    set_key(&mut shared, unit, own_max, word::MAX, units, wide);
    sync_cube();
    // A tree in which each unit takes in three others.
    let levels = comptime!(variant.units.ilog2() / 2);
    for level in 0..levels {
        let width = units >> (2 * (level + 1));
        if unit < width {
            for m in 1..4u32 {
                combine_first(&mut shared, unit, unit + m * width, units, wide);
            }
        }
        sync_cube();
    }

    let min = key_of(&mut shared, 0u32, word::MIN, units, wide);
    let max = key_of(&mut shared, 0u32, word::MAX, units, wide);
    let tiles = count.div_ceil(TILE);
    let out = first_word + tile * PARTIAL_WORDS;
    if unit == 0 && tile == 0 {
        partials[(first_word - 1) as usize] = stamp;
    }
    if unit == 0 && tile < tiles {
        for i in 0..5u32 {
            partials[(out + i) as usize] = shared[(i * units) as usize];
        }
        partials[(out + word::MIN) as usize] = min.low;
        partials[(out + word::MIN + 1) as usize] = min.high;
        partials[(out + word::MAX) as usize] = max.low;
        partials[(out + word::MAX + 1) as usize] = max.high;
    }
    // The rows are used again.
    sync_cube();

    let mut top = 0u32;
    let mut shift = 0u32;
    let lowest = if comptime!(float) {
        let of_min = exponent(min, wide);
        let of_max = exponent(max, wide);
        top = select(of_min < of_max, of_max, of_min);
        let lowest = fixed_point(min, top, wide);
        if comptime!(!wide) {
            let highest = fixed_point(max, top, wide);
            shift = distance_shift(subtract(highest, lowest));
        }
        lowest
    } else {
        min
    };

    let mut sum = Array::<u32>::new(comptime!(sum_words as usize));
    let mut coarse_sum = Array::<u32>::new(comptime!(coarse_words.max(1) as usize));
    let mut squares = Array::<u32>::new(comptime!(square_words as usize));
    for j in 0..per_unit {
        let k = start + j * units + unit;
        if k < count {
            // Read again: the tile is still in a cache.
            let key = key(data, offset + position(data, k, variant.contiguous), format);
            let number = if comptime!(float) {
                fixed_point(key, top, wide)
            } else {
                key
            };
            let distance = subtract(number, lowest);
            add_word(&mut sum, distance.low, 0u32, sum_words);
            if comptime!(wide || float) {
                add_word(&mut sum, distance.high, 1u32, sum_words);
            }
            if comptime!(float && !wide) {
                let low = shift_right(distance, shift).low;
                add_word(&mut coarse_sum, low, 0u32, coarse_words);
                add_square(&mut squares, Pair { low, high: 0u32 }, wide);
            } else {
                add_square(&mut squares, distance, wide);
            }
        }
    }
    #[unroll]
    for i in 0..sum_words {
        shared[(comptime!(i * units) + unit) as usize] = sum[i as usize];
    }
    #[unroll]
    for i in 0..coarse_words {
        shared[(comptime!((sum_words + i) * units) + unit) as usize] = coarse_sum[i as usize];
    }
    #[unroll]
    for i in 0..square_words {
        shared[(comptime!((squares_from + i) * units) + unit) as usize] = squares[i as usize];
    }
    sync_cube();
    for level in 0..levels {
        let width = units >> (2 * (level + 1));
        if unit < width {
            for m in 1..4u32 {
                let other = unit + m * width;
                combine_sum(&mut shared, unit, other, 0u32, sum_words, units);
                combine_sum(&mut shared, unit, other, sum_words, coarse_words, units);
                combine_sum(&mut shared, unit, other, squares_from, square_words, units);
            }
        }
        sync_cube();
    }
    if unit == 0 && tile < tiles {
        partials[(out + word::SCALE) as usize] = top | (shift << 16);
        write_sum(
            partials,
            &mut shared,
            out + word::SUM,
            0u32,
            sum_words,
            3u32,
            units,
        );
        write_sum(
            partials,
            &mut shared,
            out + word::COARSE_SUM,
            sum_words,
            coarse_words,
            2u32,
            units,
        );
        write_sum(
            partials,
            &mut shared,
            out + word::SQUARES,
            squares_from,
            square_words,
            5u32,
            units,
        );
    }
}

/// Writes a number of `length` words of unit 0, extended with zeros to `full` words.
#[cube]
fn write_sum(
    partials: &mut [u32],
    shared: &mut [u32],
    out: u32,
    #[comptime] from: u32,
    #[comptime] length: u32,
    #[comptime] full: u32,
    #[comptime] units: u32,
) {
    for i in 0..length {
        partials[(out + i) as usize] = shared[((from + i) * units) as usize];
    }
    for i in length..full {
        partials[(out + i) as usize] = 0u32;
    }
}
