//! Where PyTorch's rounding shows, the mean is added up in PyTorch's own order.

use burnscope::summary::{DType, TensorView, torch};

/// `multi_row_sum`, `row_sum` and `vectorized_inner_sum` of ATen, as they stand there.
#[expect(
    clippy::needless_range_loop,
    reason = "line by line as in the original"
)]
fn aten_sum(values: &[f32]) -> f32 {
    const LEVELS: usize = 4;
    let groups = values.len() / 32;
    let log = if groups <= 2 {
        1
    } else {
        (groups as f64).log2().ceil() as usize
    };
    let power = (log / LEVELS).max(4);
    let (step, mask) = (1 << power, (1 << power) - 1);
    let mut acc = [[0f32; 32]; LEVELS];
    let mut i = 0;
    while i + step <= groups {
        for _ in 0..step {
            for k in 0..32 {
                acc[0][k] += values[i * 32 + k];
            }
            i += 1;
        }
        for j in 1..LEVELS {
            for k in 0..32 {
                acc[j][k] += acc[j - 1][k];
                acc[j - 1][k] = 0.0;
            }
            if i & (mask << (j * power)) != 0 {
                break;
            }
        }
    }
    while i < groups {
        for k in 0..32 {
            acc[0][k] += values[i * 32 + k];
        }
        i += 1;
    }
    for j in 1..LEVELS {
        for k in 0..32 {
            acc[0][k] += acc[j][k];
        }
    }
    let mut rows = acc[0];
    let vectors = values.len() / 8;
    for vector in groups * 4..vectors {
        for k in 0..8 {
            rows[k] += values[vector * 8 + k];
        }
    }
    for row in 1..4 {
        for k in 0..8 {
            rows[k] += rows[row * 8 + k];
        }
    }
    let mut total = 0f32;
    for &value in &values[vectors * 8..] {
        total += value;
    }
    for &row in &rows[..8] {
        total += row;
    }
    total
}

#[test]
fn the_mean_is_added_up_in_the_order_of_aten() {
    let mut state = 11u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state
    };
    // Enough for the second size of ATen's steps, whose sums spread over several blocks.
    let values: Vec<f32> = (0..(1 << 24) + (1 << 19) + 77)
        .map(|_| ((next() >> 40) as f32 / (1 << 24) as f32).powi(3))
        .collect();
    let mut differ = 0;
    for count in [
        8,
        9,
        31,
        32,
        40,
        63,
        511,
        513,
        4096,
        8192,
        8200,
        131_072,
        131_073,
        1_000_003,
        2_097_152,
        values.len(),
    ] {
        let values = &values[..count];
        let view =
            TensorView::contiguous(DType::F32, &[count], bytemuck::cast_slice(values)).unwrap();
        let (summary, statistics) = torch::summarise(&view);
        let statistics = statistics.unwrap();
        let mean = aten_sum(values) / count as f32;
        assert_eq!(statistics.mean, f64::from(mean), "mean of {count}");
        differ += usize::from(statistics.mean != f64::from(summary.mean.unwrap() as f32));

        let distances = values
            .iter()
            .map(|&x| (f64::from(x) - f64::from(mean)).powi(2));
        let std = (distances.sum::<f64>() / (count as f64 - 1.0)).sqrt() as f32;
        assert_eq!(statistics.std, f64::from(std), "std of {count}");
    }
    assert!(differ > 3, "an exact mean would pass too: {differ}");
}
