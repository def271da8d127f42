//! Annotated models on a device: exact calls, with their operations and what they call unannounced.

use burn::{
    module::Module,
    nn,
    tensor::{Device, Distribution, Tensor},
};
use burnscope::{
    Dump, Session,
    format::{self, dump::DumpReader},
    summary::{self, TensorView},
    trace::{Attribution, Node, TensorValue, Trace, Value},
};

use super::{summaries::assert_agrees, support::device};

/// Of which nothing is announced.
#[derive(Module, Debug)]
struct Quiet {
    norm: nn::LayerNorm,
    fc: nn::Linear,
}

impl Quiet {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc.forward(self.norm.forward(x))
    }
}

#[derive(Module, Debug)]
struct Net {
    first: nn::Linear,
    quiet: Quiet,
    last: nn::Linear,
}

impl Net {
    fn init(device: &Device) -> Self {
        Self {
            first: nn::LinearConfig::new(8, 6).init(device),
            quiet: Quiet {
                norm: nn::LayerNormConfig::new(6).init(device),
                fc: nn::LinearConfig::new(6, 6).init(device),
            },
            last: nn::LinearConfig::new(6, 4).with_bias(false).init(device),
        }
    }
}

/// A function that the attribute does not look into.
fn unseen(quiet: &Quiet, x: Tensor<2>) -> Tensor<2> {
    quiet.forward(x)
}

#[burnscope::trace]
impl Net {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.first.forward(x);
        let x = unseen(&self.quiet, x * 2.0);
        self.last.forward(x)
    }
}

fn paths(node: &Node, found: &mut Vec<(String, Attribution)>) {
    found.push((node.path.clone(), node.attribution));
    node.children.iter().for_each(|child| paths(child, found));
}

fn traced(dump: Dump, folder: &std::path::Path) -> Option<(Tensor<2>, Trace)> {
    let device = device()?;
    let model = Net::init(&device);
    let x = Tensor::<2>::random([3, 8], Distribution::Normal(0.0, 1.0), &device);
    let session = Session::builder(folder).dump(dump).start().unwrap();
    session.attach("Net", &model);
    let y = session.run(|| model.forward(x));
    Some((y, session.finish().unwrap()))
}

#[test]
fn announced_calls_are_exact_and_the_others_stand_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some((y, trace)) = traced(Dump::None, folder.path()) else {
        return;
    };
    use Attribution::{Exact, Inferred};
    let mut found = Vec::new();
    paths(&trace.roots[0], &mut found);
    let expected = [
        ("Net", Exact),
        ("Net.first", Exact),
        ("Net.quiet", Inferred),
        ("Net.quiet.norm", Inferred),
        ("Net.quiet.fc", Inferred),
        ("Net.last", Exact),
    ];
    assert_eq!(
        found,
        expected.map(|(path, attribution)| (path.to_owned(), attribution))
    );
    let root = &trace.roots[0];
    // What the method did itself.
    let own: Vec<&str> = root.ops.iter().map(|op| op.name.as_str()).collect();
    assert_eq!(own, ["MulScalar"]);
    assert!(trace.ops.is_empty());
    let matmul = |node: &Node| node.ops.iter().filter(|op| op.name == "Matmul").count();
    assert_eq!(matmul(&root.children[0]), 1);
    assert_eq!(matmul(&root.children[1].children[1]), 1);
    assert_eq!(matmul(&root.children[2]), 1);

    let data = y.to_data();
    let view = TensorView::contiguous(summary::DType::F32, &[3, 4], data.as_bytes()).unwrap();
    let Some(Value::Tensor(output)) = &root.outputs else {
        panic!("{:?}", root.outputs);
    };
    assert_agrees(output.summary.as_ref().unwrap(), &summary::summarise(&view));
    // The call's output is the last operation's.
    let ops = trace.operations();
    assert_eq!(output.id, ops.last().unwrap().outputs[0].tensor.id);
}

#[test]
fn the_record_tells_all_that_the_session_returned() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_, trace)) = traced(Dump::Repr, folder.path()) else {
        return;
    };
    let record = folder.path().join("Net.burnscope.jsonl");
    let mut read = format::read(&record).unwrap();
    assert_eq!(read.roots.len(), 1);
    // Only the order in which notes were added may differ.
    read.notes.sort();
    let mut trace = trace;
    trace.notes.sort();
    assert_eq!(read, trace);
}

#[test]
fn tensor_files_of_a_device_hold_its_elements() {
    let folder = tempfile::tempdir().unwrap();
    let Some((y, trace)) = traced(Dump::Safetensors, folder.path()) else {
        return;
    };
    let Some(Value::Tensor(output)) = &trace.roots[0].outputs else {
        panic!("no output");
    };
    let Some(TensorValue::File(file)) = &output.value else {
        panic!("no file: {output:?} {:?}", trace.notes);
    };
    assert_eq!(file, "Net_outputs.safetensors");
    let dump = DumpReader::new(folder.path()).read(file).unwrap();
    assert_eq!(dump.shape, [3, 4]);
    assert_eq!(dump.bytes, y.to_data().as_bytes());
}

#[test]
fn a_filter_leaves_out_what_it_does_not_want() {
    let Some(device) = device() else { return };
    let model = Net::init(&device);
    for annotations in [true, false] {
        filtered(&model, Tensor::ones([3, 8], &device), annotations);
    }
}

fn filtered(model: &Net, x: Tensor<2>, annotations: bool) {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder(folder.path())
        .include("*.norm")
        .annotations(annotations)
        .start()
        .unwrap();
    session.attach("Net", model);
    session.run(|| model.forward(x));
    let trace = session.finish().unwrap();
    let mut found = Vec::new();
    trace.roots.iter().for_each(|root| paths(root, &mut found));
    let found: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(found, ["Net", "Net.quiet", "Net.quiet.norm"]);
    assert!(trace.roots[0].ops.is_empty());
    let norm = &trace.roots[0].children[0].children[0];
    assert!(!norm.ops.is_empty());
    let record = folder.path().join("Net.burnscope.jsonl");
    let mut read = format::read(&record).unwrap();
    // Only the order in which notes were added may differ.
    read.notes.sort();
    let mut trace = trace;
    trace.notes.sort();
    assert_eq!(read, trace);
}

#[test]
fn tracing_changes_no_bit_of_the_result() {
    let Some(device) = device() else { return };
    let model = Net::init(&device);
    let x = Tensor::<2>::random([3, 8], Distribution::Normal(0.0, 1.0), &device);
    let untraced = model.forward(x.clone()).into_data();
    for dump in [Dump::None, Dump::Repr, Dump::Safetensors] {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::builder(folder.path()).dump(dump).start().unwrap();
        session.attach("Net", &model);
        let traced = session.run(|| model.forward(x.clone()));
        session.finish().unwrap();
        assert_eq!(traced.into_data(), untraced);
    }
}

/// Operations go to the record while the run goes on; calls are concluded at its end.
#[test]
fn the_record_of_several_runs_tells_all_that_the_session_returned() {
    let Some(device) = device() else { return };
    let model = Net::init(&device);
    for annotations in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::builder(folder.path())
            .annotations(annotations)
            .start()
            .unwrap();
        session.attach("Net", &model);
        for step in 0..4 {
            let x = Tensor::<2>::ones([3, 8], &device) * step as f32;
            session.run(|| model.forward(x)).into_data();
        }
        let mut trace = session.finish().unwrap();
        assert_eq!(trace.roots.len(), 4);
        let record = folder.path().join("Net.burnscope.jsonl");
        let mut read = format::read(&record).unwrap();
        read.notes.sort();
        trace.notes.sort();
        assert_eq!(read, trace);
        // The first run's operations come before the last call's beginning.
        let text = std::fs::read_to_string(&record).unwrap();
        let first_op = text.find("\"kind\":\"op\"").unwrap();
        assert!(first_op < text.rfind("\"kind\":\"enter\"").unwrap());
    }
}
