//! A Markdown table of tests, the most skipped first, with the reasons below it.

use std::fmt::Write as _;

use super::terminal::by_proportion;
use crate::skips::Scan;

/// The whole scan.
pub(crate) fn markdown(scan: &Scan) -> String {
    let mut text = format!("# Skipped tests of {} models\n\n", scan.models.len());
    text.push_str(
        "| Test | Origin | Skipped | Share | Partial | Conditional | Ran | Absent | Unknown |\n",
    );
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    let tests = by_proportion(scan);
    for test in &tests {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {:.1}% | {} | {} | {} | {} | {} |",
            test.name,
            test.origin,
            test.models_skipped.len(),
            test.skipped_proportion * 100.0,
            test.models_partial.len(),
            test.models_conditional.len(),
            test.models_ran.len(),
            test.models_absent.len(),
            test.models_unknown.len(),
        );
    }
    for test in tests.iter().filter(|test| !test.reasons_skipped.is_empty()) {
        let _ = write!(text, "\n## `{}`\n\n", test.name);
        for reason in &test.reasons_skipped {
            let _ = writeln!(text, "- {}", inline(reason));
        }
    }
    if !scan.problems.is_empty() {
        text.push_str("\n## Could not be scanned\n\n");
        for problem in &scan.problems {
            let _ = writeln!(text, "- {}", inline(&problem.to_string()));
        }
    }
    if !scan.lints.is_empty() {
        text.push_str("\n## Lints\n\n| Place | Kind | What |\n|---|---|---|\n");
        for lint in &scan.lints {
            let _ = writeln!(
                text,
                "| {}:{} | {} | {} |",
                inline(&lint.file),
                lint.line,
                lint.kind.name(),
                inline(&lint.message)
            );
        }
    }
    text
}

/// Text from a source file on one line, with nothing that Markdown or HTML would interpret.
fn inline(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '|' | '*' | '_' | '[' | ']' | '\\' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
