//! The results of the original script, reproduced to the byte, errors of judgement included.
//!
//! The script looks for `def test_…` lines and the decorator lines right above them with regular
//! expressions. This module applies the same expressions; it shares nothing with the real analysis.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use rayon::prelude::*;
use regex::Regex;

use super::analysis::{COMMON, model_name, model_names};
use super::report::proportion;
use super::tree::Tree as _;
use super::{Fault, ScanOptions, SkipsError};
use crate::python::source_text;

/// What the script reports for one test.
#[derive(Clone, Debug, PartialEq)]
pub struct CompatEntry {
    /// The name of the test.
    pub name: String,
    /// `common`, `GenerationMixin`, or `unknown`.
    pub origin: String,
    /// Models that do not mention a skip.
    pub models_ran: Vec<String>,
    /// Models with a decorator line that contains `skip`.
    pub models_skipped: Vec<String>,
    /// The share of models that skip it, to four digits.
    pub skipped_proportion: f64,
    /// `model: reason`, sorted.
    pub reasons_skipped: Vec<String>,
}

// Python's `\s` also matches the four separators from U+001C to U+001F.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?m)((?:^[\s\x1c-\x1f]*@.*?\n)*?)^[\s\x1c-\x1f]*def[\s\x1c-\x1f]+(test_[A-Za-z0-9_]+)\b",
    )
});
static COMMON_DEFINITION: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?m)^[\s\x1c-\x1f]*def[\s\x1c-\x1f]+(test_[A-Za-z0-9_]+)"));
static KEYWORD_REASON: LazyLock<Regex> =
    LazyLock::new(|| compile(r#"reason[\s\x1c-\x1f]*=[\s\x1c-\x1f]*["'](.*?)["']"#));
static LAST_STRING: LazyLock<Regex> =
    LazyLock::new(|| compile(r#"\((?:.*?,[\s\x1c-\x1f]*)?["'](.*?)["']\)"#));

fn compile(pattern: &str) -> Regex {
    // The patterns are constants, compiled by the tests.
    Regex::new(pattern).expect("a constant pattern")
}

/// A test's decorator block: nothing when no line of it contains `skip`, else the reason.
type Overrides = HashMap<String, Option<String>>;

/// Scans like the script: all common tests, or one test. Returns the entries, the number of models
/// and of test files, and the files that could not be read.
///
/// # Errors
/// [`SkipsError`] where there is nothing to scan.
pub fn compat_scan(
    options: &ScanOptions,
) -> Result<(Vec<CompatEntry>, usize, usize, Vec<Fault>), SkipsError> {
    if let Some(name) = &options.test {
        super::check_test_name(name)?;
    }
    super::with_workers(|| {
        let tree = super::open(&options.repo)?;
        let mut problems = Vec::new();
        let files = tree.test_files(&mut problems);
        let read = |path: &str| -> Result<String, Fault> {
            let bytes = tree
                .read(path)
                .map_err(|error| Fault::new(path, None, format!("cannot be read: {error}")))?;
            let text = source_text(bytes).map_err(|fault| fault.at(path))?;
            // The script reads with universal newlines.
            Ok(if text.contains('\r') {
                text.replace("\r\n", "\n").replace('\r', "\n")
            } else {
                text
            })
        };
        let mut tests: Vec<(String, &'static str)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (path, origin) in COMMON {
            if !tree.is_file(path) {
                continue;
            }
            match read(path) {
                Ok(text) => {
                    for found in COMMON_DEFINITION.captures_iter(&text) {
                        let name = &found[1];
                        match places.get(name) {
                            Some(&at) => tests[at].1 = origin,
                            None => {
                                places.insert(name.to_owned(), tests.len());
                                tests.push((name.to_owned(), origin));
                            }
                        }
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if let Some(name) = &options.test {
            let origin = places.get(name).map_or("unknown", |&at| tests[at].1);
            tests = vec![(name.clone(), origin)];
        }
        let models = model_names(&files);
        let scanned: Vec<Result<Overrides, Fault>> = files
            .par_iter()
            .map(|path| read(path).map(|text| overrides(&text)))
            .collect();
        let mut by_model: HashMap<&str, Overrides> = HashMap::new();
        for (path, found) in files.iter().zip(scanned) {
            match found {
                Ok(found) => by_model.entry(model_name(path)).or_default().extend(found),
                Err(problem) => problems.push(problem),
            }
        }
        let entries = tests
            .par_iter()
            .map(|(name, origin)| {
                let mut entry = CompatEntry {
                    name: name.clone(),
                    origin: (*origin).to_owned(),
                    models_ran: Vec::new(),
                    models_skipped: Vec::new(),
                    skipped_proportion: 0.0,
                    reasons_skipped: Vec::new(),
                };
                for model in &models {
                    match by_model
                        .get(model.as_str())
                        .and_then(|tests| tests.get(name))
                    {
                        Some(Some(reason)) => {
                            entry.models_skipped.push(model.clone());
                            entry.reasons_skipped.push(format!("{model}: {reason}"));
                        }
                        _ => entry.models_ran.push(model.clone()),
                    }
                }
                entry.skipped_proportion = proportion(entry.models_skipped.len(), models.len());
                entry
            })
            .collect();
        Ok((entries, models.len(), files.len(), problems))
    })
}

/// The tests one file defines, with the reason of those that mention a skip.
fn overrides(text: &str) -> Overrides {
    DEFINITION
        .captures_iter(text)
        .map(|found| {
            let block = &found[1];
            let reason = block.contains("skip").then(|| reason(block));
            (found[2].to_owned(), reason)
        })
        .collect()
}

/// The reason in a block of decorator lines.
fn reason(block: &str) -> String {
    if let Some(found) = KEYWORD_REASON
        .captures(block)
        .or_else(|| LAST_STRING.captures(block))
    {
        return found[1].to_owned();
    }
    let block = block.trim_matches(is_python_space);
    block
        .rsplit('\n')
        .next()
        .unwrap_or("")
        .trim_matches(is_python_space)
        .to_owned()
}

fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// The script's summary of one test, as it prints it. `entry` is not sorted yet, as in the script.
pub fn compat_summary(
    name: &str,
    ran: usize,
    skipped: usize,
    total: usize,
    reasons: &[String],
) -> String {
    let mut text = String::new();
    let percent = if total == 0 {
        0.0
    } else {
        skipped as f64 / total as f64 * 100.0
    };
    let _ = writeln!(text, "\n== {name} ==");
    let _ = writeln!(text, "Ran    : {ran}/{total}");
    let _ = writeln!(text, "Skipped : {skipped}/{total} ({percent:.1}%)");
    for reason in reasons.iter().take(10) {
        let _ = writeln!(text, " - {reason}");
    }
    if reasons.len() > 10 {
        let _ = writeln!(text, " - ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What CPython 3.11 finds with the script's expressions in the same text.
    #[test]
    fn reasons_are_cut_where_the_script_cuts_them() {
        let text = concat!(
            "    @unittest.skip(reason=\"It can't run\")\n    def test_a(self):\n",
            "    @unittest.skip(\n        \"multi\"\n    )\n    def test_b(self):\n",
            "    @slow\n    @unittest.skip\n    def test_c(self):\n",
            "    @unittest.skip(\"a\" + \"b\")\n\n\n    def test_d(self):\n",
            "    async def test_e(self):\n",
        );
        let found = overrides(text);
        assert_eq!(found["test_a"].as_deref(), Some("It can"));
        assert_eq!(found["test_b"], None);
        assert_eq!(found["test_c"].as_deref(), Some("@unittest.skip"));
        assert_eq!(found["test_d"].as_deref(), Some("a\" + \"b"));
        assert!(!found.contains_key("test_e"));
    }
}
