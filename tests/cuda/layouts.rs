//! Layouts, batches and orders of execution: where the elements are must not change what is said.

use burnscope::summary::{
    DType,
    cuda::{DeviceTensor, Elements},
};

use crate::{
    laid::{Laid, chunk, lay, place, random_elements, summarise, summarise_one},
    reference::{self, DTYPES, Random, all_bits, assert_agrees, encode},
    standin::standin,
};

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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
fn bits_depend_on_no_order_of_threads_or_blocks() {
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
