//! What is printed: the summary of one test, and the table of all tests.

use std::fmt::Write as _;

use crate::skips::report::TestReport;
use crate::skips::{Scan, compat_summary};

/// The width of a bar for a share of 100%.
const BAR: usize = 20;

/// The tests of a scan, the most skipped first.
pub(crate) fn by_proportion(scan: &Scan) -> Vec<&TestReport> {
    let mut tests: Vec<&TestReport> = scan.tests.iter().collect();
    tests.sort_by(|a, b| {
        b.models_skipped
            .len()
            .cmp(&a.models_skipped.len())
            .then_with(|| a.name.cmp(&b.name))
    });
    tests
}

/// The summary of a single test, in the words of the original script, plus the other outcomes.
pub fn summary(scan: &Scan, test: &TestReport) -> String {
    let mut text = compat_summary(
        &test.name,
        test.models_ran.len(),
        test.models_skipped.len(),
        scan.models.len(),
        &test.reasons_skipped,
    );
    for (name, models) in [
        ("Partial", &test.models_partial),
        ("Conditional", &test.models_conditional),
        ("Absent", &test.models_absent),
        ("Unknown", &test.models_unknown),
    ] {
        if !models.is_empty() {
            let _ = writeln!(text, "{name} : {}/{}", models.len(), scan.models.len());
        }
    }
    text
}

/// The `rows` most skipped tests as a table for a terminal.
pub fn table(scan: &Scan, rows: usize) -> String {
    let tests = by_proportion(scan);
    let shown = &tests[..rows.min(tests.len())];
    let width = shown
        .iter()
        .map(|test| test.name.len())
        .max()
        .unwrap_or(4)
        .max(4);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:width$}  {:>7}  {:BAR$}  {:>7}  {:>7}  {:>5}  {:>5}  {:>6}  {:>7}",
        "Test", "Skipped", "", "Share", "Partial", "Cond.", "Ran", "Absent", "Unknown"
    );
    for test in shown {
        let filled = (test.skipped_proportion * BAR as f64).round() as usize;
        let bar: String = "█".repeat(filled.min(BAR));
        let _ = writeln!(
            text,
            "{:width$}  {:>7}  {bar:BAR$}  {:>6.1}%  {:>7}  {:>5}  {:>5}  {:>6}  {:>7}",
            test.name,
            test.models_skipped.len(),
            test.skipped_proportion * 100.0,
            test.models_partial.len(),
            test.models_conditional.len(),
            test.models_ran.len(),
            test.models_absent.len(),
            test.models_unknown.len(),
        );
    }
    if shown.len() < tests.len() {
        let _ = writeln!(text, "… and {} more tests", tests.len() - shown.len());
    }
    text
}
