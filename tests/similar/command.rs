//! The command as a person runs it.

use std::process::{Command, Output, Stdio};

use crate::support::{Grove, settle};

fn burnscope(grove: &Grove, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_burnscope"));
    command
        .arg("similar")
        .args(arguments)
        .current_dir(grove.root())
        .env("XDG_CACHE_HOME", grove.root().join("cache"))
        .env_remove("NO_COLOR");
    command
}

fn run(grove: &Grove, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = burnscope(grove, arguments)
        .output()
        .expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (
        status.code().expect("an exit code"),
        text(stdout),
        text(stderr),
    )
}

#[test]
fn it_prints_the_scripts_form_and_more() {
    let grove = Grove::new();
    let (code, stdout, stderr) = run(&grove, &["--modeling-file", "yew", "--top", "2"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let block = stdout
        .split("\n\n")
        .find(|block| block.starts_with("modeling_yew.py::YewMLP:"))
        .expect("a block");
    let lines: Vec<&str> = block.lines().collect();
    assert_eq!(lines[1], "jaccard:");
    assert_eq!(lines[2], "    oak::OakMLP (1.0000)");
    assert_eq!(lines[4], "intersection:");
    assert!(lines.contains(&"    oak::OakMLP"), "{block}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("    oak::OakMLP (1.0000)  ")
                && line.contains("released 2020-01-02, added 2020-02-03")),
        "{block}"
    );
    assert!(
        lines.contains(&"    the same code after renaming"),
        "{block}"
    );
    assert!(!stdout.contains("embedding:"));
    assert!(
        stdout.contains("inherit from oak (oak/modeling_oak.py)"),
        "{stdout}"
    );
    assert!(
        stdout.contains("class YewMLP(OakMLP):\n    pass\n"),
        "{stdout}"
    );
    assert!(
        !stdout.contains('\u{1b}'),
        "no colours where there is no terminal"
    );
}

#[test]
fn json_is_one_object_on_standard_output() {
    let grove = Grove::new();
    let (code, stdout, _) = run(&grove, &["--modeling-file", "yew", "--json", "--compat"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(json["parent"], "oak");
    assert_eq!(
        json["definitions"]["rotate_half"]["best"][0]["name"],
        "oak/modeling_oak.py:rotate_half"
    );
    // The script leaves out candidates with the query's own name.
    let jaccard = json["definitions"]["rotate_half"]["jaccard"]
        .as_array()
        .expect("a list");
    assert!(jaccard.iter().all(|entry| {
        !entry["name"]
            .as_str()
            .expect("a name")
            .ends_with(":rotate_half")
    }));
}

#[test]
fn exit_codes_tell_faults_from_failure() {
    let grove = Grove::new();
    grove.write("bad/modeling_bad.py", "def f(:\n");
    let (code, stdout, stderr) = run(&grove, &["--modeling-file", "yew"]);
    assert_eq!(code, 3);
    assert!(stdout.contains("YewMLP"), "the rest is answered");
    assert!(
        stderr.contains("bad/modeling_bad.py:1: does not parse"),
        "{stderr}"
    );
    for arguments in [
        &["--modeling-file", "no_such_model"][..],
        &["--modeling-file", "bad"],
        &["--modeling-file", "yew", "--repo", "no/such/folder"],
        &["--modeling-file", "yew", "--repo", "docs"],
        &[],
    ] {
        let (code, stdout, stderr) = run(&grove, arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        let last = stderr.lines().last().expect("a line");
        assert!(last.starts_with("error: "), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_index_is_kept_and_a_damaged_one_replaced() {
    let grove = Grove::new();
    let index = grove.root().join("my.index");
    let arguments = ["--build", "--index", "my.index"];
    let (code, _, stderr) = run(&grove, &arguments);
    assert_eq!(code, 0);
    assert!(stderr.contains("definitions of 5 files"), "{stderr}");
    std::fs::write(&index, b"not an index").expect("writes");
    let (code, stdout, stderr) = run(&grove, &["--modeling-file", "yew", "--index", "my.index"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("YewMLP"));
    assert!(stderr.contains("reading the sources instead"), "{stderr}");
    let (_, _, stderr) = run(&grove, &["--modeling-file", "yew", "--index", "my.index"]);
    assert_eq!(stderr, "", "it was replaced");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let grove = Grove::new();
    let mut child = burnscope(&grove, &["--modeling-file", "yew", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_quality_table_is_printed() {
    let grove = Grove::new();
    settle(grove.root());
    let pairs = r#"[["elm/modeling_elm.py:ElmLayer", "oak/modeling_oak.py:OakLayer", true], ["elm/modeling_elm.py:Gone", "oak/modeling_oak.py:OakLayer", true]]"#;
    std::fs::write(grove.root().join("pairs.json"), pairs).expect("writes");
    let (code, stdout, _) = run(
        &grove,
        &["--quality", "pairs.json", "--features", "features.json"],
    );
    assert_eq!(code, 0);
    let row = stdout
        .lines()
        .find(|line| line.starts_with("default, all"))
        .expect("a row");
    assert!(row.contains("1.000"), "{row}");
    assert!(stdout.contains("1 pairs were left out"), "{stdout}");
    assert!(grove.root().join("features.json").is_file());
    let (code, again, _) = run(&grove, &["--quality", "pairs.json"]);
    assert_eq!(
        (code, again),
        (0, stdout),
        "the kept index gives the same table"
    );
    std::fs::write(grove.root().join("pairs.json"), "[1]").expect("writes");
    assert_eq!(run(&grove, &["--quality", "pairs.json"]).0, 2);
}
