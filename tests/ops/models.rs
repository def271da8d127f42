//! The built-in models without their annotations: the module tree that is concluded from operations.

use std::path::{Path, PathBuf};

use burnscope::{
    Session,
    models::{self, LoadError, ModelInputs},
    trace::{Attribution, Inputs, Node, TensorRecord, Trace, Value},
};

use super::{summaries::assert_agrees, support::device};

fn data(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/traces")
        .join(case)
}

fn traces(case: &str) -> Option<(Trace, Trace)> {
    let device = device()?;
    let model = match models::load(&data(case).join("checkpoint"), &device) {
        Ok(model) => model,
        Err(LoadError::DeviceDtype { dtype }) => {
            eprintln!("skipped: this device has no {dtype}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let inputs = ModelInputs::read(&data(case).join("inputs.safetensors")).unwrap();
    let trace = |annotations: bool| {
        let folder = tempfile::tempdir().unwrap();
        let builder = Session::builder(folder.path()).annotations(annotations);
        let session = model.start(builder).unwrap();
        session.run(|| model.forward(&inputs)).unwrap();
        session.finish().unwrap()
    };
    Some((trace(true), trace(false)))
}

fn outputs(node: &Node) -> Vec<&TensorRecord> {
    node.outputs.iter().flat_map(Value::tensors).collect()
}

fn check(case: &str) {
    let Some((annotated, concluded)) = traces(case) else {
        return;
    };
    // Outside training a dropout returns what it is given: there is no operation to see.
    let (dropouts, exact): (Vec<&Node>, Vec<&Node>) = annotated
        .calls()
        .into_iter()
        .partition(|node| node.kind.as_deref() == Some("Dropout"));
    for dropout in dropouts {
        assert!(
            concluded
                .notes
                .iter()
                .any(|note| note.contains(&dropout.path)),
            "{}",
            dropout.path
        );
    }
    let inferred = concluded.calls();
    let paths =
        |nodes: &[&Node]| -> Vec<String> { nodes.iter().map(|node| node.path.clone()).collect() };
    assert_eq!(paths(&inferred), paths(&exact));
    for (order, (inferred, exact)) in inferred.iter().zip(&exact).enumerate() {
        let path = &exact.path;
        assert_eq!(inferred.attribution, Attribution::Inferred);
        assert_eq!(exact.attribution, Attribution::Exact);
        assert_eq!(inferred.order, order as u64);
        assert_eq!((inferred.step, inferred.call), (exact.step, exact.call));
        let (ours, theirs) = (outputs(inferred), outputs(exact));
        assert!(!ours.is_empty(), "{path}");
        if exact.children.is_empty() {
            assert_eq!(ours.len(), theirs.len(), "{path}");
            ours.iter()
                .zip(&theirs)
                .for_each(|(a, b)| assert_same(path, a, b));
            // All that operations can tell: an argument of which only the dtype counts is missing.
            for ours in inputs(inferred) {
                let mut theirs = inputs(exact).into_iter();
                let theirs = theirs.find(|tensor| tensor.shape == ours.shape);
                assert_same(path, ours, theirs.unwrap_or_else(|| panic!("{path}")));
            }
        } else {
            // A result that is used within the container only is not seen to leave it.
            for ours in ours {
                let same = |theirs: &&&TensorRecord| theirs.shape == ours.shape;
                let theirs = theirs.iter().find(same);
                assert_same(path, ours, theirs.unwrap_or_else(|| panic!("{path}")));
            }
        }
    }
}

fn inputs(node: &Node) -> Vec<&TensorRecord> {
    let values = node.inputs.iter().flat_map(Inputs::values);
    values.flat_map(Value::tensors).collect()
}

fn assert_same(path: &str, ours: &TensorRecord, theirs: &TensorRecord) {
    let kind = |tensor: &TensorRecord| (tensor.shape.clone(), tensor.dtype.clone());
    assert_eq!(kind(ours), kind(theirs), "{path}");
    let (ours, theirs) = (ours.summary.as_ref(), theirs.summary.as_ref());
    assert_agrees(ours.expect(path), theirs.expect(path));
}

#[test]
fn llama() {
    check("llama_f32");
}

#[test]
fn llama_in_bf16() {
    check("llama_bf16");
}

#[test]
fn bert() {
    check("bert_f32");
}

#[test]
fn qwen3() {
    check("qwen3_embed_f32");
}
