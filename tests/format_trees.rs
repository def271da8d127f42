//! The JSON trees and tensor files are those of transformers' debugger, byte for byte.
//!
//! `BURNSCOPE_TRACES` may name a folder with more cases than the repository has.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use burnscope::{
    format::{
        self, MAX_CALL_DEPTH, MAX_VALUE_DEPTH, ReadError, WriteError,
        dump::{DumpName, DumpNames, DumpReader, write_tensor},
        transformers::{Tree, read_from_slice, to_writer},
    },
    summary::{DType, TensorView},
    trace::{Inputs, Node, TensorRecord, TensorValue, Trace, Value, prune},
};

fn cases() -> PathBuf {
    std::env::var_os("BURNSCOPE_TRACES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces"),
        PathBuf::from,
    )
}

/// The files of a kind of run (`repr`, `tensors`, `pruned`) in all cases whose names end so.
fn files(kind: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for case in fs::read_dir(cases()).unwrap() {
        let Ok(entries) = fs::read_dir(case.unwrap().path().join(kind)) else {
            continue;
        };
        found.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.to_str().unwrap().ends_with(ending)),
        );
    }
    found.sort();
    assert!(!found.is_empty(), "no {kind} case");
    found
}

fn written(trace: &Trace, tree: Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    to_writer(&mut bytes, trace, tree).unwrap();
    bytes
}

fn text(trace: &Trace, tree: Tree) -> String {
    String::from_utf8(written(trace, tree)).unwrap()
}

fn node(path: &str) -> Node {
    Node {
        path: path.to_owned(),
        inputs: Some(Inputs::default()),
        complete: true,
        ..Node::default()
    }
}

fn trace(root: Node) -> Trace {
    Trace {
        name: "M".to_owned(),
        source: "transformers".to_owned(),
        roots: vec![root],
        ops: Vec::new(),
        complete: true,
        notes: Vec::new(),
    }
}

fn walk<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Node)) {
    visit(node);
    for child in &node.children {
        walk(child, visit);
    }
}

#[test]
fn a_tree_that_is_read_and_written_again_has_the_same_bytes() {
    for kind in ["repr", "tensors", "pruned"] {
        for path in files(kind, ".json") {
            let before = fs::read(&path).unwrap();
            let trace = format::read(&path).unwrap();
            let summary = path.to_str().unwrap().ends_with("SUMMARY.json");
            let tree = if summary { Tree::Summary } else { Tree::Full };
            assert!(written(&trace, tree) == before, "{}", path.display());
            assert!(trace.complete && trace.notes.is_empty());
        }
    }
}

#[test]
fn the_summary_is_what_the_full_tree_gives() {
    for kind in ["repr", "tensors", "pruned"] {
        for path in files(kind, "FULL_TENSORS.json") {
            let trace = format::read(&path).unwrap();
            let summary = path
                .to_str()
                .unwrap()
                .replace("FULL_TENSORS.json", "SUMMARY.json");
            assert!(
                written(&trace, Tree::Summary) == fs::read(&summary).unwrap(),
                "{summary}"
            );
        }
    }
}

#[test]
fn every_tensor_of_the_reference_trees_is_read_as_a_tensor() {
    for path in files("repr", "FULL_TENSORS.json") {
        let shapes = fs::read_to_string(&path)
            .unwrap()
            .matches("\"torch.Size([")
            .count();
        let trace = format::read(&path).unwrap();
        let mut tensors = 0;
        walk(&trace.roots[0], &mut |node| {
            for (_, tensor) in named_tensors(node) {
                assert!(matches!(tensor.value, Some(TensorValue::Lines(_))));
                let float = tensor.dtype.is_float();
                assert_eq!(tensor.printed.is_some(), float, "{}", node.path);
                tensors += 1;
            }
        });
        assert_eq!(tensors, shapes);
    }
}

#[test]
fn pruning_a_full_trace_gives_the_pruned_one() {
    for pruned in files("pruned", ".json") {
        let file = pruned.file_name().unwrap();
        let full = pruned.parent().unwrap().with_file_name("repr").join(file);
        let mut trace = format::read(&full).unwrap();
        prune(&mut trace);
        let summary = pruned.to_str().unwrap().ends_with("SUMMARY.json");
        let tree = if summary { Tree::Summary } else { Tree::Full };
        assert!(written(&trace, tree) == fs::read(&pruned).unwrap());
    }
}

/// Each tensor of a call with the name that its file should have.
fn named_tensors(node: &Node) -> Vec<(DumpName, &TensorRecord)> {
    fn collect<'a>(
        name: DumpName,
        value: &'a Value,
        found: &mut Vec<(DumpName, &'a TensorRecord)>,
    ) {
        match value {
            Value::Tensor(tensor) => found.push((name, tensor)),
            Value::List(items) => items
                .iter()
                .enumerate()
                .for_each(|(at, item)| collect(name.clone().index(at), item, found)),
            Value::Map(entries) => entries
                .iter()
                .for_each(|(key, item)| collect(name.clone().key(key), item, found)),
            Value::Text(_) => {}
        }
    }
    let mut found = Vec::new();
    if let Some(inputs) = &node.inputs {
        for (at, value) in inputs.args.iter().enumerate() {
            collect(DumpName::arg(node, at), value, &mut found);
        }
        for (key, value) in &inputs.kwargs {
            collect(DumpName::kwarg(node, key), value, &mut found);
        }
    }
    if let Some(outputs) = &node.outputs {
        collect(DumpName::outputs(node), outputs, &mut found);
    }
    found
}

#[test]
fn tensor_files_have_the_names_that_transformers_gives_them() {
    for path in files("tensors", "FULL_TENSORS.json") {
        let trace = format::read(&path).unwrap();
        let mut names = DumpNames::default();
        let mut seen = 0;
        walk(&trace.roots[0], &mut |node| {
            for (name, tensor) in named_tensors(node) {
                let Some(TensorValue::File(theirs)) = &tensor.value else {
                    panic!("no file in {}", node.path);
                };
                let ours = names.reserve(&name);
                if node.call == 0 {
                    assert_eq!(&ours, theirs);
                } else {
                    // Here transformers overwrote the first call's file.
                    let again = format!("~call{}.safetensors", node.call);
                    assert_eq!(ours, theirs.replace(".safetensors", &again));
                }
                seen += 1;
            }
        });
        assert!(seen > 50, "{seen} tensors in {}", path.display());
    }
    let mut names = DumpNames::default();
    let pooled = DumpName::outputs(&node("BertModel")).key("pooler_output");
    assert_eq!(
        names.reserve(&pooled),
        "BertModel_outputs_pooler_output.safetensors"
    );
}

#[test]
fn a_dumped_tensor_has_the_bytes_that_transformers_writes() {
    let folder = tempfile::tempdir().unwrap();
    let mut dtypes = Vec::new();
    for path in files("tensors", ".safetensors") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let dump = DumpReader::new(path.parent().unwrap()).read(name).unwrap();
        let again = write_tensor(folder.path(), name, &dump.view().unwrap()).unwrap();
        assert!(
            fs::read(again).unwrap() == fs::read(&path).unwrap(),
            "{name}"
        );
        assert_eq!(DumpReader::new(folder.path()).read(name).unwrap(), dump);
        dtypes.push(dump.dtype);
    }
    for dtype in [DType::F32, DType::BF16, DType::I64, DType::Bool] {
        assert!(dtypes.contains(&dtype), "no {dtype} file was checked");
    }
}

#[test]
fn a_strided_tensor_is_dumped_in_row_major_order() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..24u16).flat_map(u16::to_le_bytes).collect();
    // The transpose of the last two of [2, 3, 4], the first dimension flipped.
    let view = TensorView::strided(DType::U16, &[2, 4, 3], &[-12, 1, 4], 12, &bytes).unwrap();
    write_tensor(folder.path(), "t.safetensors", &view).unwrap();
    let dump = DumpReader::new(folder.path())
        .read("t.safetensors")
        .unwrap();
    assert_eq!(dump.shape, [2, 4, 3]);
    let expected: Vec<u8> = (0..2u16)
        .flat_map(|i| (0..4u16).flat_map(move |j| (0..3u16).map(move |k| (1 - i) * 12 + k * 4 + j)))
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(dump.bytes, expected);
    // Broadcast, scalar and empty tensors.
    for (shape, strides, count) in [
        (vec![2, 3], vec![0, 0], 6),
        (vec![], vec![], 1),
        (vec![3, 0], vec![7, 1], 0),
    ] {
        let view = TensorView::strided(DType::U16, &shape, &strides, 5, &bytes).unwrap();
        write_tensor(folder.path(), "t.safetensors", &view).unwrap();
        let dump = DumpReader::new(folder.path())
            .read("t.safetensors")
            .unwrap();
        assert_eq!(dump.bytes, [5, 0].repeat(count), "{shape:?}");
    }
}

#[test]
fn a_dump_reader_does_not_leave_its_folder() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let view = TensorView::contiguous(DType::U8, &[2], &[1, 2]).unwrap();
    let secret = write_tensor(outer.path(), "secret.safetensors", &view).unwrap();
    let reader = DumpReader::new(&inner);
    for name in ["../secret.safetensors", secret.to_str().unwrap(), ".."] {
        let error = reader.read(name).unwrap_err();
        assert!(matches!(error, ReadError::BadName { .. }), "{error}");
        let error = write_tensor(&inner, name, &view).unwrap_err();
        assert!(matches!(error, WriteError::BadName { .. }), "{error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, inner.join("link.safetensors")).unwrap();
        let error = reader.read("link.safetensors").unwrap_err();
        assert!(matches!(error, ReadError::NotAFile { .. }), "{error}");
    }
    let reader = DumpReader::new(outer.path()).max_bytes(10);
    let error = reader.read("secret.safetensors").unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { limit: 10, .. }));
}

#[test]
fn text_is_escaped_as_python_does() {
    let strange = "é😀\u{7f}\0\"\\/\t\u{8}\u{c}\r\n\u{1f}\u{2028}";
    let mut root = node("M");
    root.inputs = Some(Inputs {
        args: Vec::new(),
        kwargs: vec![(strange.to_owned(), Value::Text(strange.to_owned()))],
    });
    // From `json.dumps(..., indent=2)` of CPython 3.11.
    let python = r#""\u00e9\ud83d\ude00\u007f\u0000\"\\/\t\b\f\r\n\u001f\u2028""#;
    let expected = format!(
        "{{\n  \"module_path\": \"M\",\n  \"inputs\": {{\n    \"args\": [],\n    \"kwargs\": {{\n      {python}: {python}\n    }}\n  }}\n}}"
    );
    let trace = trace(root);
    assert_eq!(text(&trace, Tree::Full), expected);
    assert_eq!(
        read_from_slice(expected.as_bytes(), Path::new("a")).unwrap(),
        trace
    );
}

#[test]
fn empty_inputs_and_missing_outputs_are_written_as_transformers_does() {
    let mut root = node("M");
    root.children = vec![node("M.a"), node("M.b")];
    root.outputs = Some(Value::Text("dropped".to_owned()));
    root.children[1].outputs = Some(Value::List(Vec::new()));
    let expected = r#"{
  "module_path": "M",
  "inputs": {
    "args": [],
    "kwargs": {}
  },
  "children": [
    {
      "module_path": "M.a",
      "inputs": {},
      "outputs": null
    },
    {
      "module_path": "M.b",
      "inputs": {},
      "outputs": []
    }
  ]
}"#;
    assert_eq!(text(&trace(root), Tree::Full), expected);
    // Where there is no child, a root keeps its outputs.
    let mut root = node("M");
    root.outputs = Some(Value::Text("1".to_owned()));
    assert!(text(&trace(root), Tree::Full).ends_with("  \"outputs\": \"1\"\n}"));
}

#[test]
fn the_summary_has_no_key_value_anywhere() {
    let mut root = node("M");
    let nested = Value::Map(vec![
        ("value".to_owned(), Value::Text("1".to_owned())),
        ("values".to_owned(), Value::Text("2".to_owned())),
    ]);
    root.inputs = Some(Inputs {
        args: vec![nested],
        kwargs: vec![("value".to_owned(), Value::Text("3".to_owned()))],
    });
    let trace = trace(root);
    let summary = text(&trace, Tree::Summary);
    assert!(!summary.contains("\"value\"") && summary.contains("\"values\": \"2\""));
    assert!(summary.contains("\"kwargs\": {}"));
    assert_eq!(text(&trace, Tree::Full).matches("\"value\"").count(), 2);
}

#[test]
fn an_object_that_only_resembles_a_tensor_stays_an_object() {
    for object in [
        r#"{"shape": "torch.Size([1])"}"#,
        r#"{"shape": "torch.Size([1])", "dtype": "f32"}"#,
        r#"{"shape": "torch.Size([01])", "dtype": "torch.float32"}"#,
        r#"{"shape": "torch.Size([1,2])", "dtype": "torch.float32"}"#,
        r#"{"shape": "torch.Size([4294967296, 4294967296])", "dtype": "torch.float32"}"#,
        r#"{"dtype": "torch.float32", "shape": "torch.Size([1])"}"#,
        r#"{"shape": "torch.Size([1])", "dtype": "torch.float32", "value": "x"}"#,
        r#"{"shape": "torch.Size([1])", "dtype": "torch.float32", "value": [[]]}"#,
        r#"{"shape": "torch.Size([1])", "dtype": "torch.float32", "mean": "1"}"#,
        r#"{"shape": "torch.Size([1])", "dtype": "torch.float32", "more": "1"}"#,
    ] {
        let json = format!(r#"{{"module_path": "M", "outputs": {object}}}"#);
        let trace = read_from_slice(json.as_bytes(), Path::new("a")).unwrap();
        assert!(
            matches!(trace.roots[0].outputs, Some(Value::Map(_))),
            "{object}"
        );
        let compact: String = text(&trace, Tree::Full).split_whitespace().collect();
        let expected: String = json.split_whitespace().collect();
        assert_eq!(compact, expected);
    }
}

#[test]
fn an_error_says_where_it_is() {
    let json = r#"{
  "module_path": "M",
  "inputs": {"args": [], "kwargs": {}},
  "children": [
    {"module_path": "M.a", "inputs": {}, "outputs": null},
    {"module_path": "M.b", "inputs": {"kwargs": {"x": ["1", 2]}}, "outputs": null}
  ]
}"#;
    let error = read_from_slice(json.as_bytes(), Path::new("x.json")).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("x.json: line 6"), "{message}");
    assert!(
        message.contains("in M.b, inputs.kwargs.x[1]: invalid type"),
        "{message}"
    );
    assert!(
        message.ends_with("expected a string, a list or an object"),
        "{message}"
    );
    for (json, reason) in [
        ("{}", "no `module_path`"),
        (r#"{"module_path": "M", "module_path": "M"}"#, "comes twice"),
        (
            r#"{"module_path": "M", "inputs": []}"#,
            "`args` and `kwargs`",
        ),
        (r#"{"module_path": "M", "inputs": {"a": []}}"#, "found `a`"),
        (r#"{"module_path": "M"} x"#, "trailing characters"),
        (r#"{"module_path": "M", "#, "EOF"),
        (r#"{"module_path": "\ud800"}"#, "hex escape"),
    ] {
        let error = read_from_slice(json.as_bytes(), Path::new("x.json")).unwrap_err();
        assert!(error.to_string().contains(reason), "{json}: {error}");
    }
    let long = format!(
        r#"{{"module_path": "{}", "inputs": 3}}"#,
        "M".repeat(100_000)
    );
    let error = read_from_slice(long.as_bytes(), Path::new("x.json")).unwrap_err();
    assert!(error.to_string().len() < 1000);
}

#[test]
fn nesting_is_read_up_to_the_stated_bounds_and_refused_beyond() {
    fn deep(calls: usize, values: usize) -> Trace {
        let mut value = Value::Tensor(Arc::new(TensorRecord {
            shape: vec![0],
            dtype: DType::F32,
            device: None,
            id: None,
            summary: None,
            not_summarised: None,
            printed: None,
            value: Some(TensorValue::Lines(vec!["tensor([])".to_owned()])),
        }));
        for _ in 0..values {
            value = Value::List(vec![value]);
        }
        let mut inner = node("M");
        inner.outputs = Some(value.clone());
        for call in (0..calls - 1).rev() {
            inner = Node {
                children: vec![inner],
                inputs: Some(Inputs {
                    args: vec![value.clone()],
                    kwargs: Vec::new(),
                }),
                call: call as u64,
                order: call as u64,
                ..node("M")
            };
        }
        trace(inner)
    }
    // The innermost call's number follows from the order of calls.
    let renumbered = |mut trace: Trace| {
        let mut count = 0;
        let mut at = &mut trace.roots[0];
        loop {
            (at.call, at.order) = (count, count);
            count += 1;
            match at.children.first_mut() {
                Some(child) => at = child,
                None => break,
            }
        }
        trace
    };
    // Arguments lie in a list of their own, which counts.
    let fits = renumbered(deep(MAX_CALL_DEPTH, MAX_VALUE_DEPTH - 1));
    let bytes = written(&fits, Tree::Full);
    assert_eq!(read_from_slice(&bytes, Path::new("a")).unwrap(), fits);

    let error = to_writer(&mut Vec::new(), &deep(MAX_CALL_DEPTH + 1, 0), Tree::Full).unwrap_err();
    assert!(matches!(error, WriteError::TooDeep), "{error}");
    let cut = written(&deep(1, MAX_VALUE_DEPTH + 1), Tree::Full);
    assert!(
        String::from_utf8(cut.clone())
            .unwrap()
            .contains("<nested too deep>")
    );
    read_from_slice(&cut, Path::new("a")).unwrap();

    for (open, reason) in [
        (r#"{"module_path":"M","children":["#, "calls nest deeper"),
        (r#"{"module_path":"M","calls":["#, "EOF"),
        (r#"{"module_path":"M","outputs":["#, "nest deeper"),
        (r#"{"module_path":"M","unknown":"#, "EOF"),
    ] {
        let json = open.repeat(200_000);
        let error = read_from_slice(json.as_bytes(), Path::new("a")).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(reason), "{message}");
    }
    for nest in ["[", r#"{"a":"#] {
        let json = format!(r#"{{"module_path":"M","outputs":{}"#, nest.repeat(200_000));
        let error = read_from_slice(json.as_bytes(), Path::new("a")).unwrap_err();
        assert!(error.to_string().contains("nest deeper"), "{error}");
    }
}
