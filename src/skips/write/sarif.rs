//! Lints and problems as SARIF 2.1.0, the format of code scanning services.

use serde_json::{Value, json};

use crate::skips::{LintKind, Scan};

/// The rule under which files that could not be scanned are reported.
const NOT_SCANNED: &str = "not-scanned";

/// All lints and problems of a scan.
pub(crate) fn sarif(scan: &Scan) -> String {
    let mut rules: Vec<Value> = LintKind::ALL
        .iter()
        .map(|kind| json!({"id": kind.name(), "shortDescription": {"text": kind.explanation()}}))
        .collect();
    rules.push(json!({
        "id": NOT_SCANNED,
        "shortDescription": {"text": "A file or import could not be read; its tests are unknown."},
    }));
    let lints = scan.lints.iter().map(|lint| {
        result(
            lint.kind.name(),
            "warning",
            &lint.message,
            &lint.file,
            Some(lint.line),
        )
    });
    let problems = scan.problems.iter().map(|problem| {
        result(
            NOT_SCANNED,
            "error",
            &problem.message,
            &problem.path,
            problem.line.map(|line| line as usize),
        )
    });
    let results: Vec<Value> = lints.chain(problems).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "burnscope skips",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "originalUriBaseIds": {"ROOT": {"description": {"text": "The root of the repository."}}},
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn result(rule: &str, level: &str, message: &str, file: &str, line: Option<usize>) -> Value {
    let mut location = json!({"artifactLocation": {"uri": uri(file), "uriBaseId": "ROOT"}});
    if let Some(line) = line {
        location["region"] = json!({"startLine": line});
    }
    json!({
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    })
}

/// A relative path as a URI reference.
fn uri(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}
