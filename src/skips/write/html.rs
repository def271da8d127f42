//! A page with the table of tests, sortable and searchable, that needs no other file.

use std::fmt::Write as _;

use super::terminal::by_proportion;
use crate::skips::Scan;

const HEAD: &str = include_str!("page_head.html");
const TAIL: &str = include_str!("page_tail.html");

/// The whole scan.
pub(crate) fn html(scan: &Scan) -> String {
    let mut text = String::from(HEAD);
    let off: usize = scan
        .tests
        .iter()
        .map(|test| test.models_skipped.len())
        .sum();
    let partial: usize = scan
        .tests
        .iter()
        .map(|test| test.models_partial.len())
        .sum();
    let _ = writeln!(
        text,
        "<p class=\"lead\">{} common tests, {} models, {} test files: {off} model–test pairs skipped, {partial} skipped in part.</p>",
        scan.tests.len(),
        scan.models.len(),
        scan.files,
    );
    if !scan.problems.is_empty() {
        text.push_str("<details class=\"problems\"><summary>");
        let _ = write!(
            text,
            "{} problems kept parts of the scan from being done",
            scan.problems.len()
        );
        text.push_str("</summary><ul>");
        for problem in &scan.problems {
            let _ = write!(text, "<li>{}</li>", escape(&problem.to_string()));
        }
        text.push_str("</ul></details>\n");
    }
    text.push_str(
        "<input id=\"filter\" type=\"search\" placeholder=\"Filter tests, models and reasons\" aria-label=\"Filter\">\n\
         <table><thead><tr><th>Test</th><th>Origin</th><th class=\"n\" data-down>Skipped</th><th class=\"n\">Share</th>\
         <th class=\"n\">Partial</th><th class=\"n\">Conditional</th><th class=\"n\">Ran</th><th class=\"n\">Absent</th>\
         <th class=\"n\">Unknown</th></tr></thead>\n<tbody>\n",
    );
    for test in by_proportion(scan) {
        let share = test.skipped_proportion * 100.0;
        let _ = write!(
            text,
            "<tr><td><details><summary><code>{}</code></summary>",
            escape(&test.name)
        );
        list(&mut text, "Skipped", &test.reasons_skipped);
        list(&mut text, "Partial", &test.models_partial);
        list(&mut text, "Conditional", &test.models_conditional);
        list(&mut text, "Unknown", &test.models_unknown);
        let _ = write!(
            text,
            "</details></td><td>{}</td><td class=\"n\">{}</td><td class=\"n share\"><i style=\"width:{share:.1}%\"></i>{share:.1}%</td>",
            escape(&test.origin),
            test.models_skipped.len(),
        );
        for models in [
            &test.models_partial,
            &test.models_conditional,
            &test.models_ran,
            &test.models_absent,
            &test.models_unknown,
        ] {
            let _ = write!(text, "<td class=\"n\">{}</td>", models.len());
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table>\n");
    if !scan.lints.is_empty() {
        let _ = writeln!(text, "<h2>Lints ({})</h2>", scan.lints.len());
        text.push_str("<table class=\"lints\"><thead><tr><th>Place</th><th>Kind</th><th>What</th></tr></thead><tbody>\n");
        for lint in &scan.lints {
            let _ = writeln!(
                text,
                "<tr><td><code>{}:{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(&lint.file),
                lint.line,
                lint.kind.name(),
                escape(&lint.message)
            );
        }
        text.push_str("</tbody></table>\n");
    }
    text.push_str(TAIL);
    text
}

fn list<S: AsRef<str>>(text: &mut String, title: &str, items: &[S]) {
    if items.is_empty() {
        return;
    }
    let _ = write!(text, "<h3>{title} ({})</h3><ul>", items.len());
    for item in items {
        let _ = write!(text, "<li>{}</li>", escape(item.as_ref()));
    }
    text.push_str("</ul>");
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
