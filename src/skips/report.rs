//! Sums up verdicts: per test over models, and per class over tests.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::analysis::{ClassVerdicts, CommonTest, Concrete};
use super::project::Project;
use super::status::Status;
use super::suite::{Entry, ItemKind};
use super::verdict::{ClassRules, Verdict, joined};

/// The report on one common test.
#[derive(Clone, Debug)]
pub struct TestReport {
    /// The name of the test method.
    pub name: String,
    /// `common`, `GenerationMixin`, or `unknown` for a test of neither file.
    pub origin: String,
    /// Models where it runs in every class that has it.
    pub models_ran: Vec<Arc<str>>,
    /// Models where it is off, whatever the machine, in every class that has it.
    pub models_skipped: Vec<Arc<str>>,
    /// The share of all models that skip it, to four digits.
    pub skipped_proportion: f64,
    /// `model: reason` for every model that skips it, in which the distinct reasons of several classes
    /// are joined by semicolons.
    pub reasons_skipped: Vec<String>,
    /// Models where it is off in some classes or some cases only.
    pub models_partial: Vec<Arc<str>>,
    /// Models where the machine decides.
    pub models_conditional: Vec<Arc<str>>,
    /// Models where no class has the test.
    pub models_absent: Vec<Arc<str>>,
    /// Models where it cannot be known without running Python.
    pub models_unknown: Vec<Arc<str>>,
    /// Everything that does not simply run.
    pub details: Vec<Detail>,
}

/// One test of one class that does not simply run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The model: the name of the test file's folder.
    pub model: Arc<str>,
    /// The test class, by the name it has in the model's test file.
    pub class: Arc<str>,
    /// The test as a test runner lists it (`test_x_0_fp16` for a case of `test_x`).
    pub test: Arc<str>,
    /// What happens to it.
    pub status: Status,
    /// The reason given, in full.
    pub reason: Option<Arc<str>>,
    /// `file:line` of what causes it.
    pub place: Arc<str>,
    /// The expression under which it is skipped.
    pub condition: Option<Arc<str>>,
}

/// Every test of one class.
#[derive(Clone, Debug)]
pub struct ClassTests {
    /// The test file, relative to the repository's root.
    pub file: String,
    /// The model.
    pub model: String,
    /// The class, by the name it has in the file.
    pub class: String,
    /// The class is imported from another file.
    pub imported: bool,
    /// The reason of a skip that holds for the whole class.
    pub class_skip: Option<Arc<str>>,
    /// Reasons for which the machine may skip the whole class.
    pub class_conditions: Option<Arc<str>>,
    /// Every test by name.
    pub tests: Vec<TestVerdict>,
}

/// One test of a [`ClassTests`].
#[derive(Clone, Debug)]
pub struct TestVerdict {
    /// The test as a test runner lists it.
    pub test: Arc<str>,
    /// What happens to it.
    pub status: Status,
    /// The reason given, in full.
    pub reason: Option<Arc<str>>,
    /// The expression under which it is skipped.
    pub condition: Option<Arc<str>>,
}

/// One test of a family, judged.
pub(crate) struct CaseVerdict {
    pub name: Arc<str>,
    pub verdict: Verdict,
    /// A case of an expanded method, not a method under its own name.
    pub is_case: bool,
}

impl CaseVerdict {
    pub fn new(entry: &Entry, verdict: Verdict) -> Self {
        let is_case =
            entry.family != entry.item.name || matches!(entry.item.kind, ItemKind::Case(..));
        Self {
            name: entry.item.name.clone(),
            verdict,
            is_case,
        }
    }
}

/// What happens to one common test in one class.
pub(crate) enum FamilyVerdicts {
    /// The class inherits the mixin; the tests of that name and its cases.
    Has(Vec<CaseVerdict>),
    Lacks,
    /// An ancestor is not known.
    Unknown,
}

/// A class's tests of one family, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sum {
    Ran,
    Off,
    Partial,
    Conditional,
    Unknown,
    Absent,
}

fn sum(tests: &[CaseVerdict]) -> Sum {
    // Where a test is expanded, its own name is no longer the test.
    let expanded = tests.iter().any(|test| test.is_case);
    let mut seen = [0usize; 4];
    for test in tests.iter().filter(|test| test.is_case == expanded) {
        let at = match test.verdict.status {
            Status::Absent => continue,
            status if status.is_off() => 0,
            Status::Unknown => 1,
            Status::Conditional => 2,
            _ => 3,
        };
        seen[at] += 1;
    }
    match seen {
        [0, 0, 0, 0] => Sum::Absent,
        [_, 0, 0, 0] => Sum::Off,
        [off, ..] if off > 0 => Sum::Partial,
        [_, unknown, ..] if unknown > 0 => Sum::Unknown,
        [_, _, conditional, _] if conditional > 0 => Sum::Conditional,
        _ => Sum::Ran,
    }
}

/// What one model does with a test, over its classes.
fn over_classes(sums: &[Sum], unknown_class: bool) -> Sum {
    let present: Vec<Sum> = sums
        .iter()
        .copied()
        .filter(|sum| *sum != Sum::Absent)
        .collect();
    if present.is_empty() {
        return if unknown_class {
            Sum::Unknown
        } else {
            Sum::Absent
        };
    }
    if present.iter().all(|sum| *sum == Sum::Off) && !unknown_class {
        Sum::Off
    } else if present
        .iter()
        .any(|sum| matches!(sum, Sum::Off | Sum::Partial))
    {
        Sum::Partial
    } else if unknown_class || present.contains(&Sum::Unknown) {
        Sum::Unknown
    } else if present.contains(&Sum::Conditional) {
        Sum::Conditional
    } else {
        Sum::Ran
    }
}

/// The report on the common test at place `at`.
pub(crate) fn summarise(
    project: &Project,
    test: &CommonTest,
    at: usize,
    models: &[Arc<str>],
    by_model: &[Vec<&ClassVerdicts<'_>>],
    unreadable: &FxHashSet<u32>,
) -> TestReport {
    let mut report = TestReport {
        name: test.name.to_string(),
        origin: test.origin.to_owned(),
        models_ran: Vec::new(),
        models_skipped: Vec::new(),
        skipped_proportion: 0.0,
        reasons_skipped: Vec::new(),
        models_partial: Vec::new(),
        models_conditional: Vec::new(),
        models_absent: Vec::new(),
        models_unknown: Vec::new(),
        details: Vec::new(),
    };
    let mixin = test
        .mixins
        .first()
        .map_or("the mixin", |&id| &project.class(id).name);
    let lacks: Arc<str> = format!("the class does not inherit `{mixin}`").into();
    let unresolved: Arc<str> = "a base class cannot be resolved".into();
    let mut places = Places::default();
    for (number, (model, classes)) in models.iter().zip(by_model).enumerate() {
        let mut sums = Vec::with_capacity(classes.len());
        let mut unknown_class = unreadable.contains(&(number as u32));
        for class in classes {
            match &class.families[at] {
                FamilyVerdicts::Has(tests) => {
                    sums.push(sum(tests));
                    for case in tests {
                        if let Some(detail) = detail(project, test, class, model, case, &mut places)
                        {
                            report.details.push(detail);
                        }
                    }
                }
                FamilyVerdicts::Lacks => {
                    if class.tests_models {
                        report
                            .details
                            .push(missing(test, class, model, Status::Absent, &lacks));
                    }
                }
                FamilyVerdicts::Unknown => {
                    unknown_class = true;
                    report
                        .details
                        .push(missing(test, class, model, Status::Unknown, &unresolved));
                }
            }
        }
        let list = match over_classes(&sums, unknown_class) {
            Sum::Off => {
                report
                    .reasons_skipped
                    .push(reason_line(test, at, classes, model, project));
                &mut report.models_skipped
            }
            Sum::Ran => &mut report.models_ran,
            Sum::Partial => &mut report.models_partial,
            Sum::Conditional => &mut report.models_conditional,
            Sum::Absent => &mut report.models_absent,
            Sum::Unknown => &mut report.models_unknown,
        };
        list.push(model.clone());
    }
    report.reasons_skipped.sort();
    report.skipped_proportion = proportion(report.models_skipped.len(), models.len());
    report
}

/// `part / whole` to four digits, the way Python's `round(part / whole, 4)` gives it.
pub(crate) fn proportion(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    // Formatting rounds the exact binary value half to even, as Python does.
    format!("{:.4}", part as f64 / whole as f64)
        .parse()
        .unwrap_or(0.0)
}

/// `model: reason`, with every distinct reason of its classes.
fn reason_line(
    test: &CommonTest,
    at: usize,
    classes: &[&ClassVerdicts<'_>],
    model: &str,
    project: &Project,
) -> String {
    let mut found: Vec<String> = Vec::new();
    for class in classes {
        let FamilyVerdicts::Has(tests) = &class.families[at] else {
            continue;
        };
        for case in tests.iter().filter(|case| case.verdict.status.is_off()) {
            let reason = worded(test, &case.verdict, project);
            if !found.contains(&reason) {
                found.push(reason);
            }
        }
    }
    format!("{model}: {}", found.join("; "))
}

/// The reason of a verdict, in words where the source gives none.
fn worded(test: &CommonTest, verdict: &Verdict, project: &Project) -> String {
    match (&verdict.reason, verdict.status) {
        (Some(reason), _) => reason.to_string(),
        (None, Status::Shadowed) => {
            let line = project.module(verdict.module).line(verdict.offset) as usize;
            let text = project
                .module(verdict.module)
                .text
                .lines()
                .nth(line - 1)
                .unwrap_or("")
                .trim();
            format!("`{text}` hides the test")
        }
        (None, Status::Neutralised) => format!("`{}` is overridden by an empty body", test.name),
        (None, _) => String::new(),
    }
}

fn detail(
    project: &Project,
    test: &CommonTest,
    class: &ClassVerdicts<'_>,
    model: &Arc<str>,
    case: &CaseVerdict,
    places: &mut Places,
) -> Option<Detail> {
    let verdict = &case.verdict;
    match verdict.status {
        Status::Runs | Status::Absent => return None,
        // The common test's own guards hold for every class alike.
        Status::Guarded
            if test
                .mixins
                .iter()
                .any(|mixin| mixin.module == verdict.module) =>
        {
            return None;
        }
        _ => {}
    }
    Some(Detail {
        model: model.clone(),
        class: class.concrete.name.clone(),
        test: case.name.clone(),
        status: verdict.status,
        reason: verdict.reason.clone(),
        place: places.get(project, verdict.module, verdict.offset),
        condition: verdict.condition.clone(),
    })
}

/// `file:line` of places asked for before: most details of a test share a few.
#[derive(Default)]
struct Places(FxHashMap<(u32, u32), Arc<str>>);

impl Places {
    fn get(&mut self, project: &Project, module: u32, offset: u32) -> Arc<str> {
        self.0
            .entry((module, offset))
            .or_insert_with(|| project.place(module, offset).into())
            .clone()
    }
}

/// A class that lacks the test (`status` absent) or may have it from a base that is not known.
fn missing(
    test: &CommonTest,
    class: &ClassVerdicts<'_>,
    model: &Arc<str>,
    status: Status,
    reason: &Arc<str>,
) -> Detail {
    Detail {
        model: model.clone(),
        class: class.concrete.name.clone(),
        test: test.name.clone(),
        status,
        reason: Some(reason.clone()),
        place: class.concrete.place.clone(),
        condition: None,
    }
}

/// The tests of one class for the inventory.
pub(crate) fn class_tests(
    project: &Project,
    concrete: &Concrete,
    rules: &ClassRules,
    tests: Vec<(Arc<str>, Verdict)>,
) -> ClassTests {
    let file = &project.module(concrete.module).path;
    ClassTests {
        file: file.to_string(),
        model: super::analysis::model_name(file).to_owned(),
        class: concrete.name.to_string(),
        imported: concrete.imported,
        class_skip: rules
            .certain()
            .map(|verdict| verdict.reason.clone().unwrap_or_else(|| "".into())),
        class_conditions: joined(rules.conditions().to_vec()).and_then(|verdict| verdict.reason),
        tests: tests
            .into_iter()
            .map(|(test, verdict)| TestVerdict {
                test,
                status: verdict.status,
                reason: verdict.reason,
                condition: verdict.condition,
            })
            .collect(),
    }
}
