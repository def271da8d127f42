//! Floats of 16 and 8 bits as `f32`, exactly.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::tile::Word;

/// A float type whose every value is an `f32`.
pub(super) trait Widen {
    /// The bits of one element.
    type Word: Word + bytemuck::AnyBitPattern + bytemuck::NoUninit;

    /// Writes the value of each word; both slices have one length.
    fn widen(words: &[Self::Word], values: &mut [f32]);
}

impl Widen for f16 {
    type Word = u16;

    #[inline(always)]
    fn widen(words: &[u16], values: &mut [f32]) {
        bytemuck::cast_slice::<u16, f16>(words).convert_to_f32_slice(values);
    }
}

impl Widen for bf16 {
    type Word = u16;

    #[inline(always)]
    fn widen(words: &[u16], values: &mut [f32]) {
        for (value, &word) in values.iter_mut().zip(words) {
            *value = f32::from_bits(u32::from(word) << 16);
        }
    }
}

/// `torch.float8_e4m3fn`: exponent bias 7, no infinity, NaN where all seven lower bits are set.
pub(super) struct F8E4M3;

/// `torch.float8_e5m2`: the upper byte of an IEEE half.
pub(super) struct F8E5M2;

/// A power of two, for exponents of normal numbers.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

impl Widen for F8E4M3 {
    type Word = u8;

    #[inline(always)]
    fn widen(words: &[u8], values: &mut [f32]) {
        for (value, &word) in values.iter_mut().zip(words) {
            let (sign, rest) = (u32::from(word & 0x80) << 24, u32::from(word & 0x7f));
            // The product moves the exponent from one bias to the other, for subnormals too.
            let magnitude = f32::from_bits(rest << 20) * const { power_of_two(127 - 7) };
            let bits = if rest == 0x7f {
                f32::NAN.to_bits()
            } else {
                magnitude.to_bits()
            };
            *value = f32::from_bits(sign | bits);
        }
    }
}

impl Widen for F8E5M2 {
    type Word = u8;

    #[inline(always)]
    fn widen(words: &[u8], values: &mut [f32]) {
        for (value, &word) in values.iter_mut().zip(words) {
            let (sign, rest) = (u32::from(word & 0x80) << 24, u32::from(word & 0x7f));
            let magnitude = f32::from_bits(rest << 21) * const { power_of_two(127 - 15) };
            let special = 0x7f80_0000 | (rest << 21);
            let bits = if rest >= 0x7c {
                special
            } else {
                magnitude.to_bits()
            };
            *value = f32::from_bits(sign | bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_values_follow_the_definition() {
        let words: Vec<u8> = (0..=255).collect();
        let mut values = vec![0f32; 256];
        F8E4M3::widen(&words, &mut values);
        for (word, value) in (0..=255u8).zip(values) {
            let sign = if word >> 7 == 1 { -1.0 } else { 1.0 };
            let (exponent, mantissa) = (i32::from(word >> 3 & 15), f64::from(word & 7));
            let expected = sign
                * match exponent {
                    15 if mantissa == 7.0 => f64::NAN,
                    0 => mantissa / 8.0 * 2f64.powi(-6),
                    _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
                };
            assert!(
                f64::from(value) == expected || (value.is_nan() && expected.is_nan()),
                "{word:#x}: {value} is not {expected}"
            );
        }
    }

    #[test]
    fn e5m2_values_are_those_of_the_half_with_a_zero_byte_below() {
        let words: Vec<u8> = (0..=255).collect();
        let mut values = vec![0f32; 256];
        F8E5M2::widen(&words, &mut values);
        for (word, value) in (0..=255u8).zip(values) {
            let expected = f16::from_bits(u16::from(word) << 8).to_f32();
            assert!(
                value.to_bits() == expected.to_bits() || (value.is_nan() && expected.is_nan()),
                "{word:#x}: {value} is not {expected}"
            );
        }
    }
}
