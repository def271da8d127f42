//! Comma-separated values (RFC 4180): one row per test and model.

use rustc_hash::FxHashMap;

use crate::skips::Scan;

/// The whole scan.
pub(crate) fn csv(scan: &Scan) -> String {
    let mut text = String::from("test,origin,model,outcome,reasons\r\n");
    for test in &scan.tests {
        let mut reasons: FxHashMap<&str, &str> = FxHashMap::default();
        for entry in &test.reasons_skipped {
            if let Some((model, reason)) = entry.split_once(": ") {
                reasons.insert(model, reason);
            }
        }
        let outcomes = [
            ("ran", &test.models_ran),
            ("skipped", &test.models_skipped),
            ("partial", &test.models_partial),
            ("conditional", &test.models_conditional),
            ("absent", &test.models_absent),
            ("unknown", &test.models_unknown),
        ];
        let mut rows: Vec<(&str, &str)> = outcomes
            .iter()
            .flat_map(|(outcome, models)| models.iter().map(move |model| (&**model, *outcome)))
            .collect();
        rows.sort_unstable();
        for (model, outcome) in rows {
            let reason = match outcome {
                "skipped" => reasons.get(model).copied().unwrap_or_default(),
                _ => "",
            };
            let fields = [test.name.as_str(), &test.origin, model, outcome, reason];
            for (at, value) in fields.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                field(&mut text, value);
            }
            text.push_str("\r\n");
        }
    }
    text
}

fn field(text: &mut String, value: &str) {
    if value.contains([',', '"', '\n', '\r']) {
        text.push('"');
        text.push_str(&value.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(value);
    }
}
