//! Operations, and what is said of tensors and of operations after their own lines.

use std::{fmt::Write as _, fs, sync::Arc};

use burnscope::{
    format::{
        MAX_CALL_DEPTH, WriteError,
        jsonl::{Header, JsonlWriter},
    },
    summary::{DType, Number, Summary},
    trace::{
        Attribution, Node, Op, Operand, Output, Printed, TensorRecord, TensorValue, Trace, Value,
    },
};

use crate::{count, node, read, small_tensor};

const HEADER: &str = r#"{"kind":"header","schema":"1.1","name":"M","program":"p"}"#;

fn summary(mean: f64) -> Summary {
    Summary {
        count: 2,
        mean: Some(mean),
        std: Some(0.5),
        min: Some(Number::Float(-1.0)),
        max: Some(Number::Float(1.0)),
        nan: 0,
        pos_inf: 0,
        neg_inf: 0,
        zeros: 0,
        abs_max: Some(1.0),
        l2: 1.0,
        first_non_finite: None,
        checksum: 7,
    }
}

fn file(id: u64, name: &str) -> Arc<TensorRecord> {
    let mut tensor = (*small_tensor(id)).clone();
    tensor.value = Some(TensorValue::File(name.to_owned()));
    Arc::new(tensor)
}

fn op(order: u64, reads: &[u64], makes: &[&Arc<TensorRecord>]) -> Op {
    let operand = |&id| Operand {
        label: "lhs".to_owned(),
        id,
        shape: vec![2],
        dtype: DType::F32,
        parameter: None,
    };
    let output = |&tensor: &&Arc<TensorRecord>| Output {
        label: "out".to_owned(),
        tensor: Arc::clone(tensor),
        alias_of: None,
    };
    Op {
        name: "Exp".to_owned(),
        order,
        inputs: reads.iter().map(operand).collect(),
        outputs: makes.iter().map(output).collect(),
        device: "cuda:0".to_owned(),
        ..Op::default()
    }
}

/// What is read of the record that `write` makes, and the record's text.
fn written(write: impl FnOnce(&mut JsonlWriter)) -> (Trace, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.jsonl");
    let mut writer = JsonlWriter::create(&path, &Header::now("M")).unwrap();
    write(&mut writer);
    writer.finish(true).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    (read(text.as_bytes()).unwrap(), text)
}

fn lines<'t>(text: &'t str, kind: &str) -> Vec<&'t str> {
    let start = format!("{{\"kind\":\"{kind}\",");
    text.lines()
        .filter(|line| line.starts_with(&start))
        .collect()
}

fn output(node: &Node) -> &TensorRecord {
    match &node.outputs {
        Some(Value::Tensor(tensor)) => tensor,
        other => panic!("{other:?}"),
    }
}

#[test]
fn late_numbers_reach_every_line_of_a_tensor_and_its_elements_their_own() {
    let printed = Printed {
        mean: "tensor(0.2500)".to_owned(),
        std: "tensor(0.5000)".to_owned(),
        min: "tensor(-1.)".to_owned(),
        max: "tensor(1.)".to_owned(),
    };
    let (before, after) = (file(7, "a"), file(7, "b"));
    let mut measured = (*file(7, "c")).clone();
    measured.summary = Some(summary(9.0));
    let measured = Arc::new(measured);
    let mut resolved = (*small_tensor(7)).clone();
    resolved.summary = Some(summary(0.25));
    resolved.printed = Some(printed.clone());
    resolved.value = Some(TensorValue::Lines(vec!["tensor([-1., 1.])".to_owned()]));
    let other = small_tensor(8);
    let pending = small_tensor(7);
    let (trace, text) = written(|writer| {
        let mut call = |order, tensor: &Arc<TensorRecord>| {
            let mut node = node("M", order);
            node.outputs = Some(Value::Tensor(Arc::clone(tensor)));
            let call = writer.enter(None, &node).unwrap();
            writer.exit(call, &node).unwrap();
        };
        for (order, tensor) in [&before, &pending, &measured, &other]
            .into_iter()
            .enumerate()
        {
            call(order as u64, tensor);
        }
        writer.summary(&pending, &resolved).unwrap();
        let mut call = |order, tensor: &Arc<TensorRecord>| {
            let mut node = node("M", order);
            node.outputs = Some(Value::Tensor(Arc::clone(tensor)));
            let call = writer.enter(None, &node).unwrap();
            writer.exit(call, &node).unwrap();
        };
        call(4, &after);
        // The same tensor as it was before, and as it is now.
        call(5, &small_tensor(7));
        call(6, &Arc::new(resolved.clone()));
    });
    let numbers = |at: usize| {
        let tensor = output(&trace.roots[at]);
        (tensor.summary.clone(), tensor.printed.clone())
    };
    let late = (Some(summary(0.25)), Some(printed.clone()));
    for at in [0, 1, 4, 5, 6] {
        assert_eq!(numbers(at), late, "call {at}");
    }
    assert_eq!(numbers(2), (Some(summary(9.0)), Some(printed)));
    assert_eq!(numbers(3), (None, None));
    assert_eq!(output(&trace.roots[0]).value, before.value);
    assert_eq!(output(&trace.roots[4]).value, after.value);
    for at in [1, 5, 6] {
        assert_eq!(*output(&trace.roots[at]), resolved, "call {at}");
    }
    assert_eq!(lines(&text, "tensor").len(), 5, "{text}");
    assert_eq!(lines(&text, "summary").len(), 3, "{text}");
}

#[test]
fn a_reason_and_a_summary_replace_each_other() {
    let tensor = small_tensor(1);
    let mut refused = (*tensor).clone();
    refused.not_summarised = Some("the device has no f8".to_owned());
    let mut resolved = (*tensor).clone();
    resolved.summary = Some(summary(1.0));
    for (first, last) in [(&refused, &resolved), (&resolved, &refused)] {
        let (trace, _) = written(|writer| {
            writer.op(None, &op(0, &[], &[&tensor])).unwrap();
            writer.summary(&tensor, first).unwrap();
            // Told of the number alone, by a record that the writer has not seen.
            writer.summary(&small_tensor(1), last).unwrap();
        });
        assert_eq!(*trace.ops[0].outputs[0].tensor, *last);
    }
    let unknown = written(|writer| writer.summary(&tensor, &resolved).unwrap());
    assert_eq!(lines(&unknown.1, "summary"), [""; 0]);
}

#[test]
fn an_operations_output_that_a_module_returns_has_one_line() {
    let tensor = small_tensor(3);
    let (trace, text) = written(|writer| {
        let mut root = node("M", 0);
        let call = writer.enter(None, &root).unwrap();
        let mut exp = op(5, &[2], &[&tensor]);
        exp.inputs[0].parameter = Some("M.weight".to_owned());
        exp.outputs[0].alias_of = Some(2);
        exp.scalars = vec![("dim".to_owned(), "1".to_owned()); 2];
        writer.op(Some(call), &exp).unwrap();
        root.outputs = Some(Value::Tensor(small_tensor(3)));
        writer.exit(call, &root).unwrap();
    });
    assert_eq!(lines(&text, "tensor").len(), 1);
    assert_eq!(
        lines(&text, "op"),
        [concat!(
            r#"{"kind":"op","op":0,"node":0,"name":"Exp","order":5,"#,
            r#""inputs":[{"label":"lhs","id":2,"shape":[2],"dtype":"f32","parameter":"M.weight"}],"#,
            r#""outputs":[{"label":"out","tensor":0,"alias_of":2}],"#,
            r#""scalars":{"dim":"1","dim":"1"},"stream":0,"device":"cuda:0"}"#
        )]
    );
    assert_eq!(trace.roots[0].ops[0].outputs[0].tensor, tensor);
}

#[test]
fn where_operations_belong_can_be_told_later_and_more_closely() {
    let (trace, text) = written(|writer| {
        let outer = writer.enter(None, &node("M", 0)).unwrap();
        for order in 10..15 {
            let call = (order < 13).then_some(outer);
            writer.op(call, &op(order, &[], &[])).unwrap();
        }
        // Where the device took them in another order.
        writer.op(Some(outer), &op(9, &[], &[])).unwrap();
        writer.exit(outer, &node("M", 0)).unwrap();
        let mut inner = node("M.a", 1);
        inner.attribution = Attribution::Inferred;
        let inner = writer.enter(Some(outer), &inner).unwrap();
        writer.ops(inner, &[10, 11, 13]).unwrap();
        writer.ops(inner, &[]).unwrap();
        let exact = writer.enter(None, &node("N", 2)).unwrap();
        writer.ops(exact, &[14]).unwrap();
        for order in [16, 15] {
            writer.op(None, &op(order, &[], &[])).unwrap();
        }
    });
    assert_eq!(
        lines(&text, "ops"),
        [
            r#"{"kind":"ops","node":1,"inferred":true,"ops":[[0,2],[3,1]]}"#,
            r#"{"kind":"ops","node":2,"ops":[[4,1]]}"#
        ]
    );
    let found = |ops: &[Op]| -> Vec<(u64, Attribution)> {
        ops.iter().map(|op| (op.order, op.attribution)).collect()
    };
    let [outer, exact] = &trace.roots[..] else {
        panic!("{trace:?}");
    };
    use Attribution::{Exact, Inferred};
    assert_eq!(found(&outer.ops), [(9, Exact), (12, Exact)]);
    assert_eq!(
        found(&outer.children[0].ops),
        [(10, Inferred), (11, Inferred), (13, Inferred)]
    );
    assert_eq!(found(&exact.ops), [(14, Exact)]);
    assert_eq!(found(&trace.ops), [(15, Exact), (16, Exact)]);
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let (trace, text) = written(|writer| {
        let a = writer.enter(None, &node("A", 0)).unwrap();
        let b = writer.enter(None, &node("B", 1)).unwrap();
        writer.op(Some(a), &op(0, &[], &[])).unwrap();
        for order in 1..4 {
            writer.op(None, &op(order, &[], &[])).unwrap();
        }
        writer.ops(b, &[3]).unwrap();
        let refused = |writer: &mut JsonlWriter, call, ops: &[u64]| match writer.ops(call, ops) {
            Err(WriteError::UnknownOp { op, .. }) => op,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(writer, a, &[1, 4]), 4);
        assert_eq!(refused(writer, b, &[1, 0]), 0);
        assert_eq!(refused(writer, a, &[1, 3]), 3);
        assert_eq!(refused(writer, a, &[2, 2]), 2);
        // Nothing of the refused lists was kept.
        writer.ops(b, &[2, 1]).unwrap();
        assert_eq!(refused(writer, b, &[2]), 2);
    });
    assert_eq!(lines(&text, "ops").len(), 2);
    let orders: Vec<u64> = trace.roots[1].ops.iter().map(|op| op.order).collect();
    assert_eq!(orders, [1, 2, 3]);
    let folder = tempfile::tempdir().unwrap();
    let mut other = JsonlWriter::create(folder.path().join("n"), &Header::now("N")).unwrap();
    let call = other.enter(None, &node("N", 0)).unwrap();
    written(|writer| {
        let error = writer.op(Some(call), &op(0, &[], &[])).unwrap_err();
        assert!(matches!(error, WriteError::UnknownCall { node: 0, .. }));
        let error = writer.ops(call, &[]).unwrap_err();
        assert!(matches!(error, WriteError::UnknownCall { node: 0, .. }));
    });
}

#[test]
fn a_damaged_line_about_operations_is_an_error_that_names_it() {
    let lines = [
        HEADER,
        r#"{"kind":"tensor","tensor":0,"dtype":"f32","shape":[]}"#,
        r#"{"kind":"enter","node":0,"path":"A","step":0,"call":0}"#,
        r#"{"kind":"enter","node":1,"path":"B","step":0,"call":0}"#,
        r#"{"kind":"enter","node":2,"parent":1,"path":"B.c","step":0,"call":0}"#,
        r#"{"kind":"op","op":0,"node":0,"name":"Exp","inputs":[],"outputs":[],"scalars":{},"stream":0,"device":""}"#,
        r#"{"kind":"op","op":1,"name":"Exp","inputs":[],"outputs":[{"label":"out","tensor":0}],"scalars":{},"stream":0,"device":""}"#,
        r#"{"kind":"op","op":2,"node":1,"name":"Exp","inputs":[],"outputs":[],"scalars":{},"stream":0,"device":""}"#,
        r#"{"kind":"ops","node":2,"ops":[[2,1]]}"#,
    ];
    let op = |number: &str, rest: &str, inputs: &str, outputs: &str| {
        format!(
            r#"{{"kind":"op","op":{number},"name":"x",{rest}"inputs":[{inputs}],"outputs":[{outputs}],"scalars":{{}},"stream":0,"device":""}}"#
        )
    };
    let ops = |node: u64, ops: &str| format!(r#"{{"kind":"ops","node":{node},"ops":{ops}}}"#);
    for (line, reason) in [
        (op("2", "", "", ""), "operation 2 where 3 is next"),
        (op("-3", "", "", ""), "invalid value"),
        (op("3", r#""node":3,"#, "", ""), "call 3 has no enter line"),
        (op("3", r#""backward":1,"#, "", ""), "invalid type"),
        (
            op("3", "", "", r#"{"label":"out","tensor":1}"#),
            "tensor 1 has no line",
        ),
        (
            op(
                "3",
                "",
                r#"{"label":"","id":1,"shape":[4294967296,4294967296],"dtype":"f32"}"#,
                "",
            ),
            "more elements",
        ),
        (
            r#"{"kind":"op","op":3,"name":"x"}"#.to_owned(),
            "missing field `inputs`",
        ),
        (
            r#"{"kind":"summary","tensor":1}"#.to_owned(),
            "tensor 1 has no line",
        ),
        (
            r#"{"kind":"summary","tensor":18446744073709551615}"#.to_owned(),
            "tensor 18446744073709551615 has no line",
        ),
        (
            r#"{"kind":"summary","tensor":0,"lines":[],"file":"a"}"#.to_owned(),
            "both `lines` and `file`",
        ),
        (ops(3, "[]"), "call 3 has no enter line"),
        (ops(0, "[[3,1]]"), "operation 3 has no line"),
        (ops(0, "[[1,18446744073709551615]]"), "has no end"),
        (
            ops(0, "[[1,18446744073709551614]]"),
            "operation 2 belongs to two calls, 2 and 0",
        ),
        (
            ops(1, "[[0,1]]"),
            "operation 0 belongs to two calls, 0 and 1",
        ),
        (ops(2, "[[1,1],[1,1]]"), "operation 1 is named twice"),
        // More closely, but for the second time.
        (ops(2, "[[2,1]]"), "operation 2 is named twice"),
        (ops(0, "[[1]]"), "invalid length 1"),
        (ops(0, "[[1,1,1]]"), "trailing characters"),
        (ops(0, "[[1,-1]]"), "invalid value"),
    ] {
        let enough = r#"{"kind":"finish","complete":true}"#;
        let file = [&lines[..], &[&line, enough]].concat().join("\n");
        let error = read(file.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{line}: {error}");
        assert!(error.starts_with("m.jsonl: line 10: "), "{error}");
    }
    let trace = read(lines.join("\n").as_bytes()).unwrap();
    assert_eq!(trace.roots[1].children[0].ops.len(), 1);
}

#[test]
fn a_record_of_schema_1_0_reads_as_before() {
    let record = r#"{"kind":"header","schema":"1.0","name":"LlamaForCausalLM","program":"burnscope 0.1.0","started_unix_ms":1796067152728,"device":"cpu","options":{"dump":"repr"}}
{"kind":"tensor","tensor":0,"id":0,"dtype":"i64","shape":[1,6],"device":"cpu","summary":{"count":6,"mean":26.666666666666668,"std":7.52772652709081,"min":18,"max":39,"nan":0,"pos_inf":0,"neg_inf":0,"zeros":0,"abs_max":39.0,"l2":67.45368781616021,"checksum":"0000000000000219"},"lines":["tensor([[39, 27, 18, 20, 26, 30]])"]}
{"kind":"enter","node":0,"path":"LlamaForCausalLM","type":"LlamaForCausalLM","method":"forward","step":0,"call":0,"start_ns":41500,"inputs":{"args":[],"kwargs":{"input_ids":{"tensor":0}}}}
{"kind":"enter","node":1,"parent":0,"path":"LlamaForCausalLM.embed_tokens","step":0,"call":0,"order":5,"inferred":true,"inputs":{"args":[{"tensor":0},["None"],{"map":{"theta":"10000.0"}}],"kwargs":{}}}
{"kind":"exit","node":1,"elapsed_ns":212300,"outputs":{"tensor":0},"pruned":["LlamaForCausalLM.layers.1"]}
{"kind":"exit","node":0,"complete":false}
{"kind":"note","text":"the forward panicked: index out of bounds"}
{"kind":"finish","complete":false}
"#;
    let trace = read(record.as_bytes()).unwrap();
    let [root] = &trace.roots[..] else {
        panic!("{trace:?}");
    };
    assert_eq!(
        (root.kind.as_deref(), root.complete),
        (Some("LlamaForCausalLM"), false)
    );
    let [child] = &root.children[..] else {
        panic!("{trace:?}");
    };
    assert_eq!((child.order, child.attribution), (5, Attribution::Inferred));
    assert_eq!(child.pruned, ["LlamaForCausalLM.layers.1"]);
    let tensor = output(child);
    assert_eq!(tensor.summary.as_ref().unwrap().max, Some(Number::Int(39)));
    assert_eq!(tensor.shape, [1, 6]);
    assert_eq!(trace.notes, ["the forward panicked: index out of bounds"]);
    assert!(trace.ops.is_empty() && root.ops.is_empty() && child.ops.is_empty());
}

#[test]
fn operations_of_calls_that_nest_too_deep_go_with_them() {
    const CALLS: u64 = 20_000;
    let mut text = HEADER.to_owned() + "\n";
    for node in 0..CALLS {
        let parent = match node {
            0 => String::new(),
            _ => format!(r#""parent":{},"#, node - 1),
        };
        writeln!(
            text,
            r#"{{"kind":"enter","node":{node},{parent}"path":"M","step":0,"call":{node}}}"#
        )
        .unwrap();
    }
    writeln!(
        text,
        r#"{{"kind":"enter","node":{CALLS},"path":"N","step":0,"call":0}}"#
    )
    .unwrap();
    let op = |text: &mut String, op: u64, node: u64| {
        writeln!(
            text,
            r#"{{"kind":"op","op":{op},"node":{node},"name":"Exp","inputs":[],"outputs":[],"scalars":{{}},"stream":0,"device":""}}"#
        )
        .unwrap();
    };
    // Made by the outermost call, and told later to belong to an inner one.
    (0..CALLS).for_each(|number| op(&mut text, number, 0));
    // The way up from a call that the trace will not have is not searched.
    op(&mut text, CALLS, CALLS);
    let half = CALLS / 2;
    for (node, first, count) in [
        (MAX_CALL_DEPTH as u64 - 1, 0, half),
        (CALLS - 1, half, half + 1),
    ] {
        writeln!(
            text,
            r#"{{"kind":"ops","node":{node},"ops":[[{first},{count}]]}}"#
        )
        .unwrap();
    }
    let trace = read(text.as_bytes()).unwrap();
    assert_eq!(count(&trace.roots), MAX_CALL_DEPTH + 1);
    assert!(trace.roots[1].ops.is_empty() && trace.ops.is_empty());
    let mut node = &trace.roots[0];
    while let [child] = &node.children[..] {
        assert!(node.ops.is_empty());
        node = child;
    }
    assert_eq!(node.ops.len() as u64, half);
}
