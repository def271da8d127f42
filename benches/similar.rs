//! What reading, loading and asking cost, on transformers where it was fetched, else on the small grove.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use burnscope::similar::analysis::{Options, QueryFile, analyse};
use burnscope::similar::index::Index;
use burnscope::similar::source::Layout;
use burnscope::similar::store;
use criterion::{Criterion, criterion_group, criterion_main};

/// The repository to measure on and a model of it.
fn repository() -> (PathBuf, &'static str) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let transformers = tests.join("downloads/transformers");
    match transformers.is_dir() {
        true => (transformers, "qwen3"),
        false => (tests.join("similar/tree"), "yew"),
    }
}

fn similar(criterion: &mut Criterion) {
    let (root, model) = repository();
    let mut group = criterion.benchmark_group("similar");
    group.sample_size(10);
    group.bench_function("build the index", |bencher| {
        bencher.iter(|| black_box(Index::build(&root, false, &|| ())));
    });
    let index = Index::build(&root, false, &|| ());
    let folder = tempfile::tempdir().expect("a folder for the index");
    let path = folder.path().join("index.safetensors");
    store::save(&index, &path).expect("the index is written");
    group.bench_function("load the index", |bencher| {
        bencher.iter(|| store::load(&path, Layout::of(&root), false, &|| ()).map(black_box));
    });
    group.bench_function(format!("read and answer for {model}"), |bencher| {
        bencher.iter(|| {
            let query = QueryFile::open(model, &root, index.layout(), false)
                .expect("a model of the repository");
            black_box(analyse(&index, &query, Options::default()))
        });
    });
    group.finish();
}

criterion_group!(benches, similar);
criterion_main!(benches);
