//! How close a device's summary must be to the host's of the same elements.

use burnscope::summary::Summary;

/// Counts, extremes and checksum equal, the rest within the tolerances of the kernel.
pub fn assert_agrees(ours: &Summary, expected: &Summary) {
    let close = |a: Option<f64>, b: Option<f64>, tolerance: f64| match (a, b) {
        (Some(a), Some(b)) => {
            (a - b).abs() <= tolerance * b.abs() + 1e-12 || a.is_nan() && b.is_nan() || a == b
        }
        (a, b) => a == b,
    };
    assert!(
        close(ours.mean, expected.mean, 1e-6),
        "{ours:?} {expected:?}"
    );
    assert!(close(ours.std, expected.std, 1e-5), "{ours:?} {expected:?}");
    assert!(close(Some(ours.l2), Some(expected.l2), 1e-6));
    let exact = |summary: &Summary| Summary {
        mean: None,
        std: None,
        l2: 0.0,
        ..summary.clone()
    };
    assert_eq!(exact(ours), exact(expected));
}
