//! The `burnscope show` command, run as a user runs it.
#![cfg(feature = "cli")]

use std::{
    path::Path,
    process::{Command, Output as Run},
    sync::Arc,
};

use burnscope::{
    format::{jsonl, write_all},
    summary::{DType, Number, Summary},
    trace::{Attribution, Node, Op, Operand, Output, Printed, TensorRecord, Trace, Value},
};

/// Runs the command and returns what it printed, without colours.
fn show(trace: &Path, arguments: &[&str]) -> String {
    let Run {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_burnscope"))
        .arg("show")
        .arg(trace)
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
    assert_eq!(status.code(), Some(0));
    String::from_utf8(stdout).unwrap()
}

fn tensor(id: u64, shape: &[usize], mean: Option<f64>) -> Arc<TensorRecord> {
    Arc::new(TensorRecord {
        shape: shape.to_vec(),
        dtype: DType::F32,
        device: Some("cuda:0".to_owned()),
        id: Some(id),
        summary: mean.map(|mean| Summary {
            count: 6,
            mean: Some(mean),
            std: Some(0.5),
            min: Some(Number::Float(-1.0)),
            max: Some(Number::Float(2.0)),
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            zeros: 0,
            abs_max: Some(2.0),
            l2: 1.0,
            first_non_finite: None,
            checksum: 7,
        }),
        not_summarised: None,
        printed: None,
        value: None,
    })
}

fn operand(id: u64, parameter: Option<&str>) -> Operand {
    Operand {
        label: "lhs".to_owned(),
        id,
        shape: vec![2, 3],
        dtype: DType::F32,
        parameter: parameter.map(str::to_owned),
    }
}

fn op(order: u64, name: &str, inputs: Vec<Operand>, makes: &[&Arc<TensorRecord>]) -> Op {
    let labels = ["out", "out_indices"];
    let outputs = makes.iter().zip(labels).map(|(tensor, label)| Output {
        label: label.to_owned(),
        tensor: Arc::clone(tensor),
        alias_of: None,
    });
    Op {
        name: name.to_owned(),
        order,
        inputs,
        outputs: outputs.collect(),
        device: "cuda:0".to_owned(),
        ..Op::default()
    }
}

fn call(path: &str, kind: &str, output: &Arc<TensorRecord>) -> Node {
    Node {
        path: path.to_owned(),
        kind: Some(kind.to_owned()),
        method: Some("forward".to_owned()),
        outputs: Some(Value::Tensor(Arc::clone(output))),
        complete: true,
        ..Node::default()
    }
}

/// A model of two modules, one of them concluded, with operations before, in, between and after them.
fn trace() -> Trace {
    let [input, turned, product, shifted, value, made] = [
        tensor(1, &[2, 3], Some(0.0)),
        tensor(2, &[3, 2], None),
        tensor(3, &[2, 2], Some(0.25)),
        tensor(4, &[2, 2], Some(1.25)),
        tensor(5, &[2, 1], Some(1.5)),
        tensor(6, &[2, 1], Some(0.75)),
    ];
    let mut transposed = op(
        1,
        "SwapDims",
        vec![operand(10, Some("M.proj.weight"))],
        &[&turned],
    );
    transposed.outputs[0].alias_of = Some(10);
    transposed.scalars = vec![
        ("dim1".to_owned(), "0".to_owned()),
        ("dim2".to_owned(), "1".to_owned()),
    ];
    transposed.attribution = Attribution::Inferred;
    let matmul = op(
        2,
        "Matmul",
        vec![operand(1, None), operand(2, Some("M.proj.weight"))],
        &[&product],
    );
    let mut proj = call("M.proj", "Linear", &product);
    proj.attribution = Attribution::Inferred;
    proj.ops = vec![transposed, matmul];
    let mut printed = (*value).clone();
    printed.printed = Some(Printed {
        mean: "tensor(1.5000e+00)".to_owned(),
        std: "tensor(5.0000e-01)".to_owned(),
        min: "tensor(-1.0000e+00)".to_owned(),
        max: "tensor(2.0000e+00)".to_owned(),
    });
    let printed = Arc::new(printed);
    let indices = tensor(7, &[2, 1], None);
    let mut pool = call("M.pool", "Pool", &printed);
    pool.ops = vec![op(
        4,
        "MaxDimWithIndices",
        vec![operand(4, None)],
        &[&printed, &indices],
    )];
    let mut root = call("M", "Model", &made);
    let mut shift = op(3, "AddScalar", vec![operand(3, None)], &[&shifted]);
    shift.scalars = vec![("rhs".to_owned(), "1.0".to_owned())];
    let mut scale = op(
        5,
        "Mul",
        vec![operand(5, None), operand(11, Some("Other.scale"))],
        &[&made],
    );
    scale.attribution = Attribution::Inferred;
    root.ops = vec![
        op(0, "Exp", vec![operand(20, None)], &[&input]),
        shift,
        scale,
    ];
    root.children = vec![proj, pool];
    let mut backward = op(
        6,
        "Neg",
        vec![operand(6, None)],
        &[&tensor(8, &[2, 1], Some(-0.75))],
    );
    backward.backward = true;
    Trace {
        name: "M".to_owned(),
        source: "burnscope 0.1.0".to_owned(),
        roots: vec![root],
        ops: vec![backward],
        complete: true,
        notes: Vec::new(),
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace();
    jsonl::write(&folder.path().join("M.burnscope.jsonl"), &trace).unwrap();
    write_all(folder.path(), &trace).unwrap();
    folder
}

/// The lines without the numbers after the mean.
fn columns(text: &str) -> Vec<&str> {
    let kept = |line: &'_ str| line.find("  std ").unwrap_or(line.len());
    text.lines().map(|line| &line[..kept(line)]).collect()
}

#[test]
fn operations_stand_in_program_order_between_the_calls() {
    let folder = folder();
    let text = show(folder.path(), &["--ops"]);
    let expected = "\
M                          Model                       %6 f32[2, 1]               mean  7.5000e-01
├─ 0 Exp                   %20                         %1 f32[2, 3]               mean  0.0000e+00
├─ proj (inferred)         Linear                      %3 f32[2, 2]               mean  2.5000e-01
│  ├─ 1 SwapDims           %10 weight, dim1=0, dim2=1  %2 f32[3, 2]               alias of %10
│  └─ 2 Matmul             %1, %2 weight               %3 f32[2, 2]               mean  2.5000e-01
├─ 3 AddScalar             %3, rhs=1.0                 %4 f32[2, 2]               mean  1.2500e+00
├─ pool                    Pool                        %5 f32[2, 1]               mean  1.5000e+00
│  └─ 4 MaxDimWithIndices  %4                          out: %5 f32[2, 1]          mean  1.5000e+00
│                                                      out_indices: %7 f32[2, 1]
└─ 5 Mul (inferred)        %5, %11 Other.scale         %6 f32[2, 1]               mean  7.5000e-01
6 Neg (backward)           %6                          %8 f32[2, 1]               mean -7.5000e-01";
    assert_eq!(columns(&text), expected.lines().collect::<Vec<_>>());
    // As the modules' lines show them.
    let numbers = "mean  1.5000e+00  std 5.0000e-01  min -1.0000e+00  max  2.0000e+00";
    assert_eq!(text.matches(numbers).count(), 2, "{text}");
}

#[test]
fn without_the_flag_the_tree_has_modules_only() {
    let folder = folder();
    let text = show(folder.path(), &[]);
    let expected = "\
M                   Model   f32[2, 1]  mean  7.5000e-01
├─ proj (inferred)  Linear  f32[2, 2]  mean  2.5000e-01
└─ pool             Pool    f32[2, 1]  mean  1.5000e+00";
    assert_eq!(columns(&text), expected.lines().collect::<Vec<_>>());
}

#[test]
fn filters_and_depth_choose_whose_operations_are_listed() {
    let folder = folder();
    let names = |arguments: &[&str]| -> Vec<String> {
        let text = show(folder.path(), arguments);
        text.lines()
            .map(|line| {
                let words = line.trim_start_matches(['│', '├', '└', '─', ' ']);
                let end = words.find("  ").unwrap_or(words.len());
                words[..end].to_owned()
            })
            .collect()
    };
    assert_eq!(
        names(&["--ops", "--filter", "M.proj"]),
        ["M", "proj (inferred)", "1 SwapDims", "2 Matmul"]
    );
    assert_eq!(
        names(&["--ops", "--depth", "1"]),
        [
            "M",
            "0 Exp",
            "3 AddScalar",
            "5 Mul (inferred)",
            "6 Neg (backward)"
        ]
    );
}

#[test]
fn long_lists_and_texts_of_a_file_keep_a_line_readable() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = trace();
    let matmul = &mut trace.roots[0].children[0].ops[1];
    matmul.name = "Mat\u{1b}[2Jmul".to_owned();
    matmul.inputs = (0..40).map(|id| operand(id, None)).collect();
    matmul.scalars = vec![("options".to_owned(), "x\n".repeat(100))];
    let file = folder.path().join("M.burnscope.jsonl");
    jsonl::write(&file, &trace).unwrap();
    let text = show(&file, &["--ops"]);
    let line = text
        .lines()
        .find(|line| line.contains("2 Mat\\u{1b}[2Jmul"))
        .unwrap_or_else(|| panic!("{text}"));
    let options = format!("%38, %39, options={}…  %3 f32[2, 2]", "x\\n".repeat(20));
    assert!(line.contains(&options), "{line}");
    // The other lines stay in step at the width that the column has at most.
    let other = text.lines().find(|line| line.contains("3 AddScalar"));
    let column = "%3, rhs=1.0".len();
    let gap = " ".repeat(40 - column + 2);
    assert!(
        other.is_some_and(|line| line.contains(&format!("%3, rhs=1.0{gap}%4"))),
        "{text}"
    );
}

#[test]
fn a_trace_without_operations_says_where_there_are_some() {
    let folder = folder();
    let tree = folder.path().join("M_debug_tree_SUMMARY.json");
    assert!(!std::fs::read_to_string(&tree).unwrap().contains("Matmul"));
    let text = show(&tree, &["--ops"]);
    let last = text.lines().last();
    assert!(
        last.is_some_and(|line| line.starts_with("no operations here: only the")),
        "{text}"
    );
    assert!(!show(&tree, &[]).contains("no operations"));
}
