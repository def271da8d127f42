//! How long a scan for skipped tests takes, without and with writing the result.
//!
//! It scans transformers where `scripts/fetch-transformers.sh` has fetched it, else the small tree of
//! the tests, which gives no figures that matter. `scripts/time-skips.py` times the whole command beside
//! the original script.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use burnscope::skips::{Format, ScanOptions, compat_scan, scan, write};
use criterion::{Criterion, criterion_group, criterion_main};

/// The checkout to measure on.
fn checkout() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let transformers = tests.join("downloads/transformers");
    match transformers.is_dir() {
        true => transformers,
        false => tests.join("skips/tree"),
    }
}

fn scans(criterion: &mut Criterion) {
    let options = ScanOptions::new(checkout());
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
