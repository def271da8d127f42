//! Real streams of operations, as a software Vulkan device was asked for them, and made-up ones.

use std::{collections::HashMap, path::Path};

use serde_json::Value as Json;

use super::*;
use crate::{
    capture::names::Entered,
    format,
    summary::DType,
    trace::{Operand, Output, Trace},
};

/// A stream with the model that made it.
pub(super) struct Recorded {
    pub(super) tree: ModuleTree,
    pub(super) ops: Vec<Op>,
}

fn data(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

fn json(file: &str) -> Json {
    let text = std::fs::read_to_string(data("ops").join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn text(json: &Json) -> String {
    json.as_str().unwrap().to_owned()
}

fn tensor(shape: &Json, dtype: &Json) -> (Vec<usize>, DType) {
    let shape = shape.as_array().unwrap().iter();
    let dtype = match dtype.as_str().unwrap() {
        "bool(u32)" => DType::Bool,
        "f16" => DType::F16,
        "f32" => DType::F32,
        "i32" => DType::I32,
        "i64" => DType::I64,
        other => panic!("{other}"),
    };
    let shape = shape.map(|size| usize::try_from(size.as_u64().unwrap()).unwrap());
    (shape.collect(), dtype)
}

pub(super) fn record(id: u64, shape: Vec<usize>, dtype: DType) -> Arc<TensorRecord> {
    Arc::new(TensorRecord {
        shape,
        dtype,
        device: Some("wgpu:0".to_owned()),
        id: Some(id),
        summary: None,
        not_summarised: None,
        printed: None,
        value: None,
    })
}

/// An operation is `[name, operands, results]`; an operand that an operation before made is its
/// number, another one `[parameter or null, shape, dtype, number]`; a result `[number, shape, dtype]`.
pub(super) fn recorded(json: &Json) -> Recorded {
    let root = text(&json["root"]);
    let entered: Vec<Entered> = json["entered"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| Entered {
            path: text(&field[0]),
            container: text(&field[1]),
        })
        .collect();
    let parameters: Vec<(usize, String)> = json["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .enumerate()
        .collect();
    // The models' own rules.
    let rename = |path: &str| {
        let names = path.split('.').map(|name| match name {
            "self_" => "self",
            "layer_norm" if root == "BertModel" => "LayerNorm",
            name => name,
        });
        names.collect::<Vec<_>>().join(".")
    };
    let full = |path: &str| match path {
        "" => root.clone(),
        path => format!("{root}.{}", rename(path)),
    };
    let mut tree = ModuleTree::default();
    let debug = DebugText::parse(json["debug"].as_str().unwrap());
    tree.add(full, &entered, &parameters, &mut HashMap::new(), &debug);

    let mut made: HashMap<u64, (Vec<usize>, DType)> = HashMap::new();
    let mut ops = Vec::new();
    for (order, op) in json["ops"].as_array().unwrap().iter().enumerate() {
        let operand = |operand: &Json| match operand.as_u64() {
            Some(id) => Operand {
                label: String::new(),
                id,
                shape: made[&id].0.clone(),
                dtype: made[&id].1.clone(),
                parameter: None,
            },
            None => {
                let (shape, dtype) = tensor(&operand[1], &operand[2]);
                Operand {
                    label: String::new(),
                    id: operand[3].as_u64().unwrap(),
                    shape,
                    dtype,
                    parameter: operand[0].as_str().map(full),
                }
            }
        };
        let inputs = op[1].as_array().unwrap().iter().map(operand).collect();
        let mut outputs = Vec::new();
        for output in op[2].as_array().unwrap() {
            let id = output[0].as_u64().unwrap();
            let (shape, dtype) = tensor(&output[1], &output[2]);
            made.insert(id, (shape.clone(), dtype.clone()));
            outputs.push(Output {
                label: "out".to_owned(),
                tensor: record(id, shape, dtype),
                alias_of: None,
            });
        }
        ops.push(Op {
            name: text(&op[0]),
            order: order as u64,
            inputs,
            outputs,
            ..Op::default()
        });
    }
    Recorded { tree, ops }
}

fn preorder<'n>(nodes: &'n [Node], all: &mut Vec<&'n Node>) {
    for node in nodes {
        all.push(node);
        preorder(&node.children, all);
    }
}

pub(super) fn every(nodes: &[Node]) -> Vec<&Node> {
    let mut all = Vec::new();
    preorder(nodes, &mut all);
    all
}

/// Path, shapes of the inputs, shapes of the outputs.
type Call = (String, Vec<Vec<usize>>, Vec<Vec<usize>>);

fn shapes<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<Vec<usize>> {
    let tensors = values.into_iter().flat_map(Value::tensors);
    tensors.map(|tensor| tensor.shape.clone()).collect()
}

fn call(node: &Node) -> Call {
    (
        node.path.clone(),
        shapes(node.inputs.iter().flat_map(Inputs::values)),
        shapes(&node.outputs),
    )
}

fn op_count(nodes: &[Node]) -> usize {
    every(nodes).iter().map(|node| node.ops.len()).sum()
}

/// PyTorch's trace of a model on the same inputs, which an annotated trace equals.
fn reference(case: &str) -> Trace {
    format::read(data("traces").join(case).join("repr")).unwrap()
}

/// The calls without parts: what a model without annotations is compared in.
fn leaves<'n>(nodes: &[&'n Node]) -> Vec<&'n Node> {
    let leaves = nodes.iter().filter(|node| node.children.is_empty());
    leaves.copied().collect()
}

/// Compares what was concluded of a model with PyTorch's trace of it.
fn check_model(case: &str) -> (Vec<Node>, Vec<Op>) {
    let Recorded { tree, ops } = recorded(&json(&format!("{case}.json")));
    let count = ops.len();
    let found = infer(&tree, None, ops);
    assert_eq!(op_count(&found.calls) + found.rest.len(), count);
    let reference = reference(case);
    let ours = every(&found.calls);
    let theirs: Vec<&Node> = every(&reference.roots)
        .into_iter()
        .filter(|node| !node.path.ends_with(".dropout"))
        .collect();
    let paths =
        |nodes: &[&Node]| -> Vec<String> { nodes.iter().map(|node| node.path.clone()).collect() };
    assert_eq!(paths(&ours), paths(&theirs), "{case}");
    for (ours, theirs) in leaves(&ours).iter().zip(leaves(&theirs)) {
        let (path, inputs, outputs) = call(ours);
        let (_, their_inputs, their_outputs) = call(theirs);
        assert_eq!(outputs, their_outputs, "{path}");
        // The rotary embedding looks at its first argument's type only, so no operation reads it.
        let skipped = usize::from(path.ends_with(".rotary_emb"));
        assert_eq!(inputs, their_inputs[skipped..], "{path}");
    }
    (found.calls, found.rest)
}

fn names(ops: &[Op]) -> Vec<&str> {
    ops.iter().map(|op| op.name.as_str()).collect()
}

#[test]
fn llama_has_the_tree_of_pytorchs_trace() {
    let (calls, rest) = check_model("llama_f32");
    // The tokens are no part of the model.
    assert_eq!(names(&rest), ["Init"]);
    let layer = &calls[0].children[0].children[2];
    assert_eq!(layer.path, "LlamaForCausalLM.model.layers.0");
    assert_eq!(names(&layer.ops), ["Add", "Add"]);
    let (_, inputs, outputs) = call(layer);
    assert_eq!(inputs, [vec![1, 6, 16], vec![1, 6, 4], vec![1, 6, 4]]);
    assert_eq!(outputs, [vec![1, 6, 16]]);
}

#[test]
fn bert_has_the_tree_of_pytorchs_trace() {
    let (calls, rest) = check_model("bert_f32");
    assert_eq!(names(&rest), ["Init"; 3], "the model's inputs");
    // That every token is real was read back on the way; it is no result.
    assert_eq!(call(&calls[0]).2, [vec![2, 16]]);
    let attention = every(&calls)
        .into_iter()
        .find(|node| node.path == "BertModel.encoder.layer.0.attention.self");
    // Heads are split and joined inside, though no part of it comes after the attention.
    assert_eq!(
        call(attention.unwrap()).2,
        [vec![2, 5, 16]],
        "the joined heads"
    );
}

#[test]
fn qwen3_has_the_tree_of_pytorchs_trace() {
    check_model("qwen3_embed_f32");
}

/// A leaf's output is the very tensor that the next operation outside reads.
#[test]
fn outputs_are_the_tensors_that_others_read() {
    let (calls, _) = check_model("llama_f32");
    let nodes = every(&calls);
    let at = |path: &str| {
        let node = nodes.iter().find(|node| node.path == path).unwrap();
        let inputs = node.inputs.iter().flat_map(Inputs::values);
        let ids = |values: Vec<&Value>| -> Vec<Option<u64>> {
            let tensors = values.into_iter().flat_map(Value::tensors);
            tensors.map(|tensor| tensor.id).collect()
        };
        (ids(inputs.collect()), ids(node.outputs.iter().collect()))
    };
    let layer = |path: &str| at(&format!("LlamaForCausalLM.model.layers.0.{path}"));
    assert_eq!(layer("input_layernorm").1, layer("self_attn.q_proj").0);
    assert_eq!(layer("mlp.gate_proj").1, layer("mlp.act_fn").0);
    assert_eq!(layer("mlp.down_proj").1, layer("mlp").1);
    assert_eq!(layer("self_attn.o_proj").1, layer("self_attn").1);
    assert_eq!(
        at("LlamaForCausalLM.lm_head").1,
        at("LlamaForCausalLM").1,
        "the root's result"
    );
}

/// One module of Burn in a struct, called once: its shapes in and out, and all operations but those
/// that made the input.
fn check_module(case: &str, inputs: &[&[usize]], outputs: &[&[usize]]) -> Vec<Node> {
    let all = json("burn_nn.json");
    let Recorded { tree, ops } = recorded(&all[case]);
    let made = ops.len();
    let found = infer(&tree, Some("One"), ops);
    assert_eq!(op_count(&found.calls) + found.rest.len(), made, "{case}");
    let [node] = found.calls.as_slice() else {
        panic!("{case}: {:?}", found.calls)
    };
    let (path, given, returned) = call(node);
    assert_eq!(
        (path.as_str(), given.as_slice(), returned.as_slice()),
        (
            "One.inner",
            &inputs
                .iter()
                .map(|shape| shape.to_vec())
                .collect::<Vec<_>>()[..],
            &outputs
                .iter()
                .map(|shape| shape.to_vec())
                .collect::<Vec<_>>()[..]
        ),
        "{case}"
    );
    assert!(
        found.rest.iter().all(|op| op.order < found.calls[0].order),
        "{case}: {:?}",
        names(&found.rest)
    );
    found.calls
}

#[test]
fn burns_modules_have_their_true_inputs_and_outputs() {
    let x: &[usize] = &[2, 5, 8];
    let image: &[usize] = &[2, 4, 6, 6];
    for (case, input, output) in [
        ("linear3", x, &[2, 5, 4][..]),
        ("linear2", &[10, 8], &[10, 4]),
        ("linear1", &[8], &[4]),
        ("linearcol", x, &[2, 5, 4]),
        ("linear_decode", &[4, 1, 8], &[4, 1, 4]),
        ("linear_decode_nobias", &[4, 1, 8], &[4, 1, 4]),
        ("embedding", &[2, 3], &[2, 3, 4]),
        ("rms", x, x),
        ("layernorm", x, x),
        ("layernorm_nobias", x, x),
        ("groupnorm", image, image),
        ("instancenorm", image, image),
        ("batchnorm", image, image),
        ("conv1d", x, &[2, 4, 6]),
        ("conv2d", image, &[2, 2, 4, 4]),
        ("convt2d", image, &[2, 2, 8, 8]),
        ("prelu", x, x),
        ("auto_batchnorm", image, image),
        ("auto_dropout", x, x),
        ("f16_linear", x, &[2, 5, 4]),
        ("f16_rms", x, x),
        ("f16_llama_rms", x, x),
        ("f16_layernorm", x, x),
        ("f16_groupnorm", x, x),
        ("f16_batchnorm", x, x),
        ("f16_act_gelu", x, x),
        ("f16_act_gelu_new", x, x),
        ("f16_act_quick_gelu", x, x),
        ("f16_act_relu", x, x),
        ("f16_act_sigmoid", x, x),
        ("f16_act_silu", x, x),
        ("f16_act_tanh", x, x),
        ("act_quick_gelu", x, x),
        ("act_silu", x, x),
        ("hardshrink", x, x),
        ("softshrink", x, x),
        ("shrink", x, x),
        ("thresholdedrelu", x, x),
        ("gelu", x, x),
        ("gelu_tanh", x, x),
        ("act_enum", x, x),
        ("relu", x, x),
        ("sigmoid", x, x),
        ("tanh", x, x),
        ("leaky", x, x),
        ("hardsig", x, x),
        ("hardswish", x, x),
        ("softplus", x, x),
        ("selu", x, x),
        ("elu", x, x),
        ("celu", x, x),
        ("softsign", x, x),
        ("glu", x, &[2, 5, 4]),
        ("maxpool1d", x, &[2, 5, 4]),
        ("maxpool2d", image, &[2, 4, 3, 3]),
        ("avgpool1d", x, &[2, 5, 4]),
        ("avgpool2d", image, &[2, 4, 3, 3]),
        ("adaptive1d", x, &[2, 5, 2]),
        ("adaptive2d", image, &[2, 4, 2, 2]),
        ("rope", x, x),
        ("posenc", x, x),
        ("swiglu", x, x),
    ] {
        check_module(case, &[input], &[output]);
    }
}

#[test]
fn a_module_has_all_of_its_operations() {
    let x: &[usize] = &[2, 5, 8];
    let sigmoid = [
        "Cast",
        "MulScalar",
        "Exp",
        "AddScalar",
        "Log",
        "MulScalar",
        "Exp",
        "Cast",
    ];
    assert_eq!(names(&check_module("sigmoid", &[x], &[x])[0].ops), sigmoid);
    // The variant of an enum is no call inside the enum's.
    let activation = check_module("act_enum", &[x], &[x]);
    assert!(activation[0].children.is_empty());
    assert_eq!(activation[0].kind.as_deref(), Some("Activation"));
    assert_eq!(activation[0].ops.len(), 5);
}

#[test]
fn attention_returns_its_weights_too() {
    let x: &[usize] = &[2, 5, 8];
    let calls = check_module("mha", &[x, x, x], &[&[2, 2, 5, 5], x]);
    let parts: Vec<&str> = calls[0]
        .children
        .iter()
        .map(|part| part.path.as_str())
        .collect();
    assert_eq!(
        parts,
        [
            "One.inner.query",
            "One.inner.key",
            "One.inner.value",
            "One.inner.output"
        ]
    );
}

#[test]
fn a_recurrent_module_is_one_call_of_many_steps() {
    let calls = check_module("lstm", &[&[2, 5, 8]], &[&[2, 5, 4], &[2, 4], &[2, 4]]);
    let gates: Vec<&Node> = calls[0]
        .children
        .iter()
        .filter(|part| part.path == "One.inner.forget_gate")
        .collect();
    assert_eq!(
        gates.iter().map(|gate| gate.call).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    for gate in gates {
        assert_eq!(call(gate).1, [vec![2, 8], vec![2, 4]]);
        assert_eq!(call(gate).2, [vec![2, 4]]);
        assert_eq!(gate.children.len(), 2);
    }
    check_module("gru", &[&[2, 5, 8]], &[&[2, 5, 4]]);
}

#[test]
fn every_step_of_decoding_is_a_root_call() {
    let Recorded { tree, ops } = recorded(&json("llama_decode.json"));
    let found = infer(&tree, None, ops);
    let steps: Vec<(u64, u64)> = found
        .calls
        .iter()
        .map(|call| (call.step, call.call))
        .collect();
    assert_eq!(steps, [(0, 0), (1, 0), (2, 0)]);
    let first = &found.calls[0];
    for (step, root) in found.calls.iter().enumerate() {
        let nodes = every(std::slice::from_ref(root));
        let paths: Vec<&str> = nodes.iter().map(|node| node.path.as_str()).collect();
        let firsts = every(std::slice::from_ref(first));
        assert_eq!(
            paths,
            firsts
                .iter()
                .map(|node| node.path.as_str())
                .collect::<Vec<_>>()
        );
        assert!(
            nodes
                .iter()
                .all(|node| node.call == 0 && node.step == step as u64)
        );
        let length = if step == 0 { 3 } else { 1 };
        assert_eq!(call(root).2[0], [1, length, 48], "the logits come first");
    }
    // Choosing the next token is nobody's.
    assert!(
        names(&found.rest).contains(&"ArgMax"),
        "{:?}",
        names(&found.rest)
    );
    assert!(
        every(&found.calls)
            .iter()
            .all(|node| !names(&node.ops).contains(&"ArgMax"))
    );
}

#[test]
fn a_dropout_that_drops_nothing_is_told_of() {
    let Recorded { tree, ops } = recorded(&json("bert_f32.json"));
    let notes = infer(&tree, None, ops).notes;
    assert!(
        matches!(notes.as_slice(), [note] if note.contains("BertModel.embeddings.dropout")),
        "{notes:?}"
    );
}

/// An exact call records its parts itself, the silent ones too.
#[test]
fn silent_parts_of_an_exact_call_are_not_told_of() {
    let Recorded { tree, ops } = recorded(&json("bert_f32.json"));
    let notes = infer(&tree, Some("BertModel.embeddings"), ops).notes;
    let dropout = |note: &String| note.contains("BertModel.embeddings.dropout");
    assert!(!notes.iter().any(dropout), "{notes:?}");
}
