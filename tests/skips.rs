//! The skip scanner against pytest's own verdicts on small trees of test files.
#![cfg(feature = "skips")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use burnscope::skips::{
    LintKind, Scan, ScanOptions, SkipsError, Status, TestReport, TestVerdict, compat_scan, scan,
};

type Expected = BTreeMap<String, Vec<(String, String, String)>>;

fn tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/skips")
        .join(name)
}

fn expected(name: &str) -> Expected {
    let text = fs::read_to_string(tree(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn full(root: &Path) -> Scan {
    scan(&ScanOptions {
        inventory: true,
        lints: true,
        ..ScanOptions::new(root)
    })
    .unwrap()
}

/// Whether pytest says the same as the scan. `machine` holds the reasons for which the machine may
/// skip the whole class, which pytest reports before those of a test's body.
fn agrees(verdict: &TestVerdict, machine: &str, pytest: &str) -> bool {
    let reason = verdict.reason.as_deref().unwrap_or("");
    let skip = |reason: &str| {
        // pytest's word for a skip without a reason.
        pytest
            == format!(
                "skip: {}",
                if reason.is_empty() { "Skipped" } else { reason }
            )
    };
    match verdict.status {
        // Where a body or `setUp` skips anyway, a decorator may still skip earlier on this machine.
        Status::SkippedByClass if verdict.condition.is_some() => {
            skip(reason) || skip("test is slow")
        }
        Status::Skipped | Status::SkippedByClass | Status::Inherited => skip(reason),
        Status::Flag => skip(reason) || machine.split("; ").any(skip),
        Status::Runs | Status::Neutralised => pytest == "run",
        // The test's own computation decides.
        Status::Guarded => pytest == "run" || skip(reason),
        Status::ExpectedFailure => pytest == "xfail",
        // The machine decides: a skip must be for one of the reasons.
        Status::Conditional => pytest == "run" || reason.split("; ").any(skip),
        Status::Unknown => true,
        _ => false,
    }
}

fn assert_equals_pytest(name: &str) {
    let scan = full(&tree(name));
    assert_eq!(scan.problems, []);
    for (model, verdicts) in expected(name) {
        let mut listed: BTreeSet<(&str, &str)> = BTreeSet::new();
        let mut found: BTreeMap<(&str, &str), (&TestVerdict, &str)> = BTreeMap::new();
        for class in scan.classes.iter().filter(|class| class.model == model) {
            for test in class
                .tests
                .iter()
                .filter(|test| test.status != Status::Shadowed)
            {
                let machine = class.class_conditions.as_deref().unwrap_or("");
                found.insert((&class.class, &test.test), (test, machine));
            }
        }
        for (class, test, pytest) in &verdicts {
            let (verdict, machine) = found
                .get(&(class, test))
                .unwrap_or_else(|| panic!("{model}: no {class}::{test}"));
            assert!(
                agrees(verdict, machine, pytest),
                "{model}: {class}::{test}: pytest says {pytest}, not {verdict:?}"
            );
            listed.insert((class, test));
        }
        let extra: Vec<_> = found.keys().filter(|key| !listed.contains(*key)).collect();
        assert!(extra.is_empty(), "{model}: pytest does not list {extra:?}");
    }
}

#[test]
fn every_verdict_on_single_cases_equals_that_of_pytest() {
    assert_equals_pytest("tree");
}

#[test]
fn every_verdict_on_combined_cases_equals_that_of_pytest() {
    assert_equals_pytest("more");
}

#[test]
fn few_verdicts_are_left_open() {
    let scan = full(&tree("more"));
    let open: BTreeSet<(String, String)> = scan
        .classes
        .iter()
        .flat_map(|class| class.tests.iter().map(move |test| (class, test)))
        .filter(|(_, test)| test.status == Status::Unknown)
        .map(|(class, test)| (class.class.clone(), test.test.to_string()))
        .collect();
    // Attributes filled in `setUp` cannot be known; an unset default is not the value.
    let expected = [
        ("FilledModelTest", "test_beta"),
        ("FilledModelTest", "test_gamma_0_eager"),
    ];
    assert_eq!(
        open,
        expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into()
    );
}

fn report<'s>(scan: &'s Scan, name: &str) -> &'s TestReport {
    scan.tests.iter().find(|test| test.name == name).unwrap()
}

fn names(list: &[std::sync::Arc<str>]) -> Vec<&str> {
    list.iter().map(|name| &**name).collect()
}

#[test]
fn a_model_skips_a_test_only_if_every_class_that_has_it_does() {
    let scan = full(&tree("tree"));
    let alpha = report(&scan, "test_alpha");
    assert_eq!(alpha.origin, "common");
    assert_eq!(
        names(&alpha.models_skipped),
        [
            "bodyskip",
            "classskip",
            "constreason",
            "inherited",
            "multiline",
            "neutral",
            "quote",
            "shadow"
        ]
    );
    assert_eq!(
        names(&alpha.models_partial),
        ["crossfile", "twoclasses", "twofiles"]
    );
    // 8 of 16 models.
    assert_eq!(alpha.skipped_proportion, 0.5);
    assert!(
        alpha
            .reasons_skipped
            .contains(&"quote: It can't run".to_owned())
    );
    assert!(
        alpha
            .reasons_skipped
            .contains(&"multiline: first half of the reason, second half".to_owned())
    );
    assert!(
        names(&alpha.models_ran).contains(&"nomixin"),
        "the same name in another class is another test"
    );
    assert!(
        names(&alpha.models_ran).contains(&"strings"),
        "text in a string is no code"
    );
    let epsilon = report(&scan, "test_epsilon");
    assert_eq!(names(&epsilon.models_partial), ["paramorder"]);
    let greedy = report(&scan, "test_greedy");
    assert_eq!(greedy.models_absent.len(), scan.models.len());
    assert!(
        scan.tests
            .iter()
            .all(|test| test.name != "test_not_a_common_test")
    );
    for test in &scan.tests {
        let total = test.models_ran.len()
            + test.models_skipped.len()
            + test.models_partial.len()
            + test.models_conditional.len()
            + test.models_absent.len()
            + test.models_unknown.len();
        assert_eq!(total, scan.models.len(), "{}", test.name);
    }
}

#[test]
fn details_say_what_where_and_under_which_condition() {
    let scan = full(&tree("more"));
    let detail = |test: &str, class: &str| {
        scan.tests
            .iter()
            .flat_map(|report| &report.details)
            .find(|detail| &*detail.test == test && &*detail.class == class)
            .unwrap_or_else(|| panic!("no detail on {class}::{test}"))
    };
    let kernels = detail("test_alpha", "RequiresModelTest");
    assert_eq!(kernels.status, Status::Conditional);
    assert_eq!(
        kernels.condition.as_deref(),
        Some("not is_kernels_available()")
    );
    assert_eq!(kernels.reason.as_deref(), Some("test requires kernels"));
    assert_eq!(
        &*kernels.place,
        "tests/models/requires/test_modeling_requires.py:20"
    );
    let flag = detail("test_gamma_0_eager", "NoneModelTest");
    assert_eq!(flag.status, Status::Flag);
    assert_eq!(flag.condition.as_deref(), Some("not self.has_attentions"));
    assert_eq!(&*flag.place, "tests/test_modeling_common.py:13");
    let cpu = detail("test_beta", "RequiresModelTest");
    assert_eq!(cpu.condition.as_deref(), Some("torch_device == \"cpu\""));
    let shadowed = detail("test_delta_static", "ByHandModelTest");
    assert_eq!(shadowed.status, Status::Shadowed);
    let absent = detail("test_alpha", "PlainModelTest");
    assert_eq!(absent.status, Status::Absent);
}

#[test]
fn parameters_of_a_requirement_appear_in_its_condition() {
    let scan = full(&tree("more"));
    let class = scan
        .classes
        .iter()
        .find(|class| class.class == "RequiresModelTest")
        .unwrap();
    let test = class
        .tests
        .iter()
        .find(|test| &*test.test == "test_own_version")
        .unwrap();
    assert_eq!(
        test.condition.as_deref(),
        Some("not (torch_device > 'z2.0')")
    );
}

/// A checkout written for one test.
struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        checkout
            .file(
                "tests/test_modeling_common.py",
                "from parameterized import parameterized\n\
                 class ModelTesterMixin:\n    flag = True\n    def test_a(self):\n        if not self.flag:\n            self.skipTest('flag is off')\n    def test_b(self): work()\n\
                 \x20   @parameterized.expand([('x',), ('y',)])\n    def test_c(self, kind): work()\n",
            )
            .file("tests/generation/test_utils.py", "class GenerationTesterMixin:\n    def test_g(self): work()\n")
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A model test file with the usual imports.
    fn model(self, name: &str, text: &str) -> Self {
        let text = format!(
            "import unittest\nimport pytest\nfrom parameterized import parameterized\n\
             from tests.test_modeling_common import ModelTesterMixin\n{text}"
        );
        self.file(
            &format!("tests/models/{name}/test_modeling_{name}.py"),
            &text,
        )
    }

    fn scan(&self) -> Scan {
        full(self.0.path())
    }
}

#[test]
fn each_lint_is_found_at_its_line_and_nothing_else() {
    let checkout = Checkout::new().model(
        "m",
        "class HelperModelTester:\n\
         \x20   @unittest.skip('no test class')\n    def test_a(self): pass\n\
         class MModelTest(ModelTesterMixin, unittest.TestCase):\n\
         \x20   flag = False\n    old_flag = False\n    test_b = False\n    size = 3\n\
         \x20   @unittest.skip\n    def test_a(self): pass\n\
         \x20   @unittest.skip('gone')\n    def test_gone(self): pass\n\
         \x20   @unittest.skip('too high')\n    @parameterized.expand([('x',), ('y',)])\n    def test_c(self, kind): pass\n\
         \x20   @unittest.skip('a real test of its own')\n    def test_own(self): work()\n\
         class NModelTest(ModelTesterMixin, unittest.TestCase):\n\
         \x20   def test_b(self):\n        '''Not needed.'''\n\
         \x20   @unittest.skip('plain')\n    def test_c(self): pass\n\
         \x20   def test_a(self):\n        unittest.skip('does nothing')\n        work()\n",
    );
    let scan = checkout.scan();
    let found: Vec<(LintKind, usize)> = scan
        .lints
        .iter()
        .map(|lint| (lint.kind, lint.line))
        .collect();
    let mut expected = vec![
        (LintKind::SkipWithoutEffect, 6),
        (LintKind::UnreadFlag, 10),
        (LintKind::MissingReason, 13),
        (LintKind::StaleSkip, 15),
        (LintKind::SkipWithoutEffect, 17),
        (LintKind::EmptyBody, 23),
        (LintKind::SkipWithoutEffect, 25),
        (LintKind::SkipWithoutEffect, 28),
    ];
    // The re-expanded cases of `test_c` are empty: they pass without testing.
    expected.insert(5, (LintKind::EmptyBody, 19));
    let distinct: BTreeSet<_> = found.into_iter().collect();
    assert_eq!(distinct, expected.into_iter().collect());
}

#[test]
fn broken_input_is_reported_and_the_rest_is_scanned() {
    let checkout = Checkout::new()
        .model("good", "class GModelTest(ModelTesterMixin, unittest.TestCase):\n    @unittest.skip('off')\n    def test_a(self): pass\n")
        .model("broken", "class BModelTest(ModelTesterMixin, unittest.TestCase):\n    def test_a(self:\n")
        .model("binary", "\u{0}\u{1}")
        .model("lost", "from tests.nowhere import Gone\nclass LModelTest(Gone, unittest.TestCase): pass\n")
        .model("circle", "from tests.ring_a import Ring\nclass CModelTest(Ring, unittest.TestCase): pass\n")
        .file("tests/ring_a.py", "from tests.ring_b import Ring\n")
        .file("tests/ring_b.py", "from tests.ring_a import Ring\n")
        .model("self", "class A(unittest.TestCase): pass\nclass SModelTest(SModelTest): pass\n");
    fs::write(
        checkout
            .0
            .path()
            .join("tests/models/binary/test_modeling_binary.py"),
        b"\xff\xfe\x00",
    )
    .unwrap();
    let scan = checkout.scan();
    let report = report(&scan, "test_a");
    assert_eq!(names(&report.models_skipped), ["good"]);
    assert_eq!(
        names(&report.models_unknown),
        ["binary", "broken", "circle", "lost", "self"]
    );
    let at = |path: &str| {
        scan.problems
            .iter()
            .find(|problem| problem.path.contains(path))
    };
    assert!(at("broken").unwrap().line.unwrap() >= 6);
    assert!(at("binary").unwrap().message.contains("UTF-8"));
    assert_eq!(at("lost").unwrap().line, Some(5));
    assert!(at("circle").unwrap().message.contains("circle"));
    assert!(at("self").is_some(), "{:#?}", scan.problems);
}

#[test]
fn a_missing_common_file_is_a_problem_and_no_models_are_an_error() {
    let checkout = Checkout::new().model(
        "m",
        "class MModelTest(ModelTesterMixin, unittest.TestCase): pass\n",
    );
    fs::remove_file(checkout.0.path().join("tests/generation/test_utils.py")).unwrap();
    let scan = checkout.scan();
    assert_eq!(scan.problems.len(), 1);
    assert_eq!(scan.problems[0].path, "tests/generation/test_utils.py");
    assert_eq!(scan.tests.len(), 3);
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(
        super_scan(empty.path()),
        Err(SkipsError::NoModelTests(_))
    ));
}

fn super_scan(root: &Path) -> Result<Scan, SkipsError> {
    scan(&ScanOptions::new(root))
}

#[test]
fn deep_nesting_is_refused_instead_of_overflowing_the_stack() {
    let deep = 100_000;
    let mut checkout = Checkout::new();
    for (name, text) in [
        (
            "parens",
            format!("x = {}1{}", "(".repeat(deep), ")".repeat(deep)),
        ),
        ("minus", format!("x = {}1", "-".repeat(deep))),
        ("attributes", format!("x = a{}", ".b".repeat(deep))),
        ("sums", format!("x = 1{}", "+1".repeat(deep))),
        ("fstring", format!("x = f'{{{}1}}'", "-".repeat(deep))),
        ("lambdas", format!("x = {}1", "lambda a, b: ".repeat(deep))),
        ("nots", format!("if {}x: pass", "not ".repeat(deep))),
        (
            "elifs",
            format!("if x: pass\n{}", "elif x: pass\n".repeat(deep)),
        ),
    ] {
        checkout = checkout.model(name, &text);
    }
    let scan = checkout.scan();
    let refused: Vec<_> = scan
        .problems
        .iter()
        .filter(|p| p.message.contains("nested too deeply"))
        .collect();
    assert_eq!(refused.len(), 7, "{:?}", scan.problems);
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_repository_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.py"), "class SModelTest: pass\n").unwrap();
    let checkout = Checkout::new().model(
        "m",
        "class MModelTest(ModelTesterMixin, unittest.TestCase): pass\n",
    );
    std::os::unix::fs::symlink(
        outside.path().join("secret.py"),
        checkout
            .0
            .path()
            .join("tests/models/m/test_modeling_link.py"),
    )
    .unwrap();
    let scan = checkout.scan();
    assert!(
        scan.problems[0]
            .message
            .contains("leads out of the repository"),
        "{:?}",
        scan.problems
    );
}

#[test]
fn one_test_can_be_named_and_a_wrong_name_gets_a_hint() {
    let one = |name: &str| {
        scan(&ScanOptions {
            test: Some(name.into()),
            ..ScanOptions::new(tree("tree"))
        })
    };
    let scan = one("test_beta").unwrap();
    assert_eq!(scan.tests.len(), 1);
    assert_eq!(
        names(&scan.tests[0].models_skipped),
        [
            "bodyskip",
            "classskip",
            "constreason",
            "multiline",
            "neutral",
            "quote",
            "shadow"
        ]
    );
    let error = one("test_betta").unwrap_err().to_string();
    assert!(error.contains("did you mean `test_beta`?"), "{error}");
    assert!(matches!(
        one("../../etc/passwd"),
        Err(SkipsError::BadTestName(_))
    ));
}

#[test]
fn an_assumption_decides_a_condition() {
    let assume = |value| {
        let mut options = ScanOptions::new(tree("more"));
        options.assumptions.push(burnscope::skips::Assumption {
            condition: "torch_device == \"cpu\"".into(),
            value,
        });
        let scan = scan(&options).unwrap();
        let beta = report(&scan, "test_beta").clone();
        beta.details
            .iter()
            .find(|d| &*d.class == "RequiresModelTest")
            .map(|d| d.status)
    };
    assert_eq!(assume(true), Some(Status::Skipped));
    assert_eq!(assume(false), None);
}

/// The counts are those of the original script on the same files.
#[test]
fn the_compatible_mode_keeps_the_mistakes() {
    let (entries, models, files, problems) = compat_scan(&ScanOptions::new(tree("tree"))).unwrap();
    assert_eq!((models, files), (16, 17));
    assert!(problems.is_empty());
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "test_alpha",
            "test_beta",
            "test_gamma",
            "test_delta",
            "test_epsilon",
            "test_greedy",
            "test_not_a_common_test"
        ]
    );
    assert_eq!(
        entries[0].models_skipped,
        ["constreason", "inherited", "nomixin", "quote", "strings"]
    );
    assert!(
        entries[0]
            .reasons_skipped
            .contains(&"quote: It can".to_owned())
    );
}
