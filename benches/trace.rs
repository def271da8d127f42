//! What tracing costs: a Llama's forward pass with and without a session, and a scope with no session.
//!
//! CPU time of the whole process, all threads, since tracing uses more than one.

mod cpu_time;
mod llama;

use std::{hint::black_box, path::Path, time::Duration};

use burn::{
    module::Module,
    tensor::{Device, Distribution, Int, Tensor},
};
use burnscope::{Dump, Session, models::llama::LlamaForCausalLM};
use cpu_time::CpuTime;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn forward(criterion: &mut Criterion<CpuTime>) {
    let device = Device::flex();
    let model = LlamaForCausalLM::init(&llama::config(), &device);
    let uniform = Distribution::Uniform(0.0, 1000.0);
    let ids = Tensor::<2, Int>::random([1, llama::TOKENS], uniform, &device);
    let run = |ids: &Tensor<2, Int>| model.forward(ids.clone(), None, None, None);
    run(&ids);

    let mut group = criterion.benchmark_group("llama_forward");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(10));
    group.bench_function("untraced", |bencher| bencher.iter(|| black_box(run(&ids))));
    for (name, dump) in [
        ("summaries", Dump::None),
        ("repr", Dump::Repr),
        ("safetensors", Dump::Safetensors),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || tempfile::tempdir().expect("a temporary folder"),
                |folder| traced(&model, folder.path(), dump, || run(&ids)),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// The whole session: attaching, running, writing the files.
fn traced<M: Module, R>(model: &M, folder: &Path, dump: Dump, run: impl FnOnce() -> R) {
    let session = Session::builder(folder)
        .dump(dump)
        .start()
        .expect("a session");
    session.attach("LlamaForCausalLM", model);
    black_box(session.run(run));
    session.finish().expect("the files");
}

struct Bare;

impl Bare {
    #[inline(never)]
    fn forward(&self, x: u64) -> u64 {
        black_box(x) + 1
    }
}

struct Scoped;

#[burnscope::trace]
impl Scoped {
    #[inline(never)]
    fn forward(&self, x: u64) -> u64 {
        black_box(x) + 1
    }
}

/// One relaxed load and a branch more than the bare method.
fn inactive_scope(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inactive_scope");
    group.bench_function("bare", |bencher| {
        bencher.iter(|| Bare.forward(black_box(1)))
    });
    group.bench_function("scoped", |bencher| {
        bencher.iter(|| Scoped.forward(black_box(1)))
    });
    group.finish();
}

criterion_group! {
    name = forwards;
    config = Criterion::default().with_measurement(CpuTime);
    targets = forward
}
criterion_group!(scopes, inactive_scope);
criterion_main!(scopes, forwards);
