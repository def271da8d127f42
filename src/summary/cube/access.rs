//! Kernel code that reads one element's bits out of a buffer of 32-bit words.
//!
//! All of it is integer arithmetic, so that no driver's idea of fast floating-point mathematics can
//! change a number, and no device needs a type wider or narrower than 32 bits.

// The macro turns comptime conditions and casts into forms that these lints misread.
#![allow(missing_docs)]

use cubecl::prelude::*;

use super::storage::{Class, Format};

/// Where the element with logical index `k` lies, in elements; `data` has the shape and strides of
/// the tensor, outermost dimension first.
#[cube]
pub(super) fn position(data: &Tensor<u32>, k: u32, #[comptime] contiguous: bool) -> u32 {
    if comptime!(contiguous) {
        k
    } else {
        let rank = data.rank();
        let mut rest = k;
        let mut at = 0u32;
        for i in 0..rank {
            let dim = rank - 1 - i;
            let length = data.shape(dim) as u32;
            at += (rest % length) * data.stride(dim) as u32;
            rest /= length;
        }
        at
    }
}

/// The lower 32 bits of element `at`, zero-extended; of a truth value 0 or 1.
#[cube]
pub(super) fn low_bits(data: &Tensor<u32>, at: u32, #[comptime] format: Format) -> u32 {
    let bits = if comptime!(format.bytes == 8) {
        data[(at * 2) as usize]
    } else if comptime!(format.bytes == 4) {
        data[at as usize]
    } else if comptime!(format.bytes == 2) {
        (data[(at >> 1) as usize] >> ((at & 1) * 16)) & 0xffff
    } else {
        (data[(at >> 2) as usize] >> ((at & 3) * 8)) & 0xff
    };
    if comptime!(format.class == Class::Bool) {
        u32::cast_from(bits != 0)
    } else {
        bits
    }
}

/// The upper 32 bits of an element of 8 bytes.
#[cube]
pub(super) fn high_bits(data: &Tensor<u32>, at: u32) -> u32 {
    data[(at * 2 + 1) as usize]
}

/// The `f32` bits of a float of at most 4 bytes; exact, subnormal values included.
#[cube]
fn widened(bits: u32, #[comptime] format: Format) -> u32 {
    let (mantissa, bias, infinities) = comptime!(match format.class {
        Class::Float {
            mantissa,
            bias,
            infinities,
        } => (mantissa, bias, infinities),
        _ => (23, 127, true),
    });
    if comptime!(mantissa == 23) {
        bits
    } else if comptime!(bias == 127) {
        bits << comptime!(23 - mantissa)
    } else {
        let width = comptime!(8 * format.bytes);
        let sign = (bits >> comptime!(width - 1)) << 31;
        let rest = bits & comptime!((1u32 << (width - 1)) - 1);
        let shifted = rest << comptime!(23 - mantissa);
        // An integer this small is a normal `f32`; subtracting from its exponent scales it.
        let whole = u32::reinterpret(f32::cast_from(rest));
        let subnormal = select(
            rest == 0,
            0u32,
            whole - comptime!((bias + mantissa - 1) << 23),
        );
        let normal = shifted + comptime!((127 - bias) << 23);
        let finite = select((rest >> mantissa) == 0, subnormal, normal);
        let special_from = comptime!(if infinities {
            ((1u32 << (width - 1 - mantissa)) - 1) << mantissa
        } else {
            (1u32 << (width - 1)) - 1
        });
        sign | select(rest >= special_from, shifted | 0x7f80_0000, finite)
    }
}

/// A number of at most 4 bytes as a key: of two numbers the greater has the greater key.
///
/// Floats are widened to `f32` first. Negative zero comes before zero. Keys of integers are as far
/// apart as the integers are.
#[cube]
pub(super) fn narrow_key(bits: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.is_float()) {
        let wide = widened(bits, format);
        select(wide >= 0x8000_0000, !wide, wide | 0x8000_0000)
    } else if comptime!(format.class == Class::Signed) {
        // The sign bit moved to the top wraps negative numbers below the others.
        let half = comptime!(1u32 << (8 * format.bytes - 1));
        (bits ^ half) + comptime!(0x8000_0000u32.wrapping_sub(1u32 << (8 * format.bytes - 1)))
    } else {
        bits
    }
}

/// The upper word of the key of a number of 8 bytes.
#[cube]
pub(super) fn wide_key_high(high: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.is_float()) {
        select(high >= 0x8000_0000, !high, high | 0x8000_0000)
    } else if comptime!(format.class == Class::Signed) {
        high ^ 0x8000_0000
    } else {
        high
    }
}

/// The lower word of the key of a number of 8 bytes.
#[cube]
pub(super) fn wide_key_low(low: u32, high: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.is_float()) {
        select(high >= 0x8000_0000, !low, low)
    } else {
        low
    }
}

/// The bits of a float's magnitude, of the word that holds its sign, from the word's key.
#[cube]
pub(super) fn magnitude(key: u32) -> u32 {
    select(key < 0x8000_0000, !key, key) & 0x7fff_ffff
}
