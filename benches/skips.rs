//! How long a scan for skipped tests takes, without and with writing the result.
//!
//! Without further ado it scans the small tree of the tests. Point `BURNSCOPE_SKIPS_CORPUS` at a
//! transformers checkout (`scripts/fetch-transformers.sh` fetches one) for figures that matter;
//! `scripts/time_skips.py` times the whole command beside the original script.

use std::hint::black_box;
use std::path::PathBuf;

use burnscope::skips::{Format, ScanOptions, compat_scan, scan, write};
use criterion::{Criterion, criterion_group, criterion_main};

fn scans(criterion: &mut Criterion) {
    let root = std::env::var_os("BURNSCOPE_SKIPS_CORPUS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/skips/tree"),
        PathBuf::from,
    );
    let options = ScanOptions::new(root);
    let mut group = criterion.benchmark_group("skips");
    group.sample_size(20);
    group.bench_function("scan", |bencher| bencher.iter(|| scan(black_box(&options))));
    group.bench_function("scan_with_lints", |bencher| {
        let options = ScanOptions {
            lints: true,
            ..options.clone()
        };
        bencher.iter(|| scan(black_box(&options)));
    });
    group.bench_function("compat", |bencher| {
        bencher.iter(|| compat_scan(black_box(&options)))
    });
    let out = tempfile::tempdir().expect("a temporary folder");
    let result = scan(&options).expect("the checkout can be scanned");
    group.bench_function("write_json", |bencher| {
        bencher.iter(|| write(black_box(&result), Format::Json, None, out.path()));
    });
    group.finish();
}

criterion_group!(benches, scans);
criterion_main!(benches);
