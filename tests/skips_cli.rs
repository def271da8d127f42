//! The `burnscope skips` command, run as a user runs it.
#![cfg(all(feature = "skips", feature = "cli"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/skips/tree")
}

/// Runs the command on a checkout, writing into `out`.
fn skips(repo: &Path, out: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_burnscope"))
        .arg("skips")
        .arg("--repo")
        .arg(repo)
        .arg("--output-dir")
        .arg(out)
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_full_scan_writes_the_original_schema_with_added_keys() {
    let out = tempfile::tempdir().unwrap();
    let run = skips(&tree(), out.path(), &[]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let file = out.path().join("all_tests_scan_result.json");
    let alpha = &json(&file)["test_alpha"];
    let keys: Vec<&str> = alpha
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "origin",
            "models_ran",
            "models_skipped",
            "skipped_proportion",
            "reasons_skipped",
            "models_partial",
            "models_conditional",
            "models_absent",
            "models_unknown",
            "details"
        ]
    );
    let detail: Vec<&str> = alpha["details"][0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        detail,
        [
            "model",
            "class",
            "test",
            "status",
            "reason",
            "where",
            "condition"
        ]
    );
    assert!(text(&run.stdout).contains("[INFO] Parsing 17 model test files once each..."));
    // Nothing half-written is left beside the result.
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

#[test]
fn the_summary_of_one_test_has_the_original_words_and_file_name() {
    let out = tempfile::tempdir().unwrap();
    let run = skips(&tree(), out.path(), &["--test_method_name", "test_alpha"]);
    assert_eq!(run.status.code(), Some(0));
    let stdout = text(&run.stdout);
    assert!(
        stdout.contains("\n== test_alpha ==\nRan    : 5/16\nSkipped : 8/16 (50.0%)\n - "),
        "{stdout}"
    );
    let result = json(&out.path().join("scan_test_alpha.json"));
    assert_eq!(result["skipped_proportion"], 0.5);
    assert!(
        result.get("origin").is_none(),
        "the original has no origin here"
    );
}

/// The expected text is the output of the original script on the same tree.
#[test]
fn the_compatible_output_equals_the_script_byte_for_byte() {
    let out = tempfile::tempdir().unwrap();
    let run = skips(&tree(), out.path(), &["--compat"]);
    assert_eq!(run.status.code(), Some(0));
    let ours = fs::read_to_string(out.path().join("all_tests_scan_result.json")).unwrap();
    let script = fs::read_to_string(tree().join("script_output.json")).unwrap();
    assert_eq!(ours, script);
    let run = skips(
        &tree(),
        out.path(),
        &["--compat", "--test-method-name", "test_beta"],
    );
    let stdout = text(&run.stdout);
    assert!(
        stdout.contains("== test_beta ==\nRan    : 13/16\nSkipped : 3/16 (18.8%)\n"),
        "{stdout}"
    );
}

#[test]
fn every_format_is_written_and_escaped() {
    let repo = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = repo.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "tests/test_modeling_common.py",
        "class ModelTesterMixin:\n    def test_a(self): work()\n",
    );
    write(
        "tests/generation/test_utils.py",
        "class GenerationTesterMixin:\n    def test_g(self): work()\n",
    );
    write(
        "tests/models/m x/test_modeling_m.py",
        "import unittest\nfrom tests.test_modeling_common import ModelTesterMixin\n\
         class MModelTest(ModelTesterMixin, unittest.TestCase):\n    @unittest.skip('<script>, \"a|b\"')\n    def test_a(self): pass\n\
         \x20   @unittest.skip\n    def test_gone(self): pass\n",
    );
    let out = tempfile::tempdir().unwrap();
    let run = skips(
        repo.path(),
        out.path(),
        &["--format", "json,csv,markdown,sarif,html", "--quiet"],
    );
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(run.stdout.is_empty());
    let read = |ending: &str| {
        fs::read_to_string(out.path().join(format!("all_tests_scan_result.{ending}"))).unwrap()
    };
    assert!(
        read("csv").contains("test_a,common,m x,skipped,\"<script>, \"\"a|b\"\"\"\r\n"),
        "{}",
        read("csv")
    );
    assert!(
        read("md").contains("- m x: &lt;script>, \"a\\|b\""),
        "{}",
        read("md")
    );
    let html = read("html");
    assert!(html.contains("m x: &lt;script&gt;, &quot;a|b&quot;"));
    assert!(
        !html.contains("<script>, "),
        "text of a test file is no markup"
    );
    assert!(!html.contains("http"), "the page needs nothing else");
    let sarif = json(&out.path().join("all_tests_scan_result.sarif"));
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
        "tests/models/m%20x/test_modeling_m.py"
    );
    assert_eq!(
        result["locations"][0]["physicalLocation"]["region"]["startLine"],
        6
    );
}

#[test]
fn exit_codes_tell_lints_from_failures_and_from_gaps() {
    let out = tempfile::tempdir().unwrap();
    let code = |run: Output| run.status.code();
    assert_eq!(code(skips(&tree(), out.path(), &["--lint"])), Some(1));
    assert_eq!(
        code(skips(
            &tree(),
            out.path(),
            &["--test-method-name", "test_nope"]
        )),
        Some(2)
    );
    assert_eq!(
        code(skips(&tree(), out.path(), &["--test-method-name", "../x"])),
        Some(2)
    );
    assert_eq!(
        code(skips(&tree(), out.path(), &["--base", "no-such-revision"])),
        Some(2)
    );
    assert_eq!(code(skips(out.path(), out.path(), &[])), Some(2));
    let file = out.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(
        code(skips(&tree(), &file, &[])),
        Some(2),
        "results cannot be written"
    );
    let repo = tempfile::tempdir().unwrap();
    fs::create_dir_all(repo.path().join("tests/models/m")).unwrap();
    fs::write(
        repo.path().join("tests/models/m/test_modeling_m.py"),
        "def (",
    )
    .unwrap();
    let run = skips(repo.path(), out.path(), &[]);
    assert!(
        text(&run.stderr).contains("tests/models/m/test_modeling_m.py:1: "),
        "{}",
        text(&run.stderr)
    );
    assert_eq!(code(run), Some(3));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_burnscope"))
        .args(["skips", "--table", "--repo"])
        .arg(tree())
        .arg("--output-dir")
        .arg(out.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn git(repo: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .arg("-C")
        .arg(repo)
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn a_comparison_lists_what_became_skipped_and_what_lost_its_skip() {
    let repo = tempfile::tempdir().unwrap();
    let root = repo.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let model = |body: &str| {
        format!(
            "import unittest\nfrom tests.test_modeling_common import ModelTesterMixin\n\
             class MModelTest(ModelTesterMixin, unittest.TestCase):\n{body}"
        )
    };
    write(
        "tests/test_modeling_common.py",
        "class ModelTesterMixin:\n    def test_a(self): work()\n    def test_b(self): work()\n    def test_c(self): work()\n",
    );
    write(
        "tests/generation/test_utils.py",
        "class GenerationTesterMixin:\n    def test_g(self): work()\n",
    );
    write(
        "tests/models/m/test_modeling_m.py",
        &model("    @unittest.skip('before')\n    def test_a(self): pass\n"),
    );
    write(
        "tests/models/n/test_modeling_n.py",
        &model("    @unittest.skip('stays')\n    def test_c(self): pass\n"),
    );
    git(root, &["init", "-q"]);
    git(root, &["add", "."]);
    git(root, &["commit", "-qm", "base"]);
    write(
        "tests/models/m/test_modeling_m.py",
        &model("    @unittest.skip('now')\n    def test_b(self): pass\n"),
    );
    let out = tempfile::tempdir().unwrap();
    let run = skips(root, out.path(), &["--base", "HEAD", "--quiet"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert_eq!(
        text(&run.stdout),
        "\nbecame skipped since HEAD: 1\n  tests/models/m/test_modeling_m.py:4: m::MModelTest::test_b: now\n\
         \nlost its skip since HEAD: 1\n  tests/models/m/test_modeling_m.py:4: m::MModelTest::test_a: before\n"
    );
    let run = skips(
        root,
        out.path(),
        &["--base", "HEAD", "--quiet", "--fail-on-new"],
    );
    assert_eq!(run.status.code(), Some(1));
    git(root, &["commit", "-qam", "skip"]);
    let run = skips(
        root,
        out.path(),
        &["--base", "HEAD", "--fail-on-new", "--quiet"],
    );
    assert_eq!(run.status.code(), Some(0));
}

#[test]
fn the_help_shows_examples_and_exit_codes() {
    let run = Command::new(env!("CARGO_BIN_EXE_burnscope"))
        .args(["skips", "--help"])
        .output()
        .unwrap();
    let help = text(&run.stdout);
    for part in [
        "--test-method-name",
        "Examples:",
        "Exit codes:",
        "--base main",
    ] {
        assert!(help.contains(part), "{part}");
    }
}
