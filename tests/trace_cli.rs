//! `burnscope trace --verify`, run as a user runs it.
#![cfg(all(feature = "cli", feature = "flex", feature = "models"))]

use std::{path::Path, process::Command};

#[test]
fn verify_says_that_tracing_changed_nothing() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces/llama_f32");
    let folder = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_burnscope"))
        .args([
            "trace",
            "--verify",
            "--quiet",
            "--dump",
            "none",
            "--checkpoint",
        ])
        .arg(data.join("checkpoint"))
        .arg("--inputs")
        .arg(data.join("inputs.safetensors"))
        .arg("--out")
        .arg(folder.path())
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let verified = lines
        .iter()
        .find(|line| line.starts_with("note: verified: "));
    let verified = verified.unwrap_or_else(|| panic!("{text}"));
    assert!(
        verified.ends_with("outputs are the same to the last bit with and without tracing"),
        "{text}"
    );
}
