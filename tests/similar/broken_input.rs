//! Input that is wrong: each fault is reported with its place, the rest is answered.

use burnscope::similar::{analysis::QueryFile, error::Error, index::Index, source::MAX_FILE_BYTES};

use crate::support::{Grove, best};

/// The faults of the grove as lines.
fn faults(grove: &Grove) -> Vec<String> {
    grove
        .index()
        .corpus()
        .faults()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_file_that_does_not_parse_is_reported_with_its_line() {
    let grove = Grove::new();
    grove.write(
        "bad/modeling_bad.py",
        "class A:\n    pass\n\ndef broken(:\n    pass\n",
    );
    grove.write("elm/modular_elm.py", "class ElmNorm(:\n");
    let faults = faults(&grove);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("bad/modeling_bad.py:4: does not parse: "),
        "{faults:?}"
    );
    assert!(
        faults[1].starts_with("elm/modular_elm.py:1: does not parse: "),
        "{faults:?}"
    );
    assert_eq!(
        best(&grove.ask("yew"), "YewMLP")[0],
        "oak/modeling_oak.py:OakMLP"
    );
}

#[test]
fn text_that_is_not_utf_8_is_reported_with_its_line() {
    let grove = Grove::new();
    grove.write("bad/modeling_bad.py", b"x = 1\ny = '\xff'\n");
    assert_eq!(faults(&grove), ["bad/modeling_bad.py:2: is not UTF-8"]);
}

#[test]
fn a_byte_order_mark_and_windows_lines_are_fine() {
    let grove = Grove::new();
    let text = std::fs::read_to_string(grove.model_file("oak/modeling_oak.py")).expect("oak");
    grove.write(
        "oak/modeling_oak.py",
        format!("\u{feff}{}", text.replace('\n', "\r\n")),
    );
    assert!(faults(&grove).is_empty());
    let answer = grove.ask("yew");
    assert_eq!(best(&answer, "YewMLP")[0], "oak/modeling_oak.py:OakMLP");
    let layer = crate::support::finding(&answer, "YewLayer")
        .difference
        .as_ref()
        .expect("a difference");
    assert!(
        layer.lines.len() < 12,
        "the ends of lines do not differ: {:?}",
        layer.lines
    );
}

#[test]
fn nesting_that_would_break_the_stack_is_reported() {
    let grove = Grove::new();
    grove.write(
        "deep/modeling_deep.py",
        format!("x = {}1{}\n", "(".repeat(200_000), ")".repeat(200_000)),
    );
    grove.write(
        "sum/modeling_sum.py",
        format!("x = 1{}\n", " + 1".repeat(200_000)),
    );
    let faults = faults(&grove);
    assert_eq!(faults.len(), 2);
    assert!(
        faults
            .iter()
            .all(|fault| fault.contains("nested too deeply")),
        "{faults:?}"
    );
}

#[test]
fn a_file_beyond_the_limit_is_reported() {
    let grove = Grove::new();
    grove.write(
        "big/modeling_big.py",
        vec![b'\n'; MAX_FILE_BYTES as usize + 1],
    );
    let faults = faults(&grove);
    assert_eq!(
        faults,
        ["big/modeling_big.py: is larger than 8 MiB and was left out"]
    );
}

#[test]
fn an_empty_file_and_an_empty_folder_are_fine() {
    let grove = Grove::new();
    grove.write("void/modeling_void.py", "");
    std::fs::create_dir_all(grove.model_file("nothing")).expect("a folder");
    assert!(faults(&grove).is_empty());
    assert_eq!(grove.ask("void").findings.len(), 0);
    assert!(grove.ask("void").parent.is_none());
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let grove = Grove::new();
    let loop_link = grove.model_file("oak/again");
    std::os::unix::fs::symlink(grove.root(), loop_link).expect("a link");
    std::os::unix::fs::symlink("/dev/zero", grove.model_file("oak/modeling_zero.py"))
        .expect("a link");
    let index = grove.index();
    assert_eq!(index.corpus().code.len(), 5);
}

#[test]
fn a_folder_without_python_is_an_empty_index() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(Index::build(folder.path(), false, &|| ()).is_empty());
}

#[test]
fn a_query_that_is_absent_or_broken_is_an_error_that_names_it() {
    let grove = Grove::new();
    grove.write("bad/modeling_bad.py", "def f(:\n");
    let index = grove.index();
    let open =
        |given: &str| QueryFile::open(given, grove.root(), index.layout(), false).map(|_| ());
    assert!(matches!(
        open("no_such_model"),
        Err(Error::NoModelingFile { .. })
    ));
    assert!(matches!(
        open("../../../oak"),
        Err(Error::NoModelingFile { .. })
    ));
    let error = open("bad").expect_err("does not parse").to_string();
    assert!(
        error.contains("modeling_bad.py:1: does not parse"),
        "{error}"
    );
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let oak = std::fs::read(
        crate::support::data().join("tree/src/transformers/models/oak/modeling_oak.py"),
    )
    .expect("oak");
    let mut state = 1u64;
    for _ in 0..400 {
        let mut bytes = oak.clone();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = b"()[]{}'\"\n\t #\\@:=.\xe9\xffx0"[(state >> 20) as usize % 21];
        }
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = burnscope::similar::corpus::CodeFile::read(
                "oak/modeling_oak.py",
                "oak",
                &text,
                true,
            );
        }
    }
}
