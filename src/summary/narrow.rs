//! Floats of 16 and 8 bits as `f32`, exactly.

use half::{bf16, f16};

use super::checksum::Word;

/// A float type whose every value is an `f32`.
pub(super) trait Widen {
    /// The bits of one element.
    type Word: Word + bytemuck::AnyBitPattern + bytemuck::NoUninit;

    /// Writes the value of each word; both slices have one length.
    fn widen(words: &[Self::Word], values: &mut [f32]);
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

/// The `f32` bits of a magnitude whose exponent and mantissa lie at the places of `f32`'s, but whose
/// exponent has another bias.
#[inline(always)]
fn rebias(bits: u32, bias: u32) -> u32 {
    // A subnormal lacks the leading one: put there, and taken away again as a number. Unlike a
    // product with a power of two, this never computes with subnormals, which some CPUs do slowly.
    let one = (127 + 1 - bias) << 23;
    let subnormal = f32::from_bits(one | bits) - f32::from_bits(one);
    if bits < 1 << 23 {
        subnormal.to_bits()
    } else {
        bits + ((127 - bias) << 23)
    }
}

/// The same for IEEE types with 5 exponent bits, whose highest exponent is kept for Inf and NaN.
#[inline(always)]
fn rebias_ieee(bits: u32) -> u32 {
    if bits >= 31 << 23 {
        0x7f80_0000 | bits
    } else {
        rebias(bits, 15)
    }
}

impl Widen for f16 {
    type Word = u16;

    #[inline(always)]
    fn widen(words: &[u16], values: &mut [f32]) {
        for (value, &word) in values.iter_mut().zip(words) {
            let (sign, rest) = (u32::from(word & 0x8000) << 16, u32::from(word & 0x7fff));
            *value = f32::from_bits(sign | rebias_ieee(rest << 13));
        }
    }
}

impl Widen for F8E4M3 {
    type Word = u8;

    #[inline(always)]
    fn widen(words: &[u8], values: &mut [f32]) {
        for (value, &word) in values.iter_mut().zip(words) {
            let (sign, rest) = (u32::from(word & 0x80) << 24, u32::from(word & 0x7f));
            let bits = if rest == 0x7f {
                f32::NAN.to_bits()
            } else {
                rebias(rest << 20, 7)
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
            *value = f32::from_bits(sign | rebias_ieee(rest << 21));
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
    fn half_values_are_those_of_the_half_crate() {
        let words: Vec<u16> = (0..=u16::MAX).collect();
        let mut values = vec![0f32; words.len()];
        f16::widen(&words, &mut values);
        for (&word, value) in words.iter().zip(values) {
            let expected = f16::from_bits(word).to_f32();
            assert!(
                value.to_bits() == expected.to_bits() || (value.is_nan() && expected.is_nan()),
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
