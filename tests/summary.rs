//! A summary agrees with a plain computation in double precision, whatever the type, size and layout.

mod plain;

use burnscope::summary::{DType, Number, TensorView, summarise, torch};
use plain::{assert_same, check, elements, ordinary, random};
use proptest::prelude::*;

/// Around lanes, strips, tiles and the blocks that threads share out.
const SIZES: [usize; 24] = [
    0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097, 8195,
    131_073, 300_001,
];

const DTYPES: [DType; 15] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

#[test]
fn every_dtype_and_size_agrees_with_double_precision() {
    for dtype in DTYPES {
        for count in SIZES {
            let bytes = ordinary(&dtype, count, count as u64 + 1);
            let view = TensorView::contiguous(dtype.clone(), &[count], &bytes).unwrap();
            check(&view, &format!("{count} x {dtype}"));
        }
    }
}

#[test]
fn every_bit_pattern_of_the_narrow_types_is_read() {
    for dtype in [DType::F8E4M3, DType::F8E5M2, DType::I8, DType::U8] {
        for word in 0..=255u8 {
            let view =
                TensorView::contiguous(dtype.clone(), &[1], std::slice::from_ref(&word)).unwrap();
            check(&view, &format!("{dtype} {word:#x}"));
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::I16, DType::U16] {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        for words in bytes.chunks(2 * 331) {
            let view = TensorView::contiguous(dtype.clone(), &[words.len() / 2], words).unwrap();
            check(
                &view,
                &format!(
                    "{dtype} from {:#x}",
                    u16::from_ne_bytes([words[0], words[1]])
                ),
            );
        }
    }
}

#[test]
fn every_layout_agrees_with_its_logical_order() {
    for dtype in DTYPES {
        let bytes = ordinary(&dtype, 20_000, 7);
        for (name, shape, strides, offset) in [
            ("transpose", &[130, 150][..], &[1, 130][..], 0),
            ("permutation", &[7, 50, 40], &[40, 280, 1], 3),
            ("rotation", &[20, 30, 33], &[1, 660, 20], 5),
            ("flip", &[19_999], &[-1], 19_999),
            ("inner flip", &[100, 100], &[100, -1], 99),
            ("every third", &[6_000], &[3], 2),
            ("rows of a wider tensor", &[90, 150], &[200, 1], 11),
            ("broadcast rows", &[50, 300], &[0, 1], 17),
            ("broadcast columns", &[50, 300], &[1, 0], 17),
            ("one element everywhere", &[3, 5000], &[0, 0], 4),
            ("unit dimensions", &[1, 100, 1, 60], &[9, 60, -5, 1], 0),
            ("empty", &[4, 0, 3], &[3, 3, 1], 0),
            ("scalar", &[], &[], 123),
        ] {
            let view = TensorView::strided(dtype.clone(), shape, strides, offset, &bytes).unwrap();
            let strided = check(&view, &format!("{name} of {dtype}"));
            // The same elements in a row give the same bits.
            let copy = elements(&view).concat();
            let copy = TensorView::contiguous(dtype.clone(), shape, &copy).unwrap();
            assert_same(&strided, &summarise(&copy), name);
        }
        // Bytes that begin at any address.
        for begin in 1..=3 {
            let mut moved = vec![0u8; begin];
            moved.extend_from_slice(&bytes);
            let view = TensorView::contiguous(dtype.clone(), &[20_000], &moved[begin..]).unwrap();
            check(&view, &format!("{dtype} from byte {begin}"));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let pools = [1, 2, 3].map(|threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    });
    for dtype in DTYPES {
        let bytes = ordinary(&dtype, 700_001, 3);
        let view = TensorView::contiguous(dtype.clone(), &[700_001], &bytes).unwrap();
        let first = pools[0].install(|| torch::summarise(&view));
        for pool in &pools {
            for _ in 0..3 {
                let again = pool.install(|| torch::summarise(&view));
                assert_same(&first.0, &again.0, &dtype.to_string());
                assert_eq!(first.1, again.1, "{dtype}");
                assert_same(
                    &first.0,
                    &pool.install(|| summarise(&view)),
                    &dtype.to_string(),
                );
            }
        }
    }
}

#[test]
fn hard_values_keep_their_digits() {
    let mut next = random(5);
    let mut noise = move || (next() >> 40) as f32 / (1 << 24) as f32 - 0.5;
    let n = 140_000;
    let cases: Vec<(&str, Vec<f32>)> = vec![
        (
            "a mean of 1e4 spreads",
            (0..n).map(|_| 1e4 + noise()).collect(),
        ),
        (
            "a mean of 1e7 spreads",
            (0..n).map(|_| 1e7 + 4.0 * noise()).collect(),
        ),
        ("a constant", vec![0.1; n]),
        (
            "a constant but for one",
            (0..n)
                .map(|k| if k == 99_999 { 0.1000001 } else { 0.1 })
                .collect(),
        ),
        ("zeros", vec![0.0; n]),
        ("negative zeros", vec![-0.0; n]),
        (
            "both zeros",
            (0..n)
                .map(|k| if k == 70_000 { -0.0 } else { 0.0 })
                .collect(),
        ),
        (
            "both zeros and more",
            (0..n).map(|k| [1.0, -0.0, 0.0][k % 3]).collect(),
        ),
        (
            "an outlier first",
            (0..n)
                .map(|k| if k == 0 { 1e30 } else { noise() })
                .collect(),
        ),
        (
            "an outlier last",
            (0..n)
                .map(|k| if k == n - 1 { -1e30 } else { noise() })
                .collect(),
        ),
        (
            "an outlier within",
            (0..n)
                .map(|k| if k == 77_777 { 3e38 } else { noise() })
                .collect(),
        ),
        (
            "a mask",
            (0..n)
                .map(|k| if k % 3 == 0 { f32::MIN } else { 0.0 })
                .collect(),
        ),
        (
            "both ends of the range",
            (0..n).map(|k| [f32::MAX, f32::MIN][k % 2]).collect(),
        ),
        (
            "subnormals",
            (0..n).map(|k| f32::from_bits(k as u32)).collect(),
        ),
        ("a ramp", (0..n).map(|k| k as f32).collect()),
        (
            "blocks with their own mean",
            (0..n).map(|k| (k / 4096) as f32 * 1e5 + noise()).collect(),
        ),
        (
            "growing magnitudes",
            (0..n)
                .map(|k| 2f32.powi((k % 250) as i32 - 125) * noise())
                .collect(),
        ),
    ];
    for (name, values) in &cases {
        let view = TensorView::contiguous(DType::F32, &[n], bytemuck::cast_slice(values)).unwrap();
        check(&view, name);
    }
}

#[test]
fn extreme_doubles_do_not_overflow() {
    for exponent in [
        -1074, -1022, -700, -500, -400, -399, 399, 400, 500, 700, 1023,
    ] {
        let values: Vec<f64> = (0..5000)
            .map(|k| {
                2f64.powi(exponent.max(-1000))
                    * 2f64.powi(exponent - exponent.max(-1000))
                    * f64::from(k % 2 * 2 - 1)
            })
            .collect();
        let view =
            TensorView::contiguous(DType::F64, &[5000], bytemuck::cast_slice(&values)).unwrap();
        check(&view, &format!("plus and minus 2^{exponent}"));
    }
    let values = [1e300, -3e300, 7e299, 1e-300, 0.0];
    let view = TensorView::contiguous(DType::F64, &[5], bytemuck::cast_slice(&values)).unwrap();
    check(&view, "large doubles");
}

#[test]
fn integers_at_the_ends_of_their_range_are_exact() {
    let values = [i64::MIN, i64::MAX, -1, 0, 1, i64::MAX - 1];
    let view = TensorView::contiguous(DType::I64, &[6], bytemuck::cast_slice(&values)).unwrap();
    let summary = check(&view, "i64");
    assert_eq!(
        (summary.min, summary.max),
        (Some(Number::Int(i64::MIN)), Some(Number::Int(i64::MAX)))
    );

    let values = [u64::MAX, u64::MAX - 1, u64::MAX - 5];
    let view = TensorView::contiguous(DType::U64, &[3], bytemuck::cast_slice(&values)).unwrap();
    let summary = check(&view, "u64");
    assert_eq!(
        (summary.min, summary.max),
        (
            Some(Number::UInt(u64::MAX - 5)),
            Some(Number::UInt(u64::MAX))
        )
    );

    // Nanoseconds since 1970, a microsecond apart over several blocks: their spread is far below
    // what an f64 near their mean can tell apart.
    let values: Vec<i64> = (0..200_000)
        .map(|k| 1_700_000_000_000_000_000 + k % 7)
        .collect();
    let view =
        TensorView::contiguous(DType::I64, &[200_000], bytemuck::cast_slice(&values)).unwrap();
    let std = check(&view, "time stamps").std.unwrap();
    assert!((std - 2.0).abs() < 1e-4, "{std}");

    let values: Vec<i64> = (0..200_000)
        .map(|k| 1_700_000_000_000_000_000 + k / 1000)
        .collect();
    let view =
        TensorView::contiguous(DType::I64, &[200_000], bytemuck::cast_slice(&values)).unwrap();
    check(&view, "time stamps that grow from tile to tile");

    for dtype in [
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
    ] {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            let bytes = vec![fill; 5000 * dtype.size().unwrap()];
            let view = TensorView::contiguous(dtype.clone(), &[5000], &bytes).unwrap();
            check(&view, &format!("{dtype} of bytes {fill:#x}"));
        }
    }
}

#[test]
fn nan_and_infinity_are_counted_and_found_wherever_they_are() {
    let n = 140_000;
    for place in [
        0,
        15,
        16,
        255,
        256,
        4095,
        4096,
        100_000,
        131_071,
        131_072,
        n - 1,
    ] {
        for (name, value) in [
            ("NaN", f32::NAN),
            ("Inf", f32::INFINITY),
            ("-Inf", f32::NEG_INFINITY),
        ] {
            let mut values: Vec<f32> = (0..n).map(|k| k as f32).collect();
            values[place] = value;
            let bytes = bytemuck::cast_slice(&values);
            let view = TensorView::contiguous(DType::F32, &[n], bytes).unwrap();
            let summary = check(&view, &format!("{name} at {place}"));
            assert_eq!(summary.first_non_finite, Some(place as u64));
            if place + 1 < n {
                values[n - 1] = -value;
                let bytes = bytemuck::cast_slice(&values);
                let view = TensorView::contiguous(DType::F32, &[n], bytes).unwrap();
                check(&view, &format!("{name} at {place} and its negative"));
            }
        }
    }
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::F8E5M2] {
        let bytes = vec![0xff; 4100 * dtype.size().unwrap()];
        let view = TensorView::contiguous(dtype.clone(), &[4100], &bytes).unwrap();
        assert_eq!(check(&view, &format!("{dtype} of NaN")).nan, 4100);
    }
}

#[test]
fn swapped_elements_change_the_checksum() {
    let mut values: Vec<f32> = (0..5000).map(|k| k as f32).collect();
    let before = summarise(
        &TensorView::contiguous(DType::F32, &[5000], bytemuck::cast_slice(&values)).unwrap(),
    );
    values.swap(40, 4500);
    let after = summarise(
        &TensorView::contiguous(DType::F32, &[5000], bytemuck::cast_slice(&values)).unwrap(),
    );
    assert_eq!(before.zeros, after.zeros);
    assert_ne!(before.checksum, after.checksum);
}

proptest! {
    #[test]
    fn any_floats_agree_with_double_precision(words in proptest::collection::vec(any::<u32>(), 1..600)) {
        let bytes = bytemuck::cast_slice(&words);
        let view = TensorView::contiguous(DType::F32, &[words.len()], bytes).unwrap();
        check(&view, "any f32");
        let view = TensorView::contiguous(DType::BF16, &[words.len() * 2], bytes).unwrap();
        check(&view, "any bf16");
    }

    #[test]
    fn any_view_agrees_with_its_logical_order(
        dims in proptest::collection::vec((0usize..9, -7isize..40), 0..5),
        seed in any::<u64>(),
    ) {
        let shape: Vec<usize> = dims.iter().map(|d| d.0).collect();
        let strides: Vec<isize> = dims.iter().map(|d| d.1).collect();
        let bytes = ordinary(&DType::I16, 2000, seed);
        if let Ok(view) = TensorView::strided(DType::I16, &shape, &strides, 300, &bytes) {
            check(&view, "any view");
        }
    }
}
