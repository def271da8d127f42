//! A session in a process that never called `install()`: Burn's fusion is on, modules are seen.
//!
//! The tests run on a software Vulkan device where there is one (Debian's `mesa-vulkan-drivers`), or
//! else on the machine's own device. Without any adapter each prints that it is skipped.

#[path = "../ops/summaries.rs"]
mod summaries;

use std::sync::OnceLock;

use burn::{
    module::Module,
    nn,
    tensor::{Device, DeviceKind, Distribution, Int, Tensor},
};
use burnscope::{
    Dump, Session,
    format::dump::DumpReader,
    summary::{self, DType, TensorView},
    trace::{Inputs, Node, TensorRecord, TensorValue, Trace, Value},
};
use summaries::assert_agrees;

fn device() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        let adapter = cubecl::Device::wgpu(cubecl::wgpu::WgpuDeviceKind::DefaultDevice);
        adapter
            .ok()
            .map(|_| Device::wgpu(DeviceKind::DefaultDevice))
    });
    if device.is_none() {
        eprintln!("skipped: this machine has no adapter (install mesa-vulkan-drivers for one)");
    }
    device.clone()
}

#[derive(Module, Debug)]
struct Block {
    norm: nn::RmsNorm,
    up: nn::Linear,
    down: nn::Linear,
}

#[burnscope::trace]
impl Block {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let inside = self.up.forward(self.norm.forward(x.clone()));
        // Several operations that Burn makes one kernel of.
        let gated = (inside.clone() * 0.5 + 1.0).exp().recip() * inside;
        x + self.down.forward(gated)
    }
}

#[derive(Module, Debug)]
struct Model {
    embed: nn::Embedding,
    blocks: Vec<Block>,
}

#[burnscope::trace]
impl Model {
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<3> {
        let embedded = self.embed.forward(ids);
        self.blocks
            .iter()
            .fold(embedded, |x, block| block.forward(x))
    }
}

fn model(device: &Device) -> Model {
    let block = |_| Block {
        norm: nn::RmsNormConfig::new(24).init(device),
        up: nn::LinearConfig::new(24, 40).init(device),
        down: nn::LinearConfig::new(40, 24).init(device),
    };
    let model = Model {
        embed: nn::EmbeddingConfig::new(50, 24).init(device),
        blocks: (0..3).map(block).collect(),
    };
    // Parameters come into being with their first use.
    model.forward(ids(device));
    model
}

fn ids(device: &Device) -> Tensor<2, Int> {
    Tensor::arange(0..14, device).reshape([2, 7]) * 3
}

fn record(model: &Model, dump: Dump, folder: &std::path::Path) -> (Vec<f32>, Trace) {
    let session = Session::builder(folder).dump(dump).start().unwrap();
    session.attach("Model", model);
    let ids = ids(&model.devices()[0]);
    let output = session.run(|| model.forward(ids));
    // The session ends before anything is read.
    let trace = session.finish().unwrap();
    (values(output), trace)
}

fn values(tensor: Tensor<3>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

fn tensors(node: &Node) -> Vec<&TensorRecord> {
    let inputs = node.inputs.iter().flat_map(Inputs::values);
    let values = inputs.chain(node.outputs.iter());
    values.flat_map(Value::tensors).collect()
}

#[test]
fn modules_are_seen_as_on_the_host() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = model(&device);
    let (_, ours) = record(&model, Dump::None, &folder.path().join("gpu"));
    let host = model.clone().to_device(&Device::flex());
    let (_, theirs) = record(&host, Dump::None, &folder.path().join("cpu"));
    assert_eq!(ours.calls().len(), 2 + 3 * 4);
    for (ours, theirs) in ours.calls().into_iter().zip(theirs.calls()) {
        assert_eq!(ours.path, theirs.path);
        let (ours, theirs) = (tensors(ours), tensors(theirs));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            let (ours, theirs) = (&ours.summary, &theirs.summary);
            let (ours, theirs) = (ours.as_ref().unwrap(), theirs.as_ref().unwrap());
            assert_eq!(ours.count, theirs.count);
            // Two devices add in two orders.
            let scale = theirs.abs_max.unwrap();
            assert!((ours.mean.unwrap() - theirs.mean.unwrap()).abs() <= 1e-5 * scale);
            assert!((ours.l2 - theirs.l2).abs() <= 1e-5 * theirs.l2);
        }
    }
}

/// The elements that were summarised are those of the module's result: neither earlier nor later ones.
#[test]
fn summaries_are_those_of_the_elements() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (output, trace) = record(&model(&device), Dump::Safetensors, folder.path());
    let files = DumpReader::new(folder.path());
    let mut compared = 0;
    for node in trace.calls() {
        for tensor in tensors(node) {
            let Some(TensorValue::File(file)) = &tensor.value else {
                panic!("{} has no file", node.path)
            };
            let read = files.read(file).unwrap();
            let view = TensorView::contiguous(read.dtype.clone(), &read.shape, &read.bytes);
            let host = summary::summarise(&view.unwrap());
            assert_agrees(tensor.summary.as_ref().unwrap(), &host);
            compared += 1;
        }
    }
    assert!(compared >= 2 * 14, "{compared}");
    let root = trace.roots[0].outputs.as_ref().unwrap().tensors()[0];
    let bytes: Vec<u8> = output
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let view = TensorView::contiguous(DType::F32, &[2, 7, 24], &bytes).unwrap();
    assert_agrees(root.summary.as_ref().unwrap(), &summary::summarise(&view));
}

#[test]
fn a_fused_result_is_the_same_with_a_session_as_without() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = model(&device);
    let untraced = values(model.forward(ids(&device)));
    let (traced, _) = record(&model, Dump::Repr, &folder.path().join("traced"));
    assert_eq!(untraced, traced);
    let session = Session::builder(folder.path().join("plain"))
        .start()
        .unwrap();
    let x = Tensor::<2>::random([60, 60], Distribution::Default, &device);
    let run = |x: &Tensor<2>| (x.clone() * 3.0 - 1.0).exp().sum_dim(1).into_data();
    let before = run(&x);
    let inside = session.run(|| run(&x));
    assert_eq!(before, inside);
}

#[test]
fn the_trace_says_that_only_modules_were_seen() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = model(&device);
    let (_, trace) = record(&model, Dump::None, folder.path());
    assert_eq!(trace.ops, []);
    assert!(trace.calls().iter().all(|node| node.ops.is_empty()));
    assert_eq!(trace.notes.len(), 1, "{:?}", trace.notes);
    assert!(trace.notes[0].contains("burnscope::install()"));
    // Not where no device with operations is at work.
    let host = model.to_device(&Device::flex());
    let (_, trace) = record(&host, Dump::None, folder.path());
    assert_eq!(trace.notes, [""; 0]);
}

/// Nothing of a model without annotations is seen then, and the trace says what would help.
#[test]
fn an_empty_trace_is_explained() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let model = model(&device);
    let session = Session::builder(folder.path()).annotations(false);
    let session = session.start().unwrap();
    session.attach("Model", &model);
    session.run(|| model.forward(ids(&device)));
    let trace = session.finish().unwrap();
    assert!(trace.roots.is_empty());
    assert_eq!(trace.notes.len(), 1, "{:?}", trace.notes);
    assert!(trace.notes[0].contains("burnscope::install()"));
}
