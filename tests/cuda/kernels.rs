//! Every kernel against float64 and the host, over sizes and values made to hurt.

use burnscope::summary::{
    self, DType, Number, TensorView,
    cuda::{DeviceTensor, Elements},
};

use crate::{
    laid::{chunk, lay, random_elements, summarise, summarise_one},
    reference::{self, DTYPES, Random, assert_agrees, encode},
    standin::standin,
};

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

#[test]
fn every_dtype_agrees_with_float64_around_every_edge() {
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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
    let Some(standin) = standin() else { return };
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

#[test]
fn the_device_says_what_the_host_says() {
    let Some(standin) = standin() else { return };
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
fn truth_values_in_words_are_summarised_as_in_bytes() {
    let Some(standin) = standin() else { return };
    let elements: Vec<u64> = (0..40_000).map(|k| u64::from(k % 3 == 0)).collect();
    let bytes = lay(&standin, &DType::Bool, &elements, &[40_000], &[1], 0);
    let mut words = lay(&standin, &DType::U32, &elements, &[40_000], &[1], 0);
    words.tensor.elements = Elements::WideBool;
    let found = summarise(&standin, &[&bytes.tensor, &words.tensor]);
    let wanted = reference::summary(&DType::Bool, &elements);
    assert_agrees(&found[0], &wanted, "bytes");
    assert_agrees(&found[1], &wanted, "words");
}

#[test]
fn a_scalar_and_an_empty_tensor_have_summaries() {
    let Some(standin) = standin() else { return };
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
