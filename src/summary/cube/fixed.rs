//! Kernel code for fixed-point numbers of two words and for sums of several words.
//!
//! A tile's floats are taken as multiples of one power of two, chosen from the greatest of them, so
//! that their sums are exact integers whatever the order of addition.

#![allow(missing_docs)]

use cubecl::prelude::*;

use super::access::magnitude;
use super::storage::Format;

/// Distances between floats of at most 4 bytes are squared with this many bits.
pub(super) const DISTANCE_BITS: u32 = 31;

/// A 64-bit number.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Pair {
    pub(super) low: u32,
    pub(super) high: u32,
}

#[cube]
pub(super) fn subtract(a: Pair, b: Pair) -> Pair {
    Pair {
        low: a.low - b.low,
        high: a.high - b.high - u32::cast_from(a.low < b.low),
    }
}

/// Shifts right by any number of bits.
#[cube]
pub(super) fn shift_right(number: Pair, shift: u32) -> Pair {
    let bits = shift & 31;
    // In two steps, because a shift by 32 is not defined.
    let carried = (number.high << (31 - bits)) << 1;
    let low = (number.low >> bits) | carried;
    let high = number.high >> bits;
    Pair {
        low: select(shift < 32, low, select(shift < 64, high, 0u32)),
        high: select(shift < 32, high, 0u32),
    }
}

/// The exponent field of the float with this key; 1 for subnormal numbers, as their scale is the same.
#[cube]
pub(super) fn exponent(key: Pair, #[comptime] wide: bool) -> u32 {
    let magnitude = magnitude(if comptime!(wide) { key.high } else { key.low });
    let field = if comptime!(wide) {
        magnitude >> 20
    } else {
        magnitude >> 23
    };
    select(field == 0, 1u32, field)
}

/// The float with this key as a multiple of its tile's unit, towards zero, in two's complement.
///
/// The unit is such that the greatest magnitude of the tile, whose exponent field is `top`, has 62
/// bits.
#[cube]
pub(super) fn fixed_point(key: Pair, top: u32, #[comptime] wide: bool) -> Pair {
    let sign_word = if comptime!(wide) { key.high } else { key.low };
    let negative = sign_word < 0x8000_0000;
    let magnitude = magnitude(sign_word);
    let mantissa = if comptime!(wide) {
        let implicit = select((magnitude >> 20) == 0, 0u32, 0x10_0000u32);
        let upper = (magnitude & 0xf_ffff) | implicit;
        let lower = select(negative, !key.low, key.low);
        Pair {
            low: lower << 9,
            high: (upper << 9) | (lower >> 23),
        }
    } else {
        let implicit = select((magnitude >> 23) == 0, 0u32, 0x80_0000u32);
        Pair {
            low: 0u32,
            high: ((magnitude & 0x7f_ffff) | implicit) << 6,
        }
    };
    let shifted = shift_right(mantissa, top - exponent(key, wide));
    let zero = Pair {
        low: 0u32,
        high: 0u32,
    };
    let opposite = subtract(zero, shifted);
    Pair {
        low: select(negative, opposite.low, shifted.low),
        high: select(negative, opposite.high, shifted.high),
    }
}

/// How far distances up to `greatest` must be shifted to have [`DISTANCE_BITS`] bits.
#[cube]
pub(super) fn distance_shift(greatest: Pair) -> u32 {
    let leading = select(
        greatest.high == 0,
        greatest.low.leading_zeros() + 32,
        greatest.high.leading_zeros(),
    );
    let most = comptime!(64 - DISTANCE_BITS);
    select(leading >= most, 0u32, most - leading)
}

/// Adds a word to the number of `length` words in `sum`, at word `from`.
#[cube]
pub(super) fn add_word(
    sum: &mut Array<u32>,
    word: u32,
    #[comptime] from: u32,
    #[comptime] length: u32,
) {
    let mut carry = word;
    #[unroll]
    for i in from..length {
        let total = sum[i as usize] + carry;
        carry = u32::cast_from(total < carry);
        sum[i as usize] = total;
    }
}

/// Adds the square of a distance; the sum has 5 words, or 3 of which the distance is one word.
#[cube]
pub(super) fn add_square(sum: &mut Array<u32>, distance: Pair, #[comptime] wide: bool) {
    let length = comptime!(if wide { 5u32 } else { 3u32 });
    let low = distance.low;
    add_word(sum, low * low, 0u32, length);
    add_word(sum, low.mul_hi(low), 1u32, length);
    if comptime!(wide) {
        let high = distance.high;
        let (mixed_low, mixed_high) = (low * high, low.mul_hi(high));
        #[unroll]
        for _ in 0..2 {
            add_word(sum, mixed_low, 1u32, length);
            add_word(sum, mixed_high, 2u32, length);
        }
        add_word(sum, high * high, 2u32, length);
        add_word(sum, high.mul_hi(high), 3u32, length);
    }
}

/// How many words each of the three sums over a unit's elements has: of distances, of coarse
/// distances, of squares.
pub(super) fn words_of_sums(format: Format) -> [u32; 3] {
    match (format.wide(), format.is_float()) {
        (true, _) => [3, 0, 5],
        (false, true) => [3, 2, 3],
        (false, false) => [2, 0, 3],
    }
}
