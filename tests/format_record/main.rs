//! The record holds a whole trace, survives a crash, and no file makes its reader panic.

mod generators;
mod late;
mod operations;

use std::{fmt::Write as _, fs, path::Path, sync::Arc};

use burnscope::{
    format::{
        self, MAX_CALL_DEPTH, MAX_VALUE_DEPTH, ReadError, WriteError,
        jsonl::{self, Header, JsonlWriter},
        transformers::{Tree, read_from_slice, to_writer},
    },
    summary::{DType, TensorView, summarise},
    trace::{Attribution, Inputs, Node, TensorRecord, Trace, Value},
};
use generators::traces;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Trace, ReadError> {
    jsonl::read_from(&mut &bytes[..], Path::new("m.jsonl")).map(|(_, trace)| trace)
}

fn record(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    jsonl::write_to(&mut bytes, trace).unwrap();
    bytes
}

/// Text that is equal for equal traces: unlike `==`, it takes a NaN to equal a NaN.
fn exact(trace: &Trace) -> String {
    format!("{trace:#?}")
}

fn count(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + count(&node.children)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(192)
    })]

    #[test]
    fn any_trace_comes_back_from_its_record(trace in traces()) {
        prop_assert_eq!(exact(&read(&record(&trace)).unwrap()), exact(&trace));
    }

    #[test]
    fn a_tree_of_any_trace_can_be_read_and_written_again(trace in traces()) {
        let again = |bytes: &[u8], tree| {
            let trace = read_from_slice(bytes, Path::new("a")).unwrap();
            let mut again = Vec::new();
            to_writer(&mut again, &trace, tree).unwrap();
            String::from_utf8(again).unwrap()
        };
        for tree in [Tree::Full, Tree::Summary] {
            let mut first = Vec::new();
            if to_writer(&mut first, &trace, tree).is_err() {
                prop_assert!(trace.roots.is_empty());
                continue;
            }
            let second = again(&first, tree);
            // Where a summary's only entry was a `value`, an empty object is left, which is not
            // written a second time.
            let first = String::from_utf8(first).unwrap();
            prop_assert!(tree == Tree::Summary || second == first, "{}\n{}", second, first);
            prop_assert_eq!(again(second.as_bytes(), tree), second);
        }
    }

    #[test]
    fn damaged_files_are_errors_and_not_panics(
        trace in traces(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut tree = Vec::new();
        let _ = to_writer(&mut tree, &trace, Tree::Full);
        for mut bytes in [record(&trace), tree] {
            if bytes.is_empty() {
                continue;
            }
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            let _ = read(&bytes);
            let _ = read_from_slice(&bytes, Path::new("a"));
            bytes.truncate(cut.index(bytes.len()));
            let _ = read(&bytes);
            let _ = read_from_slice(&bytes, Path::new("a"));
        }
    }

    #[test]
    fn random_bytes_are_errors_and_not_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        text in "[\\[\\]{}\":,0-9a-z\\\\ -]{0,80}",
    ) {
        for bytes in [bytes, text.into_bytes()] {
            let _ = read(&bytes);
            let _ = read_from_slice(&bytes, Path::new("a"));
        }
    }
}

fn node(path: &str, order: u64) -> Node {
    Node {
        path: path.to_owned(),
        order,
        inputs: Some(Inputs::default()),
        complete: true,
        ..Node::default()
    }
}

fn small_tensor(id: u64) -> Arc<TensorRecord> {
    Arc::new(TensorRecord {
        shape: vec![2],
        dtype: DType::F32,
        device: Some("cpu".to_owned()),
        id: Some(id),
        summary: None,
        not_summarised: None,
        printed: None,
        value: None,
    })
}

/// A run of three calls, written event by event; returns the file's bytes.
fn run(path: &Path) -> Vec<u8> {
    let header = Header::now("M");
    let mut writer = JsonlWriter::create(path, &header).unwrap();
    let shared = Value::Tensor(small_tensor(7));
    let mut root = node("M", 0);
    let outer = writer.enter(None, &root).unwrap();
    for (order, name) in [(1, "M.a"), (2, "M.b")] {
        let mut child = node(name, order);
        child.inputs = Some(Inputs {
            args: vec![shared.clone()],
            kwargs: Vec::new(),
        });
        let inner = writer.enter(Some(outer), &child).unwrap();
        // The file has each event as soon as the call returns.
        assert!(fs::read_to_string(path).unwrap().contains(name));
        child.outputs = Some(Value::Tensor(small_tensor(7)));
        writer.exit(inner, &child).unwrap();
        root.children.push(child);
    }
    writer.note("é: a note").unwrap();
    writer.exit(outer, &root).unwrap();
    writer.finish(true).unwrap();
    let bytes = fs::read(path).unwrap();
    let trace = read(&bytes).unwrap();
    assert_eq!(trace.roots, [root]);
    assert!(trace.complete);
    assert_eq!(trace.name, "M");
    assert_eq!(trace.notes, ["é: a note"]);
    bytes
}

#[test]
fn a_tensor_that_many_calls_share_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = run(&folder.path().join("m.jsonl"));
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert_eq!(text.matches("\"kind\":\"tensor\"").count(), 1);
    assert_eq!(text.matches("{\"tensor\":0}").count(), 4);
    let trace = read(&bytes).unwrap();
    let Some(Value::Tensor(first)) = &trace.roots[0].children[0].outputs else {
        panic!("no output");
    };
    assert_eq!(Arc::strong_count(first), 4);
}

#[test]
fn a_record_is_readable_wherever_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = run(&folder.path().join("m.jsonl"));
    let header = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    for end in header..bytes.len() - 1 {
        let kept = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let trace = read(&bytes[..end]).unwrap();
        let whole = &kept[..kept.rfind('\n').map_or(0, |at| at + 1)];
        let mut enters = whole.matches("\"kind\":\"enter\"").count();
        // A line that lacks only its end of line is whole too.
        let last = &kept[whole.len()..];
        let last_is_whole = last.ends_with('}') && bytes[end] == b'\n';
        enters += usize::from(last_is_whole && last.contains("\"kind\":\"enter\""));
        assert_eq!(count(&trace.roots), enters, "at byte {end}");
        let finished = last_is_whole && last.contains("\"kind\":\"finish\"");
        assert_eq!(trace.complete, finished, "at byte {end}");
        let cut = trace.notes.iter().any(|note| note.contains("cut off"));
        assert_eq!(cut, !last.is_empty() && !last_is_whole, "at byte {end}");
    }
    for end in 0..header {
        assert!(read(&bytes[..end]).is_err());
    }
    // What a power failure can leave at the end of a file.
    let trace = read(&[&bytes[..], &[0; 100]].concat()).unwrap();
    assert!(!trace.complete);
}

#[test]
fn a_damaged_line_in_the_middle_is_an_error_that_names_it() {
    let header = r#"{"kind":"header","schema":"1.0","name":"M","program":"p"}"#;
    let enter = r#"{"kind":"enter","node":0,"path":"M","step":0,"call":0}"#;
    let finish = r#"{"kind":"finish","complete":true}"#;
    for (line, reason) in [
        ("{\"kind\":", "EOF"),
        ("{}", "missing field `kind`"),
        (r#"{"kind":"exit","node":0}"#, "call 0 has no enter line"),
        (
            r#"{"kind":"enter","node":1,"path":"M","step":0,"call":0}"#,
            "call 1 where 0 is next",
        ),
        (
            r#"{"kind":"enter","node":0,"parent":0,"path":"M","step":0,"call":0}"#,
            "call 0 has no enter line",
        ),
        (
            r#"{"kind":"enter","node":0,"path":"M","step":0,"call":0,"inputs":{"args":[{"tensor":0}],"kwargs":{}}}"#,
            "tensor 0 has no line",
        ),
        (
            r#"{"kind":"enter","node":0,"path":"M","step":0,"call":0,"inputs":{"args":[{"new":0}],"kwargs":{}}}"#,
            "unknown variant `new`",
        ),
        (
            r#"{"kind":"tensor","tensor":1,"dtype":"f32","shape":[]}"#,
            "tensor 1 where 0 is next",
        ),
        (
            r#"{"kind":"tensor","tensor":0,"dtype":"f32","shape":[4294967296,4294967296]}"#,
            "more elements",
        ),
        (
            r#"{"kind":"tensor","tensor":0,"dtype":"f32","shape":[],"summary":{"count":1,"l2":"1","checksum":"0000000000000000"}}"#,
            "invalid value",
        ),
        (
            r#"{"kind":"tensor","tensor":0,"dtype":"f32","shape":[],"summary":{"count":1,"l2":1.0,"checksum":"+000000000000000"}}"#,
            "16 hexadecimal digits",
        ),
        (header, "a second header"),
        (finish, "after the finish line"),
    ] {
        let last = if line == finish { finish } else { enter };
        let file = [header, line, last].join("\n");
        let error = read(file.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(error.starts_with("m.jsonl: line "), "{error}");
    }
}

#[test]
fn a_record_of_another_major_version_is_refused_and_a_later_minor_is_read() {
    let header = |schema: &str| {
        format!(r#"{{"kind":"header","schema":"{schema}","name":"M","program":"p","new":[1]}}"#)
    };
    for schema in ["2.0", "0.9", "", "x"] {
        let error = read(header(schema).as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Schema { .. }), "{error}");
        assert!(error.to_string().contains("reads 1.x"), "{error}");
    }
    let later = [
        &header("1.7"),
        r#"{"kind":"kernel","name":"matmul","inputs":[1,2,{"x":null}]}"#,
        r#"{"kind":"enter","node":0,"path":"M","step":0,"call":0,"new":1}"#,
        r#"{"kind":"kernel"}"#,
        r#"{"kind":"exit","node":0}"#,
        r#"{"kind":"finish","complete":true}"#,
    ]
    .join("\n");
    let trace = read(later.as_bytes()).unwrap();
    assert_eq!(count(&trace.roots), 1);
    assert!(trace.complete);
    assert_eq!(
        trace.notes,
        ["skipped 2 lines of the unknown kind `kernel`"]
    );
}

#[test]
fn what_nests_too_deep_is_left_out_and_not_fatal() {
    let file = |depth: usize| {
        let mut text =
            r#"{"kind":"header","schema":"1.0","name":"M","program":"p"}"#.to_owned() + "\n";
        for node in 0..depth {
            let parent = node
                .checked_sub(1)
                .map_or(String::new(), |parent| format!(r#""parent":{parent},"#));
            writeln!(
                text,
                r#"{{"kind":"enter","node":{node},{parent}"path":"M","step":0,"call":{node}}}"#
            )
            .unwrap();
        }
        text
    };
    let trace = read(file(MAX_CALL_DEPTH).as_bytes()).unwrap();
    assert_eq!(count(&trace.roots), MAX_CALL_DEPTH);
    assert!(trace.notes.is_empty());
    let trace = read(file(100_000).as_bytes()).unwrap();
    assert_eq!(count(&trace.roots), MAX_CALL_DEPTH);
    assert_eq!(
        trace.notes,
        ["left out 99744 calls that nest deeper than 256"]
    );
    // Whatever a run hands over, its record can be read.
    for wrap in [
        |value| Value::List(vec![value]),
        |value| Value::Map(vec![("a".to_owned(), value)]),
    ] {
        let mut value = Value::Tensor(small_tensor(0));
        for _ in 0..MAX_VALUE_DEPTH {
            value = wrap(value);
        }
        let mut root = node("M", 0);
        root.outputs = Some(value.clone());
        let mut trace = Trace {
            name: "M".to_owned(),
            roots: vec![root],
            complete: true,
            ..Trace::default()
        };
        assert_eq!(read(&record(&trace)).unwrap(), trace);
        for _ in 0..200 {
            value = wrap(value);
        }
        trace.roots[0].outputs = Some(value);
        let cut = read(&record(&trace)).unwrap();
        assert!(exact(&cut).contains("<nested too deep>"));
    }
    let nested = format!(
        "{}{{\"kind\":\"exit\",\"node\":0,\"outputs\":{}{}}}\n\n",
        file(1),
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let error = read(nested.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_the_record_with_a_clear_error() {
    let error = JsonlWriter::create("/dev/full", &Header::now("M"))
        .err()
        .expect("the disk is full");
    assert!(error.to_string().contains("free some space"), "{error}");
}

#[test]
fn an_unwritable_place_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/m.burnscope.jsonl");
    let error = JsonlWriter::create(&path, &Header::now("M"))
        .err()
        .expect("no such folder");
    assert!(error.to_string().contains("missing"), "{error}");
    let mut writer = JsonlWriter::create(folder.path().join("m"), &Header::now("M")).unwrap();
    let mut other = JsonlWriter::create(folder.path().join("n"), &Header::now("M")).unwrap();
    let call = other.enter(None, &node("M", 0)).unwrap();
    let error = writer.exit(call, &node("M", 0)).unwrap_err();
    assert!(matches!(error, WriteError::UnknownCall { node: 0, .. }));
}

#[test]
fn the_header_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.jsonl");
    let mut header = Header::now("M");
    header.device = Some("cuda:0".to_owned());
    header.options.insert("dump".to_owned(), "repr".into());
    header.options.insert("budget".to_owned(), 10.into());
    JsonlWriter::create(&path, &header)
        .unwrap()
        .finish(true)
        .unwrap();
    let (found, trace) = jsonl::read_with_header(&path, &format::Limits::default()).unwrap();
    assert_eq!(found, header);
    assert!(trace.source.starts_with("burnscope "));
}

/// The examples of records in the documentation.
fn documented() -> Vec<&'static str> {
    let docs = include_str!("../../docs/trace-format.md");
    let examples = docs.split("```jsonl\n").skip(1);
    examples
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

#[test]
fn the_documented_example_is_a_record() {
    let example = documented()[0];
    let trace = read(example.as_bytes()).unwrap();
    assert_eq!(count(&trace.roots), 4);
    let rotary = &trace.roots[0].children[0].children[1];
    assert_eq!(rotary.attribution, Attribution::Inferred);
    assert!(!trace.complete && !rotary.complete);
    // What burnscope writes of it is the example again, but for the header's own keys.
    let written = String::from_utf8(record(&trace)).unwrap();
    let written: Vec<&str> = written.lines().skip(1).collect();
    for line in example.lines().skip(1) {
        assert!(written.contains(&line), "{line}");
    }
}

#[test]
fn the_documented_record_of_a_device_is_what_a_run_writes() {
    let example = documented()[1];
    let version = format!(
        "\"schema\":\"{}.{}\"",
        jsonl::SCHEMA_MAJOR,
        jsonl::SCHEMA_MINOR
    );
    assert!(example.contains(&version));
    let trace = read(example.as_bytes()).unwrap();
    assert!(trace.complete && trace.notes.is_empty());
    let mut root = trace.roots[0].clone();
    let mut linear = root.children[0].clone();
    let mut matmul = linear.ops[0].clone();
    assert_eq!(matmul.attribution, Attribution::Inferred);
    assert_eq!(matmul.inputs[1].parameter.as_deref(), Some("Mlp.up.weight"));
    let Some(Value::Tensor(input)) = root.inputs.as_ref().map(|inputs| &inputs.args[0]) else {
        panic!("no input");
    };
    let input = Arc::clone(input);
    let elements = bytemuck::cast_slice(&[1f32, 2.0]);
    let view = TensorView::contiguous(DType::F32, &[1, 2], elements).unwrap();
    assert_eq!(input.summary, Some(summarise(&view)));

    let pending = Arc::new(TensorRecord {
        summary: None,
        value: None,
        ..(*input).clone()
    });
    for node in [&mut root, &mut linear] {
        node.inputs = Some(Inputs {
            args: vec![Value::Tensor(Arc::clone(&pending))],
            kwargs: Vec::new(),
        });
    }
    matmul.attribution = Attribution::Exact;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.jsonl");
    let mut writer = JsonlWriter::create(&path, &Header::now("Mlp")).unwrap();
    let outer = writer.enter(None, &root).unwrap();
    writer.op(Some(outer), &matmul).unwrap();
    writer.op(Some(outer), &root.ops[0]).unwrap();
    writer.exit(outer, &root).unwrap();
    writer.summary(&pending, &input).unwrap();
    let inner = writer.enter(Some(outer), &linear).unwrap();
    writer.ops(inner, &[matmul.order]).unwrap();
    writer.exit(inner, &linear).unwrap();
    writer.finish(true).unwrap();
    let written = fs::read_to_string(&path).unwrap();
    let lines = |text: &'_ str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&written), lines(example));
}
