//! A trace's files in a folder: which one is read, what each holds, and how writing fails.

use std::{fs, path::Path, sync::Arc};

use burnscope::{
    format::{self, Limits, ReadError, WriteError, jsonl, record_path, write_all},
    summary::{DType, Number, Summary},
    trace::{
        Attribution, Inputs, Node, Printed, TensorRecord, TensorValue, Time, Trace, Value, prune,
    },
};

fn tensor(id: u64, shape: &[usize], printed: Option<&str>, value: TensorValue) -> Value {
    let count = shape.iter().product::<usize>() as u64;
    Value::Tensor(Arc::new(TensorRecord {
        shape: shape.to_vec(),
        dtype: DType::F32,
        device: Some("cpu".to_owned()),
        id: Some(id),
        summary: Some(Summary {
            count,
            mean: (count > 0).then_some(0.1),
            std: (count > 1).then_some(0.2),
            min: (count > 0).then_some(Number::Float(-0.3)),
            max: (count > 0).then_some(Number::Float(0.7)),
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            zeros: 1,
            abs_max: (count > 0).then_some(0.7),
            l2: 0.8,
            first_non_finite: None,
            checksum: u64::MAX - id,
        }),
        not_summarised: None,
        printed: printed.map(|text| Printed {
            mean: text.to_owned(),
            std: text.to_owned(),
            min: text.to_owned(),
            max: text.to_owned(),
        }),
        value: Some(value),
    }))
}

fn lines(text: &str) -> TensorValue {
    TensorValue::Lines(vec![text.to_owned()])
}

/// Two root calls of a model that calls one module twice; the second ends by a panic.
fn our_trace() -> Trace {
    let mut order = 0;
    let mut call = |path: &str, step, call| {
        order += 1;
        Node {
            path: path.to_owned(),
            kind: Some("Linear".to_owned()),
            method: Some("forward".to_owned()),
            step,
            call,
            order: order - 1,
            inputs: Some(Inputs {
                args: vec![tensor(
                    1,
                    &[2],
                    Some("tensor(1.0000e-01)"),
                    lines("tensor([1., 2.])"),
                )],
                kwargs: vec![(
                    "mask".to_owned(),
                    tensor(2, &[0, 4], None, lines("tensor([], size=(0, 4))")),
                )],
            }),
            time: Some(Time {
                start_ns: 10 * order,
                elapsed_ns: Some(5),
            }),
            complete: true,
            ..Node::default()
        }
    };
    let file = TensorValue::File("M.act_outputs~call1.safetensors".to_owned());
    let mut roots = Vec::new();
    for step in 0..2 {
        let mut root = call("M", step, 0);
        for number in 0..2 {
            let mut act = call("M.act", step, number);
            act.outputs = Some(Value::List(vec![
                tensor(3 + number, &[2], Some("tensor(2.0000e-01)"), file.clone()),
                Value::Text("None".to_owned()),
            ]));
            root.children.push(act);
        }
        root.outputs = Some(tensor(9, &[2], None, lines("tensor([3., 4.])")));
        roots.push(root);
    }
    roots[0].children[1].attribution = Attribution::Inferred;
    let last = &mut roots[1];
    last.outputs = None;
    last.complete = false;
    last.time = Some(Time {
        start_ns: 40,
        elapsed_ns: None,
    });
    last.children[1].outputs = None;
    last.children[1].complete = false;
    last.children[1].time = Some(Time {
        start_ns: 60,
        elapsed_ns: None,
    });
    Trace {
        name: "M".to_owned(),
        source: "burnscope 0.1.0".to_owned(),
        roots,
        ops: Vec::new(),
        complete: false,
        notes: vec!["the forward panicked".to_owned()],
    }
}

/// The trace without what a FULL_TENSORS tree does not hold.
fn as_full(trace: &Trace, with_values: bool) -> Trace {
    fn strip_value(value: &Value, with_values: bool) -> Value {
        match value {
            Value::Tensor(tensor) => Value::Tensor(Arc::new(TensorRecord {
                device: None,
                id: None,
                summary: None,
                not_summarised: None,
                value: tensor.value.clone().filter(|_| with_values),
                ..TensorRecord::clone(tensor)
            })),
            Value::List(items) => Value::List(
                items
                    .iter()
                    .map(|item| strip_value(item, with_values))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
    fn strip(node: &mut Node, with_values: bool) {
        node.kind = None;
        node.method = None;
        node.time = None;
        node.attribution = Attribution::Exact;
        node.pruned.clear();
        if !node.children.is_empty() {
            node.outputs = None;
        }
        if let Some(inputs) = &mut node.inputs {
            for arg in &mut inputs.args {
                *arg = strip_value(arg, with_values);
            }
            for (_, arg) in &mut inputs.kwargs {
                *arg = strip_value(arg, with_values);
            }
        }
        node.outputs = node
            .outputs
            .as_ref()
            .map(|value| strip_value(value, with_values));
        for child in &mut node.children {
            strip(child, with_values);
        }
    }
    let mut trace = trace.clone();
    trace.source = "transformers".to_owned();
    trace.notes.clear();
    trace
        .roots
        .iter_mut()
        .for_each(|root| strip(root, with_values));
    // The first root also carries the mark of an incomplete trace.
    trace.roots[0].complete &= trace.complete;
    trace
}

#[test]
fn the_three_files_of_one_run_give_the_same_trace_up_to_what_each_holds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let trace = our_trace();
    let record = record_path(folder, &trace.name);
    jsonl::write(&record, &trace).unwrap();
    let trees = write_all(folder, &trace).unwrap();

    assert_eq!(format::read(&record).unwrap(), trace);
    assert_eq!(format::read(&trees[0]).unwrap(), as_full(&trace, true));
    assert_eq!(format::read(&trees[1]).unwrap(), as_full(&trace, false));

    // Of a folder the file that holds most is read.
    assert_eq!(format::read(folder).unwrap(), trace);
    fs::remove_file(record).unwrap();
    assert_eq!(format::read(folder).unwrap(), as_full(&trace, true));
    fs::remove_file(&trees[0]).unwrap();
    assert_eq!(format::read(folder).unwrap(), as_full(&trace, false));
    fs::remove_file(&trees[1]).unwrap();
    let error = format::read(folder).unwrap_err();
    assert!(matches!(error, ReadError::NoTrace { .. }), "{error}");
}

#[test]
fn a_reader_that_knows_only_transformers_keys_sees_the_first_root_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = our_trace();
    let trees = write_all(folder.path(), &trace).unwrap();
    let several: serde_json::Value = serde_json::from_slice(&fs::read(&trees[0]).unwrap()).unwrap();
    trace.roots.truncate(1);
    trace.complete = true;
    write_all(folder.path(), &trace).unwrap();
    let one: serde_json::Value = serde_json::from_slice(&fs::read(&trees[0]).unwrap()).unwrap();
    for key in ["module_path", "inputs", "children"] {
        assert_eq!(several[key], one[key], "{key}");
    }
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    // An ordinary trace has no key that transformers does not write.
    assert_eq!(keys(&one), ["module_path", "inputs", "children"]);
    assert_eq!(
        keys(&several),
        ["module_path", "inputs", "children", "complete", "calls"]
    );
    let panicked = &several["calls"][0]["children"][1];
    assert_eq!(
        keys(panicked),
        ["module_path", "inputs", "outputs", "complete"]
    );
    assert_eq!(panicked["outputs"], serde_json::Value::Null);
}

#[test]
fn call_and_step_numbers_that_do_not_follow_from_the_order_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = as_full(&our_trace(), true);
    // As a filter leaves it: the first call of the module and the first step were not recorded.
    trace.roots[0].children.remove(0);
    trace.roots.remove(0);
    trace.roots[0].children.remove(0);
    trace.roots[0].order = 0;
    trace.roots[0].children[0].order = 1;
    trace.complete = false;
    let trees = write_all(folder.path(), &trace).unwrap();
    let text = fs::read_to_string(&trees[0]).unwrap();
    assert!(text.contains("\"step\": 1") && text.contains("\"call\": 1"));
    assert_eq!(format::read(&trees[0]).unwrap(), trace);
}

#[test]
fn what_pruning_removed_is_in_the_record_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = our_trace();
    for layer in 0..4 {
        let mut node = trace.roots[0].children[0].clone();
        let path = format!("M.layers.{layer}");
        node.children = vec![Node {
            path: path.clone() + ".norm",
            complete: true,
            ..Node::default()
        }];
        node.path = path;
        trace.roots[0].children.push(node);
    }
    prune(&mut trace);
    let path = record_path(folder.path(), &trace.name);
    jsonl::write(&path, &trace).unwrap();
    let read = format::read(&path).unwrap();
    assert_eq!(
        read.roots[0].children[2].pruned,
        ["M.layers.1", "M.layers.2"]
    );
    let trees = write_all(folder.path(), &trace).unwrap();
    assert!(
        !fs::read_to_string(&trees[0])
            .unwrap()
            .contains("M.layers.1")
    );
}

#[test]
fn several_traces_in_one_folder_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = our_trace();
    write_all(folder.path(), &trace).unwrap();
    trace.name = "Other".to_owned();
    write_all(folder.path(), &trace).unwrap();
    jsonl::write(&record_path(folder.path(), "Other"), &trace).unwrap();
    let error = format::read(folder.path()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("M_debug_tree_FULL_TENSORS.json"),
        "{message}"
    );
    assert!(message.contains("Other.burnscope.jsonl"), "{message}");
    assert!(!message.contains("SUMMARY"), "{message}");
}

#[test]
fn files_are_recognised_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let trace = our_trace();
    let record = folder.path().join("renamed.json");
    jsonl::write(&record, &trace).unwrap();
    assert_eq!(format::read(&record).unwrap(), trace);
    let trees = write_all(folder.path(), &trace).unwrap();
    let tree = folder.path().join("renamed.jsonl");
    fs::rename(&trees[0], &tree).unwrap();
    assert_eq!(format::read(&tree).unwrap(), as_full(&trace, true));
    for content in ["", "   ", "[]", "hello", "{", "\u{feff}{\"module_path\":"] {
        fs::write(&record, content).unwrap();
        let error = format::read(&record).unwrap_err();
        assert!(matches!(error, ReadError::NotATrace { .. }), "{error}");
    }
    let error = format::read(folder.path().join("missing")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_file_beyond_the_limit_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = our_trace();
    let record = record_path(folder.path(), "M");
    jsonl::write(&record, &trace).unwrap();
    let len = fs::metadata(&record).unwrap().len();
    let read = |max_bytes| format::read_with(&record, &Limits { max_bytes });
    assert!(read(len).is_ok());
    let error = read(len - 1).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { .. }), "{error}");
}

#[test]
fn a_name_cannot_lead_out_of_the_folder() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("inner");
    let mut trace = our_trace();
    trace.name = "../../M/..".to_owned();
    let trees = write_all(&inner, &trace).unwrap();
    for path in trees.iter().chain([&record_path(&inner, &trace.name)]) {
        assert_eq!(path.parent(), Some(inner.as_path()));
    }
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 2);
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
}

#[test]
fn a_trace_without_calls_writes_no_tree() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = our_trace();
    trace.roots.clear();
    assert!(write_all(folder.path(), &trace).unwrap().is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_place_that_cannot_be_written_is_a_clear_error_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let trace = our_trace();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for place in [&file, &file.join("below")] {
        let error = write_all(place, &trace).unwrap_err().to_string();
        assert!(
            error.contains("a file is where a folder should be"),
            "{error}"
        );
    }
    // A folder under a file's final name: the rename fails after both were written.
    let taken = folder.path().join("M_debug_tree_FULL_TENSORS.json");
    fs::create_dir_all(taken.join("x")).unwrap();
    assert!(write_all(folder.path(), &trace).is_err());
    assert_eq!(
        left(folder.path()),
        ["M_debug_tree_FULL_TENSORS.json", "file"]
    );
}

#[test]
#[cfg(unix)]
fn a_read_only_folder_is_a_clear_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path().join("probe"), "").is_ok() {
        eprintln!("skipped: this user may write to read-only folders");
        return;
    }
    let error = write_all(folder.path(), &our_trace())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("choose a folder that you may write to"),
        "{error}"
    );
    assert!(left(folder.path()).is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_refuses_midway_leaves_whole_lines_and_no_half_tree() {
    const FOLDER: &str = "BURNSCOPE_TEST_LIMITED_FOLDER";
    let mut trace = our_trace();
    trace.roots = vec![trace.roots[0].clone(); 200];
    if let Some(folder) = std::env::var_os(FOLDER) {
        // In a process that may write files of 8 KiB only.
        let folder = Path::new(&folder);
        let path = record_path(folder, "M");
        let mut writer = jsonl::JsonlWriter::create(&path, &jsonl::Header::now("M")).unwrap();
        let error = (0..1000)
            .find_map(|_| writer.enter(None, &trace.roots[0]).err())
            .unwrap();
        assert!(matches!(error, WriteError::Io { .. }), "{error}");
        let error = writer.note("more").unwrap_err();
        assert!(matches!(error, WriteError::Ended { .. }), "{error}");
        assert!(fs::read_to_string(&path).unwrap().ends_with("}\n"));
        let read = format::read(&path).unwrap();
        assert!(read.roots.len() > 5 && read.notes.is_empty() && !read.complete);

        let error = write_all(folder, &trace).unwrap_err();
        assert!(matches!(error, WriteError::Io { .. }), "{error}");
        assert_eq!(left(folder), ["M.burnscope.jsonl"]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let limited = std::process::Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "bash"])
        .arg(std::env::current_exe().unwrap())
        .arg("a_disk_that_refuses_midway_leaves_whole_lines_and_no_half_tree")
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(
        limited.status.success(),
        "{}",
        String::from_utf8_lossy(&limited.stdout)
    );
    assert_eq!(left(folder.path()), ["M.burnscope.jsonl"]);
}

fn left(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
