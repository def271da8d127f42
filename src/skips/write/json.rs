//! JSON in the layout of Python's `json.dump(…, indent=2)`, details one object per line.

use rayon::prelude::*;

use crate::skips::report::{ClassTests, Detail, TestReport};
use crate::skips::value::float_repr;
use crate::skips::{CompatEntry, Scan};

/// A full scan, or with `single` the report on the only test.
pub(crate) fn scan_json(scan: &Scan, single: bool) -> Vec<String> {
    if single {
        return vec![
            scan.tests
                .first()
                .map_or_else(|| "{}".to_owned(), |test| report(None, test, 0)),
        ];
    }
    object(
        scan.tests
            .par_iter()
            .map(|test| report(Some(&test.name), test, 2))
            .collect(),
    )
}

/// The original script's file.
pub(crate) fn compat_json(entries: &[CompatEntry], single: bool) -> Vec<String> {
    let one = |entry: &CompatEntry, indent: usize, with_origin: bool| {
        let mut text = String::from("{\n");
        if with_origin {
            key(&mut text, indent, "origin");
            string(&mut text, &entry.origin);
            text.push_str(",\n");
        }
        lists(&mut text, indent, "models_ran", &entry.models_ran);
        lists(&mut text, indent, "models_skipped", &entry.models_skipped);
        key(&mut text, indent, "skipped_proportion");
        text.push_str(&float_repr(entry.skipped_proportion));
        text.push_str(",\n");
        let mut reasons = entry.reasons_skipped.clone();
        reasons.sort();
        lists(&mut text, indent, "reasons_skipped", &reasons);
        close(&mut text, indent);
        text
    };
    if single {
        return vec![
            entries
                .first()
                .map_or_else(|| "{}".to_owned(), |entry| one(entry, 0, false)),
        ];
    }
    let texts: Vec<String> = entries
        .iter()
        .map(|entry| {
            let mut text = String::from("  ");
            string(&mut text, &entry.name);
            text.push_str(": ");
            text.push_str(&one(entry, 2, true));
            text
        })
        .collect();
    object(texts)
}

/// Every test of every class, by file and class.
pub(crate) fn inventory_json(scan: &Scan) -> Vec<String> {
    let files: Vec<&[ClassTests]> = scan.classes.chunk_by(|a, b| a.file == b.file).collect();
    let texts: Vec<String> = files
        .par_iter()
        .map(|classes| {
            let mut text = String::from("  ");
            string(&mut text, &classes[0].file);
            text.push_str(": {\n");
            for (at, class) in classes.iter().enumerate() {
                text.push_str("    ");
                string(&mut text, &class.class);
                text.push_str(": ");
                text.push_str(&compact(class));
                text.push_str(if at + 1 < classes.len() { ",\n" } else { "\n" });
            }
            text.push_str("  }");
            text
        })
        .collect();
    object(texts)
}

/// An object of finished entries, as pieces to be written one after the other.
fn object(mut entries: Vec<String>) -> Vec<String> {
    let Some(last) = entries.len().checked_sub(1) else {
        return vec!["{}".to_owned()];
    };
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.push_str(if at < last { ",\n" } else { "\n}" });
    }
    entries.insert(0, "{\n".to_owned());
    entries
}

/// One test's report; with a `name` as an entry of the full scan, which also tells the origin.
fn report(name: Option<&str>, test: &TestReport, indent: usize) -> String {
    let mut text = String::with_capacity(440 * test.details.len() + 16_384);
    if let Some(name) = name {
        pad(&mut text, indent);
        string(&mut text, name);
        text.push_str(": ");
    }
    text.push_str("{\n");
    if name.is_some() {
        key(&mut text, indent, "origin");
        string(&mut text, &test.origin);
        text.push_str(",\n");
    }
    lists(&mut text, indent, "models_ran", &test.models_ran);
    lists(&mut text, indent, "models_skipped", &test.models_skipped);
    key(&mut text, indent, "skipped_proportion");
    text.push_str(&float_repr(test.skipped_proportion));
    text.push_str(",\n");
    lists(&mut text, indent, "reasons_skipped", &test.reasons_skipped);
    lists(&mut text, indent, "models_partial", &test.models_partial);
    lists(
        &mut text,
        indent,
        "models_conditional",
        &test.models_conditional,
    );
    lists(&mut text, indent, "models_absent", &test.models_absent);
    lists(&mut text, indent, "models_unknown", &test.models_unknown);
    key(&mut text, indent, "details");
    details(&mut text, indent + 2, &test.details);
    close(&mut text, indent);
    text
}

fn details(text: &mut String, indent: usize, details: &[Detail]) {
    if details.is_empty() {
        text.push_str("[],\n");
        return;
    }
    text.push_str("[\n");
    for (at, detail) in details.iter().enumerate() {
        pad(text, indent + 2);
        text.push_str("{\"model\": ");
        string(text, &detail.model);
        text.push_str(", \"class\": ");
        string(text, &detail.class);
        text.push_str(", \"test\": ");
        string(text, &detail.test);
        text.push_str(", \"status\": ");
        string(text, detail.status.name());
        text.push_str(", \"reason\": ");
        optional(text, detail.reason.as_deref());
        text.push_str(", \"where\": ");
        string(text, &detail.place);
        text.push_str(", \"condition\": ");
        optional(text, detail.condition.as_deref());
        text.push_str(if at + 1 < details.len() {
            "},\n"
        } else {
            "}\n"
        });
    }
    pad(text, indent);
    text.push_str("],\n");
}

fn lists<S: AsRef<str>>(text: &mut String, indent: usize, name: &str, items: &[S]) {
    key(text, indent, name);
    if items.is_empty() {
        text.push_str("[],\n");
        return;
    }
    text.push_str("[\n");
    for (at, item) in items.iter().enumerate() {
        pad(text, indent + 4);
        string(text, item.as_ref());
        text.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
    }
    pad(text, indent + 2);
    text.push_str("],\n");
}

/// Ends an object whose last member has left a comma.
fn close(text: &mut String, indent: usize) {
    if text.ends_with(",\n") {
        text.truncate(text.len() - 2);
        text.push('\n');
    }
    pad(text, indent);
    text.push('}');
}

fn key(text: &mut String, indent: usize, name: &str) {
    pad(text, indent + 2);
    string(text, name);
    text.push_str(": ");
}

fn pad(text: &mut String, width: usize) {
    for _ in 0..width {
        text.push(' ');
    }
}

fn optional(text: &mut String, value: Option<&str>) {
    match value {
        Some(value) => string(text, value),
        None => text.push_str("null"),
    }
}

/// A JSON string in ASCII, escaped as Python escapes it.
fn string(text: &mut String, value: &str) {
    text.push('"');
    if value
        .bytes()
        .all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\')
    {
        text.push_str(value);
        text.push('"');
        return;
    }
    let mut plain = 0;
    for (at, c) in value.char_indices() {
        if matches!(c, ' '..='~') && c != '"' && c != '\\' {
            continue;
        }
        text.push_str(&value[plain..at]);
        plain = at + c.len_utf8();
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\x08' => text.push_str("\\b"),
            '\x0c' => text.push_str("\\f"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push_str(&value[plain..]);
    text.push('"');
}

fn compact(class: &ClassTests) -> String {
    let mut text = String::from("{\"imported\": ");
    text.push_str(if class.imported { "true" } else { "false" });
    text.push_str(", \"class_skip\": ");
    optional(&mut text, class.class_skip.as_deref());
    text.push_str(", \"class_conditions\": ");
    optional(&mut text, class.class_conditions.as_deref());
    text.push_str(", \"tests\": {");
    for (at, test) in class.tests.iter().enumerate() {
        text.push_str(if at == 0 { "\n" } else { ",\n" });
        pad(&mut text, 6);
        string(&mut text, &test.test);
        text.push_str(": {\"status\": ");
        string(&mut text, test.status.name());
        text.push_str(", \"reason\": ");
        optional(&mut text, test.reason.as_deref());
        text.push_str(", \"condition\": ");
        optional(&mut text, test.condition.as_deref());
        text.push('}');
    }
    text.push_str(if class.tests.is_empty() {
        "}}"
    } else {
        "\n    }}"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with CPython 3.11: `json.dumps("é\u{1F600}\"\\\n\x7f")`.
    #[test]
    fn strings_are_escaped_as_python_escapes_them() {
        let mut text = String::new();
        string(&mut text, "é😀\"\\\n\x7f");
        assert_eq!(text, r#""\u00e9\ud83d\ude00\"\\\n\u007f""#);
    }
}
