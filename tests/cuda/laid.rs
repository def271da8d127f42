//! Tensors of a given layout in the stand-in's memory, and their summaries.

use burnscope::summary::{
    DType, Summary,
    cuda::{DeviceTensor, Elements, Engine},
};

use crate::{
    reference::{self, Random, encode},
    standin::{Memory, Standin},
};

/// Fills the gaps between elements: as floats large or NaN, so that reading one shows.
const GAP: u8 = 0x7f;

/// A tensor laid out in device memory.
pub struct Laid<'a> {
    pub tensor: DeviceTensor,
    _memory: Memory<'a>,
}

/// Puts elements, given in logical order, where shape, strides and offset say.
pub fn lay<'a>(
    standin: &'a Standin,
    dtype: &DType,
    elements: &[u64],
    shape: &[usize],
    strides: &[isize],
    offset: usize,
) -> Laid<'a> {
    let size = dtype.size().unwrap();
    let places: Vec<usize> = (0..elements.len())
        .map(|k| place(k, shape, strides, offset))
        .collect();
    let end = places.iter().max().map_or(0, |last| last + 1);
    let mut bytes = vec![GAP; end * size];
    for (&place, bits) in places.iter().zip(elements) {
        bytes[place * size..][..size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
    let memory = standin.memory(&bytes);
    Laid {
        tensor: DeviceTensor {
            data: memory.address + (place(0, shape, strides, offset) * size) as u64,
            elements: Elements::Plain(dtype.clone()),
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        },
        _memory: memory,
    }
}

pub fn place(k: usize, shape: &[usize], strides: &[isize], offset: usize) -> usize {
    let (mut rest, mut at) = (k, offset as isize);
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        at += (rest % size) as isize * stride;
        rest /= size;
    }
    at as usize
}

/// Summaries of tensors handed over in one call, in their order.
pub fn summarise(standin: &Standin, tensors: &[&DeviceTensor]) -> Vec<Summary> {
    let stream = standin.stream();
    let mut engine = Engine::new(0).unwrap();
    let numbered: Vec<(u64, DeviceTensor)> =
        (0..).zip(tensors.iter().map(|&t| t.clone())).collect();
    // SAFETY: the callers keep the memory until the flush below is over.
    unsafe { engine.summarise(stream.producer(), &numbered) }.unwrap();
    let mut done = engine.flush();
    done.sort_by_key(|(number, _)| *number);
    assert_eq!(done.len(), tensors.len());
    done.into_iter()
        .map(|(_, summary)| summary.unwrap())
        .collect()
}

pub fn summarise_one(standin: &Standin, tensor: &DeviceTensor) -> Summary {
    summarise(standin, &[tensor]).remove(0)
}

/// Elements that one block reads at once.
pub fn chunk(dtype: &DType) -> usize {
    16384 / dtype.size().unwrap()
}

pub fn random_elements(dtype: &DType, count: usize, random: &mut Random) -> Vec<u64> {
    (0..count)
        .map(|_| match dtype {
            DType::F8E4M3 | DType::F8E5M2 => match random.bits() & 0xff {
                special if !reference::float(dtype, special).is_finite() => 0x11,
                bits => bits,
            },
            DType::Bool => random.below(2),
            _ if dtype.is_float() => encode(dtype, random.normal()),
            _ => random.bits() & (u64::MAX >> (64 - 8 * dtype.size().unwrap())),
        })
        .collect()
}
