//! Every kernel against float64, over sizes, layouts, alignments and values made to hurt.

use burnscope::summary::{
    self, DType, Number, Summary, TensorView,
    cuda::{DeviceTensor, Elements, Engine},
};

use crate::{
    reference::{self, DTYPES, Random, all_bits, assert_agrees, encode},
    standin::{Memory, Standin, standin},
};

/// Fills the gaps between elements: as floats large or NaN, so that reading one shows.
const GAP: u8 = 0x7f;

/// A tensor laid out in device memory.
struct Laid<'a> {
    tensor: DeviceTensor,
    _memory: Memory<'a>,
}

/// Puts elements, given in logical order, where shape, strides and offset say.
fn lay<'a>(
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

fn place(k: usize, shape: &[usize], strides: &[isize], offset: usize) -> usize {
    let (mut rest, mut at) = (k, offset as isize);
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        at += (rest % size) as isize * stride;
        rest /= size;
    }
    at as usize
}

/// Summaries of tensors handed over in one call, in their order.
fn summarise(standin: &Standin, tensors: &[&DeviceTensor]) -> Vec<Summary> {
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

fn summarise_one(standin: &Standin, tensor: &DeviceTensor) -> Summary {
    summarise(standin, &[tensor]).remove(0)
}

/// Elements that one block reads at once.
fn chunk(dtype: &DType) -> usize {
    16384 / dtype.size().unwrap()
}

/// Sizes around the edges of vectors, warps, chunks, tiles and merges.
fn sizes(dtype: &DType) -> Vec<usize> {
    let (vector, chunk) = (16 / dtype.size().unwrap(), chunk(dtype));
    let mut sizes = vec![1, 2, 3, vector - 1, vector, vector + 1, 255, 256, 257];
    for edge in [
        256 * vector,
        chunk,
        2 * chunk,
        4 * chunk,
        5 * chunk,
        12 * chunk,
    ] {
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn random_elements(dtype: &DType, count: usize, random: &mut Random) -> Vec<u64> {
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

#[test]
fn every_dtype_agrees_with_float64_around_every_edge() {
    let standin = standin();
    let mut random = Random(0x9e37_79b9);
    for dtype in &DTYPES {
        for count in sizes(dtype) {
            let elements = random_elements(dtype, count, &mut random);
            let wanted = reference::summary(dtype, &elements);
            let laid = lay(&standin, dtype, &elements, &[count], &[1], 0);
            let found = summarise_one(&standin, &laid.tensor);
            assert_agrees(&found, &wanted, &format!("{count} of {dtype}"));
        }
    }
}

/// Values that break naive sums, by name; the argument is the logical index.
type Values = fn(&mut Random, usize) -> f64;
const ADVERSARIAL: [(&str, Values); 17] = [
    ("far from zero", |random, _| 1e4 + random.normal()),
    ("very far from zero", |random, _| 1e6 + random.normal()),
    ("constant", |_, _| 3.25),
    ("zeros", |_, _| 0.0),
    ("tiny", |random, _| 1e-25 * random.normal()),
    ("huge", |random, _| 1e18 * random.normal()),
    (
        "first one huge",
        |random, k| if k == 0 { 1e6 } else { random.normal() },
    ),
    ("mostly zero", |random, _| {
        if random.unit() < 0.9 {
            0.0
        } else {
            random.normal()
        }
    }),
    (
        "alternating",
        |_, k| if k % 2 == 0 { 60000.0 } else { -60000.0 },
    ),
    ("rising", |_, k| k as f64 / 64.0),
    (
        "one NaN",
        |random, k| if k == 17 { f64::NAN } else { random.normal() },
    ),
    (
        "first NaN",
        |random, k| if k == 0 { f64::NAN } else { random.normal() },
    ),
    ("all NaN", |_, _| f64::NAN),
    ("some Inf", |random, k| {
        if k % 1000 == 5 {
            f64::INFINITY
        } else {
            random.normal()
        }
    }),
    ("some -Inf", |random, k| {
        if k % 1000 == 5 {
            f64::NEG_INFINITY
        } else {
            random.normal()
        }
    }),
    ("both Inf", |random, k| match k % 1000 {
        5 => f64::INFINITY,
        6 => f64::NEG_INFINITY,
        _ => random.normal(),
    }),
    ("all Inf", |_, _| f64::INFINITY),
];

#[test]
fn adversarial_values_agree_with_float64() {
    let standin = standin();
    let mut random = Random(7);
    for dtype in &DTYPES {
        for (name, values) in ADVERSARIAL {
            // e4m3 has no infinity to hold.
            if *dtype == DType::F8E4M3 && name.contains("Inf") {
                continue;
            }
            for count in [1, 18, 1000, chunk(dtype) + 77, 70_001] {
                let elements: Vec<u64> = (0..count)
                    .map(|k| encode(dtype, values(&mut random, k)))
                    .collect();
                let wanted = reference::summary(dtype, &elements);
                let laid = lay(&standin, dtype, &elements, &[count], &[1], 0);
                let found = summarise_one(&standin, &laid.tensor);
                assert_agrees(&found, &wanted, &format!("{count} of {dtype}, {name}"));
            }
        }
    }
}

#[test]
fn integers_at_the_ends_of_their_range_stay_exact() {
    let standin = standin();
    for dtype in DTYPES
        .iter()
        .filter(|dtype| !dtype.is_float() && **dtype != DType::Bool)
    {
        let bits = 8 * dtype.size().unwrap();
        let all = u64::MAX >> (64 - bits);
        // Largest and smallest of either signedness, and their neighbours.
        let ends = [0, 1, all, all - 1, all >> 1, (all >> 1) + 1];
        let elements: Vec<u64> = (0..40_000).map(|k| ends[k % ends.len()]).collect();
        let wanted = reference::summary(dtype, &elements);
        let laid = lay(&standin, dtype, &elements, &[40_000], &[1], 0);
        assert_agrees(
            &summarise_one(&standin, &laid.tensor),
            &wanted,
            &dtype.to_string(),
        );
    }
}

#[test]
fn time_stamps_keep_their_spread() {
    let standin = standin();
    let mut random = Random(3);
    for (dtype, sign) in [(DType::I64, 1i64), (DType::I64, -1), (DType::U64, 1)] {
        // Nanoseconds: doubles near them are 256 apart.
        let elements: Vec<u64> = (0..100_000)
            .map(|_| (sign * (1_700_000_000_000_000_000 + random.below(1000) as i64)) as u64)
            .collect();
        let wanted = reference::summary(&dtype, &elements);
        let laid = lay(&standin, &dtype, &elements, &[100_000], &[1], 0);
        let found = summarise_one(&standin, &laid.tensor);
        assert_agrees(&found, &wanted, &format!("{dtype} times {sign}"));
    }
}

#[test]
fn of_zeros_with_different_signs_the_negative_is_the_smallest() {
    let standin = standin();
    for dtype in DTYPES.iter().filter(|dtype| dtype.is_float()) {
        let negative = 1u64 << (8 * dtype.size().unwrap() - 1);
        for count in [2, 3 * chunk(dtype)] {
            let elements: Vec<u64> = (0..count as u64).map(|k| k % 2 * negative).collect();
            let laid = lay(&standin, dtype, &elements, &[count], &[1], 0);
            let found = summarise_one(&standin, &laid.tensor);
            let (Some(Number::Float(min)), Some(Number::Float(max))) = (found.min, found.max)
            else {
                panic!("{dtype}: {found:?}");
            };
            assert_eq!(
                (min, min.is_sign_negative()),
                (0.0, true),
                "{count} of {dtype}"
            );
            assert_eq!(
                (max, max.is_sign_negative()),
                (0.0, false),
                "{count} of {dtype}"
            );
            assert_eq!(found.zeros, count as u64, "{count} of {dtype}");
        }
    }
}

#[test]
fn every_bit_pattern_of_the_small_types_is_read_right() {
    let standin = standin();
    for dtype in DTYPES.iter().filter(|dtype| dtype.size().unwrap() <= 2) {
        let patterns = 1usize << (8 * dtype.size().unwrap());
        for bits in (0..patterns).step_by(if patterns > 256 { 331 } else { 1 }) {
            if *dtype == DType::Bool && bits > 1 {
                continue;
            }
            // Once in the packed path and once by itself.
            for count in [chunk(dtype), 1] {
                let elements = vec![bits as u64; count];
                let wanted = reference::summary(dtype, &elements);
                let laid = lay(&standin, dtype, &elements, &[count], &[1], 0);
                let found = summarise_one(&standin, &laid.tensor);
                assert_agrees(
                    &found,
                    &wanted,
                    &format!("{count} times {bits:#x} as {dtype}"),
                );
            }
        }
    }
}

/// Layouts of 6 x 40 x 48 x 3 elements whose visited order is the logical one.
const IN_ORDER: [(&str, [isize; 4], usize); 5] = [
    ("off by one element", [5760, 144, 3, 1], 1),
    ("padded rows", [40 * 160, 160, 3, 1], 0),
    ("rows padded to odd lengths", [40 * 151, 151, 3, 1], 0),
    ("padded planes", [6000, 144, 3, 1], 0),
    ("every second element", [11520, 288, 6, 2], 0),
];

/// Layouts whose visited order is another one.
const REORDERED: [(&str, [isize; 4], usize); 5] = [
    ("transposed", [1, 6, 240, 240 * 48], 0),
    ("middle dimensions swapped", [5760, 3, 120, 1], 0),
    ("reversed", [-5760, -144, -3, -1], 6 * 5760 - 1),
    ("channels first", [5760, 48, 1, 1920], 0),
    ("repeated", [0, 144, 3, 1], 0),
];
const SHAPE: [usize; 4] = [6, 40, 48, 3];

fn elements_for(
    strides: &[isize; 4],
    offset: usize,
    dtype: &DType,
    random: &mut Random,
) -> Vec<u64> {
    let count = SHAPE.iter().product();
    let values = random_elements(dtype, 6 * 40 * 48 * 40, random);
    // Elements that share memory are equal.
    (0..count)
        .map(|k| values[place(k, &SHAPE, strides, offset) % values.len()])
        .collect()
}

#[test]
fn a_layout_in_logical_order_gives_the_bits_of_a_contiguous_copy() {
    let standin = standin();
    let mut random = Random(11);
    for dtype in &DTYPES {
        for (name, strides, offset) in IN_ORDER {
            let mut elements = elements_for(&strides, offset, dtype, &mut random);
            if dtype.is_float() {
                elements[12_345] = encode(dtype, f64::NAN);
            }
            let laid = lay(&standin, dtype, &elements, &SHAPE, &strides, offset);
            let copy = lay(&standin, dtype, &elements, &[elements.len()], &[1], 0);
            let found = summarise(&standin, &[&laid.tensor, &copy.tensor]);
            assert_agrees(
                &found[0],
                &reference::summary(dtype, &elements),
                &format!("{name} {dtype}"),
            );
            assert_eq!(all_bits(&found[0]), all_bits(&found[1]), "{name} {dtype}");
        }
    }
}

#[test]
fn a_reordered_layout_agrees_with_float64() {
    let standin = standin();
    let mut random = Random(13);
    for dtype in &DTYPES {
        for (name, strides, offset) in REORDERED {
            let mut elements = elements_for(&strides, offset, dtype, &mut random);
            if dtype.is_float() && name != "repeated" {
                // The first in logical order is not the first in memory.
                elements[12_345] = encode(dtype, f64::NAN);
                elements[23_456] = encode(dtype, f64::NAN);
            }
            let laid = lay(&standin, dtype, &elements, &SHAPE, &strides, offset);
            let found = summarise_one(&standin, &laid.tensor);
            assert_agrees(
                &found,
                &reference::summary(dtype, &elements),
                &format!("{name} {dtype}"),
            );
        }
    }
}

#[test]
fn rank_eight_without_two_joinable_dimensions_is_walked() {
    let standin = standin();
    let mut random = Random(17);
    for dtype in [DType::F32, DType::BF16, DType::I8, DType::F64] {
        for inner in [1, 2] {
            // Each stride leaves a gap to the dimension inside it.
            let shape = [2, 3, 2, 3, 2, 3, 2, 16];
            let mut strides = [0isize; 8];
            strides[7] = inner;
            for d in (0..7).rev() {
                strides[d] = strides[d + 1] * shape[d + 1] as isize + 16;
            }
            let elements = random_elements(&dtype, shape.iter().product(), &mut random);
            let laid = lay(&standin, &dtype, &elements, &shape, &strides, 0);
            let found = summarise_one(&standin, &laid.tensor);
            let wanted = reference::summary(&dtype, &elements);
            assert_agrees(&found, &wanted, &format!("{dtype}, inner stride {inner}"));
        }
    }
}

#[test]
fn random_layouts_agree_with_float64() {
    let standin = standin();
    let mut random = Random(19);
    for round in 0..300 {
        let dtype = &DTYPES[random.below(15) as usize];
        let rank = random.below(6) as usize;
        let shape: Vec<usize> = (0..rank).map(|_| 1 + random.below(9) as usize).collect();
        // A random order of the dimensions in memory, with random gaps.
        let mut order: Vec<usize> = (0..rank).collect();
        for i in (1..rank).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut strides = vec![0isize; rank];
        let mut step = 1 + random.below(2) as isize;
        for &d in &order {
            strides[d] = step;
            step = step * shape[d] as isize + random.below(3) as isize * random.below(9) as isize;
        }
        let elements = random_elements(dtype, shape.iter().product(), &mut random);
        let offset = random.below(5) as usize;
        let laid = lay(&standin, dtype, &elements, &shape, &strides, offset);
        let found = summarise_one(&standin, &laid.tensor);
        let case = format!("round {round}: {dtype} {shape:?} {strides:?} {offset}");
        assert_agrees(&found, &reference::summary(dtype, &elements), &case);
    }
}

#[test]
fn the_device_says_what_the_host_says() {
    let standin = standin();
    let mut random = Random(21);
    for dtype in &DTYPES {
        let mut elements = random_elements(dtype, 40_000, &mut random);
        for special in [None, Some(f64::NEG_INFINITY), Some(f64::NAN)] {
            match special {
                Some(_) if !dtype.is_float() => continue,
                Some(value) if value.is_infinite() && *dtype == DType::F8E4M3 => continue,
                Some(value) => elements[31_000] = encode(dtype, value),
                None => {}
            }
            let bytes = reference::bytes(dtype, &elements);
            for (shape, strides) in [
                ([400, 100], [100, 1]),
                ([100, 400], [1, 100]),
                ([400, 96], [100, 1]),
            ] {
                let view = TensorView::strided(dtype.clone(), &shape, &strides, 0, &bytes).unwrap();
                let memory = standin.memory(&bytes);
                let tensor = DeviceTensor {
                    data: memory.address,
                    elements: Elements::Plain(dtype.clone()),
                    shape: shape.to_vec(),
                    strides: strides.to_vec(),
                };
                let found = summarise_one(&standin, &tensor);
                let case = format!("{dtype} {shape:?} {strides:?}, {special:?}");
                assert_agrees(&found, &summary::summarise(&view), &case);
            }
        }
    }
}

#[test]
fn bits_depend_on_no_order_of_threads_or_blocks() {
    let standin = standin();
    let mut random = Random(23);
    for dtype in &DTYPES {
        let count = 11 * chunk(dtype) + 1001;
        let mut elements = random_elements(dtype, count, &mut random);
        if dtype.is_float() {
            elements[70] = encode(dtype, f64::NAN);
        }
        let dense = lay(&standin, dtype, &elements, &[count], &[1], 0);
        let strided = lay(&standin, dtype, &elements, &[count], &[1], 1);
        let tensors = [&dense.tensor, &strided.tensor];
        let mut first = None;
        for (seed, workers) in [(0, 1), (0, 2), (1, 1), (5, 2), (77, 1), (1001, 2)] {
            standin.order(seed, workers);
            let bits: Vec<_> = summarise(&standin, &tensors).iter().map(all_bits).collect();
            match &first {
                None => first = Some(bits),
                Some(first) => assert_eq!(&bits, first, "{dtype}, seed {seed}, {workers} workers"),
            }
        }
    }
}

#[test]
fn a_batch_gives_the_bits_of_single_launches() {
    let standin = standin();
    let mut random = Random(29);
    // More than one launch of either kind, sizes from one element to several tiles, mixed dtypes.
    let laid: Vec<Laid> = (0..190u64)
        .map(|i| {
            let dtype = &DTYPES[(i % 3) as usize * 4 + 1];
            let count = 1 + (i * i * 97 % 70_000) as usize / if i % 7 == 0 { 1 } else { 40 };
            let elements = random_elements(dtype, count, &mut random);
            lay(&standin, dtype, &elements, &[count], &[1], (i % 2) as usize)
        })
        .collect();
    let tensors: Vec<&DeviceTensor> = laid.iter().map(|laid| &laid.tensor).collect();
    let launches = standin.calls("cuLaunchKernel");
    let batched = summarise(&standin, &tensors);
    assert!(
        standin.calls("cuLaunchKernel") - launches < 30,
        "tensors share launches"
    );
    for (i, (tensor, batched)) in tensors.iter().zip(&batched).enumerate() {
        let single = summarise_one(&standin, tensor);
        assert_eq!(all_bits(&single), all_bits(batched), "tensor {i}");
    }
}

#[test]
fn addresses_beyond_four_gigabytes_of_a_tensor_are_reached() {
    let standin = standin();
    let stride = 3usize << 30;
    let shape = [2usize, 40];
    let memory = standin.allocate(stride + 64);
    let stream = standin.stream();
    let elements: Vec<u64> = (1..=80).collect();
    let bytes = reference::bytes(&DType::U16, &elements);
    stream.write(memory.address, &bytes[..80]);
    stream.write(memory.address + stride as u64 - 32, &bytes[80..]);
    stream.synchronize();
    let tensor = DeviceTensor {
        data: memory.address,
        elements: Elements::Plain(DType::U16),
        shape: shape.to_vec(),
        strides: vec![(stride as isize - 32) / 2, 1],
    };
    let found = summarise_one(&standin, &tensor);
    assert_agrees(
        &found,
        &reference::summary(&DType::U16, &elements),
        "a far row",
    );
}

/// Takes a minute: four thousand million elements, one byte each, on the CPU.
#[test]
#[ignore = "takes a minute"]
fn more_elements_than_thirty_two_bits_count_are_summarised() {
    let standin = standin();
    let memory = standin.memory(&[3; 64]);
    let repeats = (1usize << 26) + 1;
    let tensor = DeviceTensor {
        data: memory.address,
        elements: Elements::Plain(DType::U8),
        shape: vec![repeats, 64],
        strides: vec![0, 1],
    };
    let found = summarise_one(&standin, &tensor);
    let count = repeats as u64 * 64;
    assert_eq!(
        (found.count, found.mean, found.std),
        (count, Some(3.0), Some(0.0))
    );
    let ranks = (u128::from(count) * u128::from(count + 1) / 2) as u64;
    assert_eq!(found.checksum, ranks.wrapping_mul(3));
}

#[test]
fn truth_values_in_words_are_summarised_as_in_bytes() {
    let standin = standin();
    let elements: Vec<u64> = (0..5000).map(|k| u64::from(k % 3 == 0)).collect();
    let bytes = lay(&standin, &DType::Bool, &elements, &[5000], &[1], 0);
    let mut words = lay(&standin, &DType::U32, &elements, &[5000], &[1], 0);
    words.tensor.elements = Elements::WideBool;
    let found = summarise(&standin, &[&bytes.tensor, &words.tensor]);
    let wanted = reference::summary(&DType::Bool, &elements);
    assert_agrees(&found[0], &wanted, "bytes");
    assert_agrees(&found[1], &wanted, "words");
}

#[test]
fn a_scalar_and_an_empty_tensor_have_summaries() {
    let standin = standin();
    let laid = lay(
        &standin,
        &DType::F32,
        &[encode(&DType::F32, 2.5)],
        &[],
        &[],
        0,
    );
    let odd = lay(
        &standin,
        &DType::F16,
        &[encode(&DType::F16, 2.5)],
        &[],
        &[],
        1,
    );
    let mut empty = laid.tensor.clone();
    (empty.shape, empty.strides) = (vec![3, 0], vec![0, 1]);
    let found = summarise(&standin, &[&laid.tensor, &empty, &odd.tensor]);
    for scalar in [&found[0], &found[2]] {
        assert_eq!((scalar.count, scalar.mean), (1, Some(2.5)));
        assert!(scalar.std.unwrap().is_nan());
    }
    assert_eq!((found[1].count, found[1].mean, found[1].l2), (0, None, 0.0));
}
