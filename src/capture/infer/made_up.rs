//! Tests on made-up streams: what real models rarely do.

use std::collections::HashMap;

use super::{
    tests::{every, record},
    *,
};
use crate::{
    capture::names::Entered,
    summary::DType,
    trace::{Operand, Output},
};

/// A model by its fields: `(path, what contains it)`, a parameter's path with `!` behind it, and
/// `path = other path` for a shared one.
pub(super) fn tree(root: &str, fields: &[(&str, &str)], debug: &str) -> ModuleTree {
    let mut entered = Vec::new();
    let mut parameters: Vec<(usize, String)> = Vec::new();
    for (path, container) in fields {
        let (path, shared) = path.split_once(" = ").unwrap_or((path, ""));
        let name = path.trim_end_matches('!');
        if name != path {
            let known = parameters.iter().find(|(_, known)| known == shared);
            let id = known.map_or(parameters.len(), |(id, _)| *id);
            parameters.push((id, name.to_owned()));
        }
        entered.push(Entered {
            path: name.to_owned(),
            container: (*container).to_owned(),
        });
    }
    let full = |path: &str| match path {
        "" => root.to_owned(),
        path => format!("{root}.{path}"),
    };
    let mut tree = ModuleTree::default();
    let text = DebugText::parse(debug);
    tree.add(full, &entered, &parameters, &mut HashMap::new(), &text);
    tree
}

/// Operations by name and operands: a number is the tensor that the operation of this place made,
/// a negative one a tensor from outside, text a parameter.
#[derive(Default)]
struct Stream(Vec<Op>);

enum From<'p> {
    Op(usize),
    Outside(u64),
    Parameter(&'p str),
}

impl Stream {
    fn op(&mut self, name: &str, shape: &[usize], operands: &[From]) -> usize {
        let at = self.0.len();
        let inputs = operands.iter().map(|operand| {
            let (id, shape, parameter) = match operand {
                From::Op(op) => {
                    let tensor = &self.0[*op].outputs[0].tensor;
                    (tensor.id.unwrap(), tensor.shape.clone(), None)
                }
                From::Outside(id) => (1_000_000 + id, shape.to_vec(), None),
                From::Parameter(path) => {
                    let id = path
                        .bytes()
                        .enumerate()
                        .map(|(at, byte)| at as u64 * u64::from(byte))
                        .sum::<u64>()
                        + 2_000_000;
                    (id, vec![8], Some((*path).to_owned()))
                }
            };
            Operand {
                label: String::new(),
                id,
                shape,
                dtype: DType::F32,
                parameter,
            }
        });
        let op = Op {
            name: name.to_owned(),
            order: at as u64,
            inputs: inputs.collect(),
            outputs: vec![Output {
                label: "out".to_owned(),
                tensor: record(at as u64, shape.to_vec(), DType::F32),
                alias_of: None,
            }],
            ..Op::default()
        };
        self.0.push(op);
        at
    }

    fn linear(&mut self, x: From, weight: &str) -> usize {
        self.op("Matmul", &[2, 8], &[x, From::Parameter(weight)])
    }
}

fn paths(nodes: &[Node]) -> Vec<&str> {
    every(nodes).iter().map(|node| node.path.as_str()).collect()
}

fn ids(value: Option<&Value>) -> Vec<u64> {
    let tensors = value.into_iter().flat_map(Value::tensors);
    tensors.filter_map(|tensor| tensor.id).collect()
}

fn given(node: &Node) -> Vec<u64> {
    let inputs = node.inputs.iter().flat_map(Inputs::values);
    inputs.flat_map(|value| ids(Some(value))).collect()
}

const TWO: &[(&str, &str)] = &[
    ("first", "Struct:Net"),
    ("first.weight!", "Struct:Linear"),
    ("second", "Struct:Net"),
    ("second.weight!", "Struct:Linear"),
];

#[test]
fn backward_operations_belong_to_no_call() {
    let tree = tree("Net", TWO, "");
    let mut ops = Stream::default();
    let x = ops.linear(From::Outside(0), "Net.first.weight");
    let y = ops.linear(From::Op(x), "Net.second.weight");
    let back = ops.linear(From::Op(y), "Net.second.weight");
    ops.0[back].backward = true;
    let found = infer(&tree, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.first", "Net.second"]);
    assert_eq!(found.rest.len(), 1);
    assert!(found.rest[0].backward);
    assert_eq!(ids(found.calls[0].outputs.as_ref()), [y as u64]);
}

#[test]
fn the_parts_of_an_exact_call_are_concluded() {
    let tree = tree(
        "Net",
        &[
            ("block", "Struct:Net"),
            ("block.fc", "Struct:Block"),
            ("block.fc.weight!", "Struct:Linear"),
            ("head", "Struct:Net"),
            ("head.weight!", "Struct:Linear"),
        ],
        "",
    );
    let mut ops = Stream::default();
    let x = ops.op("Exp", &[2, 8], &[From::Outside(0)]);
    let y = ops.linear(From::Op(x), "Net.block.fc.weight");
    ops.op("Exp", &[2, 8], &[From::Op(y)]);
    ops.linear(From::Op(y), "Net.head.weight");
    let found = infer(&tree, Some("Net.block"), ops.0);
    assert_eq!(paths(&found.calls), ["Net.block.fc"]);
    // What the call made itself, and what is no part of it.
    assert_eq!(found.rest.len(), 3);
    let unknown = infer(&tree, Some("Net.elsewhere"), found.rest);
    assert_eq!((unknown.calls.len(), unknown.rest.len()), (0, 3));
}

#[test]
fn a_call_may_repeat_within_one_root_call() {
    let tree = tree("Net", TWO, "");
    let mut ops = Stream::default();
    let mut x = ops.linear(From::Outside(0), "Net.first.weight");
    for _ in 0..3 {
        x = ops.linear(From::Op(x), "Net.second.weight");
    }
    x = ops.linear(From::Op(x), "Net.first.weight");
    let found = infer(&tree, None, ops.0);
    // `first` comes again, but not with the same others: one root call.
    let [root] = found.calls.as_slice() else {
        panic!("{:?}", paths(&found.calls))
    };
    let numbers: Vec<(&str, u64)> = root
        .children
        .iter()
        .map(|node| (node.path.as_str(), node.call))
        .collect();
    assert_eq!(
        numbers,
        [
            ("Net.first", 0),
            ("Net.second", 0),
            ("Net.second", 1),
            ("Net.second", 2),
            ("Net.first", 1)
        ]
    );
    assert_eq!(ids(root.outputs.as_ref()), [x as u64]);
}

#[test]
fn a_shared_parameter_is_told_apart_by_the_operation() {
    let fields = [
        ("embed", "Struct:Net"),
        ("embed.weight!", "Struct:Embedding"),
        ("head", "Struct:Net"),
        ("head.weight! = embed.weight", "Struct:Linear"),
    ];
    let tied = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let at = ops.op("Reshape", &[6], &[From::Outside(0)]);
    let rows = [From::Parameter("Net.embed.weight"), From::Op(at)];
    let rows = ops.op("Select", &[6, 8], &rows);
    let x = ops.op("Reshape", &[2, 3, 8], &[From::Op(rows)]);
    // A form of the parameter, by the embedding's name for it.
    let weight = ops.op("SwapDims", &[8, 8], &[From::Parameter("Net.embed.weight")]);
    let y = ops.op("Matmul", &[2, 3, 8], &[From::Op(x), From::Op(weight)]);
    let found = infer(&tied, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.embed", "Net.head"]);
    let head = &found.calls[0].children[1];
    assert_eq!(given(head), [x as u64]);
    assert_eq!(ids(head.outputs.as_ref()), [y as u64]);
    assert_eq!(head.ops.len(), 2, "the form is the head's");
}

#[test]
fn an_embedding_used_as_a_head_is_not_called_again() {
    let fields = [
        ("embed", "Struct:Net"),
        ("embed.weight!", "Struct:Embedding"),
        ("fc", "Struct:Net"),
        ("fc.weight!", "Struct:Linear"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let at = ops.op("Reshape", &[6], &[From::Outside(0)]);
    let rows = [From::Parameter("Net.embed.weight"), From::Op(at)];
    let rows = ops.op("Select", &[6, 8], &rows);
    let x = ops.op("Reshape", &[2, 3, 8], &[From::Op(rows)]);
    let weight = [From::Op(x), From::Parameter("Net.embed.weight")];
    let y = ops.op("Matmul", &[2, 3, 8], &weight);
    let fc = [From::Op(y), From::Parameter("Net.fc.weight")];
    ops.op("Matmul", &[2, 3, 8], &fc);
    let found = infer(&net, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.embed", "Net.fc"]);
    assert_eq!(found.calls[0].ops.len(), 1);
    assert!(found.rest.is_empty());
}

#[test]
fn copies_of_a_layer_take_turns() {
    let fields = [
        ("layers", "Struct:Net"),
        ("layers.0", "Vec"),
        ("layers.0.weight!", "Struct:Linear"),
        ("layers.1", "Vec"),
        ("layers.1.weight! = layers.0.weight", "Struct:Linear"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let x = ops.linear(From::Outside(0), "Net.layers.0.weight");
    ops.linear(From::Op(x), "Net.layers.0.weight");
    let found = infer(&net, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.layers.0", "Net.layers.1"]);
}

/// A module of the user's own: nothing in the table fits.
#[test]
fn a_norm_of_unknown_make_goes_back_to_where_its_input_branches() {
    let fields = [
        ("fc", "Struct:Net"),
        ("fc.weight!", "Struct:Linear"),
        ("norm", "Struct:Net"),
        ("norm.scale!", "Struct:MyNorm"),
        ("norm.shift!", "Struct:MyNorm"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let shape = [2, 8];
    let fc = ops.linear(From::Outside(0), "Net.fc.weight");
    let sum = ops.op("Add", &shape, &[From::Op(fc), From::Outside(1)]);
    let size = ops.op("Abs", &shape, &[From::Op(sum)]);
    let most = ops.op("MaxDim", &[2, 1], &[From::Op(size)]);
    let ratio = ops.op("Div", &shape, &[From::Op(sum), From::Op(most)]);
    let scale = [From::Op(ratio), From::Parameter("Net.norm.scale")];
    let scaled = ops.op("Mul", &shape, &scale);
    let shift = [From::Op(scaled), From::Parameter("Net.norm.shift")];
    let shifted = ops.op("Add", &shape, &shift);
    let after = ops.op("Exp", &shape, &[From::Op(shifted)]);
    let found = infer(&net, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.fc", "Net.norm"]);
    let norm = &found.calls[0].children[1];
    assert_eq!(given(norm), [sum as u64]);
    assert_eq!(ids(norm.outputs.as_ref()), [shifted as u64]);
    assert_eq!(norm.ops.len(), 5);
    assert!(found.notes[0].contains("Net.norm"), "{:?}", found.notes);
    let rest: Vec<u64> = found.rest.iter().map(|op| op.order).collect();
    assert_eq!(rest, [after as u64]);
}

#[test]
fn a_product_of_unknown_make_takes_nothing_from_before() {
    let fields = [
        ("fc", "Struct:Net"),
        ("fc.weight!", "Struct:Linear"),
        ("mix", "Struct:Net"),
        ("mix.table!", "Struct:Mix"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let fc = ops.linear(From::Outside(0), "Net.fc.weight");
    let squeezed = ops.op("Exp", &[2, 8], &[From::Op(fc)]);
    let table = [From::Op(squeezed), From::Parameter("Net.mix.table")];
    ops.op("Powf", &[2, 8], &table);
    let found = infer(&net, None, ops.0);
    let mix = &found.calls[0].children[1];
    assert_eq!(given(mix), [squeezed as u64]);
    assert_eq!(mix.ops.len(), 1);
    assert_eq!(found.calls[0].ops.len(), 1);
}

/// The larger pattern wins: a tanh inside of a GELU is none of its own, and each of two activations
/// gets its own operations.
#[test]
fn activations_are_told_apart_by_type() {
    let fields = [
        ("fc", "Struct:Net"),
        ("fc.weight!", "Struct:Linear"),
        ("bend", "Struct:Net"),
        ("squash", "Struct:Net"),
        ("end", "Struct:Net"),
        ("end.weight!", "Struct:Linear"),
    ];
    let debug =
        "Net { fc: Linear { }, bend: Bend { function: GeluTanh }, squash: Tanh, end: Linear { } }";
    let net = tree("Net", &fields, debug);
    let mut ops = Stream::default();
    let shape = [2, 8];
    let x = ops.linear(From::Outside(0), "Net.fc.weight");
    let mut p = ops.op("PowfScalar", &shape, &[From::Op(x)]);
    p = ops.op("MulScalar", &shape, &[From::Op(p)]);
    p = ops.op("Add", &shape, &[From::Op(x), From::Op(p)]);
    p = ops.op("MulScalar", &shape, &[From::Op(p)]);
    p = ops.op("Tanh", &shape, &[From::Op(p)]);
    p = ops.op("AddScalar", &shape, &[From::Op(p)]);
    p = ops.op("Mul", &shape, &[From::Op(x), From::Op(p)]);
    let bent = ops.op("MulScalar", &shape, &[From::Op(p)]);
    let squashed = ops.op("Tanh", &shape, &[From::Op(bent)]);
    ops.linear(From::Op(squashed), "Net.end.weight");
    let found = infer(&net, None, ops.0);
    assert_eq!(
        paths(&found.calls),
        ["Net", "Net.fc", "Net.bend", "Net.squash", "Net.end"]
    );
    let parts = &found.calls[0].children;
    assert_eq!(
        (given(&parts[1]), ids(parts[1].outputs.as_ref())),
        (vec![x as u64], vec![bent as u64])
    );
    assert_eq!(ids(parts[2].outputs.as_ref()), [squashed as u64]);
    assert_eq!(parts[1].kind.as_deref(), Some("Bend"));
}

/// Attention in single operations: scores, a softmax with a second result that nobody reads, the sum,
/// and heads that are joined where they were split.
#[test]
fn what_makes_one_result_of_several_belongs_where_they_were_made() {
    let fields = [
        ("own", "Struct:Net"),
        ("own.q", "Struct:Attention"),
        ("own.q.weight!", "Struct:Linear"),
        ("own.k", "Struct:Attention"),
        ("own.k.weight!", "Struct:Linear"),
        ("own.v", "Struct:Attention"),
        ("own.v.weight!", "Struct:Linear"),
        ("out", "Struct:Net"),
        ("out.fc", "Struct:Output"),
        ("out.fc.weight!", "Struct:Linear"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    let heads = [2, 2, 4];
    let [q, k, v] = ["q", "k", "v"].map(|part| {
        let x = ops.linear(From::Outside(0), &format!("Net.own.{part}.weight"));
        ops.op("Reshape", &heads, &[From::Op(x)])
    });
    let scores = ops.op("Matmul", &heads, &[From::Op(q), From::Op(k)]);
    let most = ops.op("MaxDimWithIndices", &heads, &[From::Op(scores)]);
    ops.0[most].outputs.push(Output {
        label: "out_indices".to_owned(),
        tensor: record(5_000, heads.to_vec(), DType::I32),
        alias_of: None,
    });
    let less = ops.op("Sub", &heads, &[From::Op(scores), From::Op(most)]);
    let weighted = ops.op("Matmul", &heads, &[From::Op(less), From::Op(v)]);
    let joined = ops.op("Reshape", &[2, 8], &[From::Op(weighted)]);
    let y = ops.linear(From::Op(joined), "Net.out.fc.weight");
    // One result of one tensor: nothing says whose it is.
    let end = ops.op("Exp", &[2, 8], &[From::Op(y)]);
    let found = infer(&net, None, ops.0);
    let [root] = found.calls.as_slice() else {
        panic!("{:?}", paths(&found.calls))
    };
    assert!(root.ops.is_empty(), "{:?}", root.ops);
    let own = &root.children[0];
    assert_eq!((own.path.as_str(), own.ops.len()), ("Net.own", 8));
    assert_eq!(ids(own.outputs.as_ref()), [joined as u64]);
    assert_eq!(given(&root.children[1]), [joined as u64]);
    let rest: Vec<u64> = found.rest.iter().map(|op| op.order).collect();
    assert_eq!(rest, [end as u64]);
}

/// A linear layer on a tensor that was reshaped before: the layout is not the layer's.
#[test]
fn a_layout_before_a_layer_is_not_its_own() {
    let net = tree("Net", TWO, "");
    let mut ops = Stream::default();
    let x = ops.op("Exp", &[2, 4, 2], &[From::Outside(0)]);
    let flat = ops.op("Reshape", &[2, 8], &[From::Op(x)]);
    let y = ops.linear(From::Op(flat), "Net.first.weight");
    let split = ops.op("Reshape", &[2, 2, 4], &[From::Op(y)]);
    let z = ops.op("Reshape", &[2, 8], &[From::Op(split)]);
    ops.linear(From::Op(z), "Net.second.weight");
    let found = infer(&net, None, ops.0);
    let first = &found.calls[0].children[0];
    assert_eq!(given(first), [flat as u64]);
    assert_eq!(ids(first.outputs.as_ref()), [y as u64]);
}

#[test]
fn the_variant_of_an_enum_is_the_enum_itself() {
    let fields = [
        ("mix", "Struct:Net"),
        ("mix.Full", "Enum:Mix"),
        ("mix.Full.weight!", "Struct:Linear"),
    ];
    let net = tree("Net", &fields, "");
    let mut ops = Stream::default();
    ops.linear(From::Outside(0), "Net.mix.Full.weight");
    let found = infer(&net, None, ops.0);
    assert_eq!(paths(&found.calls), ["Net", "Net.mix"]);
    assert_eq!(found.calls[0].children[0].kind.as_deref(), Some("Mix"));
    assert!(found.notes.is_empty(), "its pattern is the variant's");
}

#[test]
fn two_models_are_two_roots() {
    let mut net = tree("Teacher", TWO, "");
    let entered =
        [("fc", "Struct:Student"), ("fc.weight", "Struct:Linear")].map(|(path, container)| {
            Entered {
                path: path.to_owned(),
                container: container.to_owned(),
            }
        });
    let full = |path: &str| match path {
        "" => "Student".to_owned(),
        path => format!("Student.{path}"),
    };
    let mut shared: HashMap<usize, usize> = HashMap::new();
    net.add(
        full,
        &entered,
        &[(77, "fc.weight".to_owned())],
        &mut shared,
        &DebugText::default(),
    );
    let mut ops = Stream::default();
    let x = ops.linear(From::Outside(0), "Teacher.first.weight");
    ops.linear(From::Op(x), "Teacher.second.weight");
    ops.linear(From::Outside(0), "Student.fc.weight");
    let found = infer(&net, None, ops.0);
    assert_eq!(
        paths(&found.calls),
        [
            "Teacher",
            "Teacher.first",
            "Teacher.second",
            "Student",
            "Student.fc"
        ]
    );
}
