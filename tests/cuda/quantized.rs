//! Quantised storage: every code, scale and packing against the numbers it stands for.

use burnscope::summary::{
    DType,
    cuda::{DeviceTensor, Elements, Engine, QuantCode, QuantWord, Quantization, ScaleFormat},
};
use half::{bf16, f16};

use crate::{
    reference::{self, Random, all_bits, assert_agrees},
    standin::{Standin, standin},
};

/// A quantised tensor of two dimensions, and what it stands for.
struct Case {
    code: QuantCode,
    word: QuantWord,
    /// From the innermost, as Burn counts.
    packed_dim: usize,
    shape: [usize; 2],
    block: [usize; 2],
    scale_format: ScaleFormat,
    global: Option<f32>,
}

fn code_value(code: QuantCode, bits: u64) -> f32 {
    match code {
        QuantCode::Int(width) => {
            let unused = 64 - width;
            (((bits << unused) as i64) >> unused) as f32
        }
        QuantCode::E4M3 => reference::float(&DType::F8E4M3, bits) as f32,
        QuantCode::E5M2 => reference::float(&DType::F8E5M2, bits) as f32,
        QuantCode::E2M1 => {
            let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][bits as usize & 7];
            if bits & 8 != 0 { -magnitude } else { magnitude }
        }
    }
}

/// A random scale: its bytes and its value.
fn scale(format: ScaleFormat, random: &mut Random) -> (Vec<u8>, f32) {
    let value = (random.normal() * 0.1).abs() as f32 + 0.01;
    match format {
        ScaleFormat::F32 => (value.to_le_bytes().to_vec(), value),
        ScaleFormat::F16 => {
            let value = f16::from_f32(value);
            (value.to_le_bytes().to_vec(), value.to_f32())
        }
        ScaleFormat::BF16 => {
            let value = bf16::from_f32(value);
            (value.to_le_bytes().to_vec(), value.to_f32())
        }
        ScaleFormat::UE8M0 => {
            let exponent = 120 + random.below(10) as u8;
            (vec![exponent], 2f32.powi(i32::from(exponent) - 127))
        }
        ScaleFormat::UE4M3 => {
            let bits = 1 + random.below(0x7e);
            (
                vec![bits as u8],
                reference::float(&DType::F8E4M3, bits) as f32,
            )
        }
    }
}

fn check(standin: &Standin, case: &Case, random: &mut Random, name: &str) {
    let [rows, columns] = case.shape;
    let bits = case.code.bits() as usize;
    let word_bytes = case.word.bytes() as usize;
    let per_word = 8 * word_bytes / bits;
    // Words lie row by row, with a gap of one word behind each row.
    let mut words_shape = case.shape;
    let packed = 1 - case.packed_dim;
    words_shape[packed] = words_shape[packed].div_ceil(per_word);
    let pitch = words_shape[1] + 1;
    let mut storage = vec![0xffu8; words_shape[0] * pitch * word_bytes];
    let blocks = [
        rows.div_ceil(case.block[0]),
        columns.div_ceil(case.block[1]),
    ];
    let scales: Vec<(Vec<u8>, f32)> = (0..blocks[0] * blocks[1])
        .map(|_| scale(case.scale_format, random))
        .collect();

    let mut values = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let mut code = random.bits() & ((1 << bits) - 1);
            if !code_value(case.code, code).is_finite() {
                code = 1;
            }
            let mut at = [row, column];
            let field = at[packed] % per_word;
            at[packed] /= per_word;
            let bit = (at[0] * pitch + at[1]) * word_bytes * 8 + field * bits;
            let mask = ((1u16 << bits) - 1) as u8;
            storage[bit / 8] &= !(mask << (bit % 8));
            storage[bit / 8] |= (code as u8) << (bit % 8);
            let block = (row / case.block[0]) * blocks[1] + column / case.block[1];
            let factor = case.global.unwrap_or(1.0) * scales[block].1;
            values.push(u64::from((code_value(case.code, code) * factor).to_bits()));
        }
    }

    let storage = standin.memory(&storage);
    let scale_bytes: Vec<u8> = scales.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    let scale_memory = standin.memory(&scale_bytes);
    let global = case
        .global
        .map(|global| standin.memory(&global.to_le_bytes()));
    let quantized = DeviceTensor {
        data: storage.address,
        elements: Elements::Quantized(Box::new(Quantization {
            code: case.code,
            word: case.word,
            packed_dim: case.packed_dim,
            block: case.block.iter().map(|&block| block as u32).collect(),
            scales: scale_memory.address,
            scale_format: case.scale_format,
            scale_strides: vec![blocks[1] as isize, 1],
            global: global.as_ref().map(|memory| memory.address),
        })),
        shape: case.shape.to_vec(),
        strides: vec![pitch as isize, 1],
    };
    let plain_memory = standin.memory(&reference::bytes(&DType::F32, &values));
    let plain = DeviceTensor {
        data: plain_memory.address,
        elements: Elements::Plain(DType::F32),
        shape: vec![values.len()],
        strides: vec![1],
    };
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    // SAFETY: the memory lives until the flush is over.
    unsafe { engine.summarise(stream.producer(), &[(0, quantized), (1, plain)]) }.unwrap();
    let mut done = engine.flush();
    done.sort_by_key(|(number, _)| *number);
    let found: Vec<_> = done
        .into_iter()
        .map(|(_, summary)| summary.unwrap())
        .collect();
    assert_agrees(&found[0], &reference::summary(&DType::F32, &values), name);
    assert_eq!(
        all_bits(&found[0]),
        all_bits(&found[1]),
        "{name}: not the bits of the f32 tensor"
    );
}

const CODES: [QuantCode; 6] = [
    QuantCode::Int(8),
    QuantCode::Int(4),
    QuantCode::Int(2),
    QuantCode::E4M3,
    QuantCode::E5M2,
    QuantCode::E2M1,
];
const SCALES: [ScaleFormat; 5] = [
    ScaleFormat::F32,
    ScaleFormat::F16,
    ScaleFormat::BF16,
    ScaleFormat::UE8M0,
    ScaleFormat::UE4M3,
];

#[test]
fn every_code_scale_and_packing_gives_the_bits_of_the_dequantised_tensor() {
    let Some(standin) = standin() else { return };
    let mut random = Random(31);
    for code in CODES {
        for scale_format in SCALES {
            for word in [QuantWord::U8, QuantWord::U32] {
                for (packed_dim, block) in [(0, [1, 16]), (1, [8, 4]), (0, [64, 96])] {
                    for global in [None, Some(0.375)] {
                        let case = Case {
                            code,
                            word,
                            packed_dim,
                            shape: [64, 96],
                            block,
                            scale_format,
                            global,
                        };
                        let name = format!(
                            "{code:?} in {word:?} along {packed_dim}, {scale_format:?} per {block:?}, {global:?}"
                        );
                        check(&standin, &case, &mut random, &name);
                    }
                }
            }
        }
    }
}

#[test]
fn sizes_that_fill_no_word_no_block_and_several_tiles_are_read_right() {
    let Some(standin) = standin() else { return };
    let mut random = Random(37);
    for shape in [[1, 1], [3, 5], [7, 33], [300, 201]] {
        for packed_dim in [0, 1] {
            let case = Case {
                code: QuantCode::Int(4),
                word: QuantWord::U32,
                packed_dim,
                shape,
                block: [2, 7],
                scale_format: ScaleFormat::F16,
                global: None,
            };
            check(
                &standin,
                &case,
                &mut random,
                &format!("{shape:?} along {packed_dim}"),
            );
        }
    }
}
