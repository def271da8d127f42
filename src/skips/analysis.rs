//! The scan from files to reports: load, link classes, judge each class, sum up per test.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::Binding;
use super::flags::ClassView;
use super::mro::{Lineage, Lineages};
use super::project::{ClassId, Def, Project};
use super::reach::Reach;
use super::report::{self, ClassTests, FamilyVerdicts};
use super::status::Status;
use super::suite::Suite;
use super::tree::{MODELS, Tree};
use super::verdict::{ClassRules, Verdict, judge};
use super::{Fault, Scan, ScanOptions, SkipsError, lint};

/// The files that define the common tests, with the origin reported for them.
pub(crate) const COMMON: [(&str, &str); 2] = [
    ("tests/test_modeling_common.py", "common"),
    ("tests/generation/test_utils.py", "GenerationMixin"),
];

/// A test every class that inherits its mixin has.
#[derive(Debug)]
pub(crate) struct CommonTest {
    pub name: Arc<str>,
    pub origin: &'static str,
    /// The mixins that define it.
    pub mixins: Vec<ClassId>,
}

/// A class that a test runner collects from a model's test file.
#[derive(Debug)]
pub(crate) struct Concrete {
    pub model: u32,
    /// The file it is collected from.
    pub module: u32,
    /// The name it has there.
    pub name: Arc<str>,
    pub class: ClassId,
    /// Imported from another file.
    pub imported: bool,
    /// `file:line` of the class.
    pub place: Arc<str>,
}

/// What happens to the common tests in one class.
pub(crate) struct ClassVerdicts<'a> {
    pub concrete: &'a Concrete,
    /// One entry per common test.
    pub families: Vec<FamilyVerdicts>,
    /// It has common tests at all.
    pub tests_models: bool,
}

/// Scans a tree of files.
pub(crate) fn analyse(
    tree: &dyn Tree,
    repo: &Path,
    options: &ScanOptions,
) -> Result<Scan, SkipsError> {
    let mut problems = Vec::new();
    let files = tree.test_files(&mut problems);
    if files.is_empty() && problems.is_empty() {
        return Err(SkipsError::NoModelTests(repo.to_owned()));
    }
    let mut roots: Vec<String> = Vec::new();
    for (path, _) in COMMON {
        if tree.is_file(path) {
            roots.push(path.to_owned());
        } else {
            problems.push(Fault::new(
                path,
                None,
                "the file with the common tests is missing",
            ));
        }
    }
    roots.extend(files.iter().cloned());
    let project = Project::load(tree, &roots, options.assumptions.clone(), &mut problems);
    let models = model_names(&files);
    let mut lineages = Lineages::default();
    let concrete = collect(&project, &files, &models, &mut lineages);
    let mut common = common_tests(&project, &mut lineages);
    let mut classes: Vec<ClassId> = concrete.iter().map(|c| c.class).collect();
    classes.extend(common.iter().flat_map(|test| test.mixins.iter().copied()));
    classes.sort_unstable();
    classes.dedup();
    let relevant: FxHashSet<ClassId> = classes
        .iter()
        .flat_map(|&class| lineages.get(class).classes())
        .collect();
    problems.extend(lineages.problems_of(&relevant));
    let suite = Suite::new(&project, lineages, &classes);
    let reach = Reach::new(&project);
    if let Some(name) = &options.test {
        common = vec![single_test(&suite, &concrete, &common, name)?];
    }

    let index: FxHashMap<&str, usize> = common
        .iter()
        .enumerate()
        .map(|(at, test)| (&*test.name, at))
        .collect();
    let mut verdicts: Vec<ClassVerdicts<'_>> = concrete
        .par_iter()
        .map(|class| judge_class(&suite, &reach, &common, &index, class))
        .collect();
    // Integration tests and the like have no common tests and do not count.
    verdicts.retain(|class| {
        class
            .families
            .iter()
            .any(|family| !matches!(family, FamilyVerdicts::Lacks))
    });
    let mut by_model: Vec<Vec<&ClassVerdicts<'_>>> = vec![Vec::new(); models.len()];
    for class in &verdicts {
        by_model[class.concrete.model as usize].push(class);
    }
    // Models whose files could not be parsed, or whose only classes have unknown ancestors.
    let mut unreadable: FxHashSet<u32> = FxHashSet::default();
    for path in &files {
        if project
            .module_at(path)
            .is_some_and(|id| project.module(id).error.is_some())
            && let Some(model) = model_of(&models, path)
        {
            unreadable.insert(model);
        }
    }
    let shared: Vec<Arc<str>> = models.iter().map(|model| model.as_str().into()).collect();
    let classes = if options.inventory {
        inventory(&suite, &reach, &concrete)
    } else {
        Vec::new()
    };
    let lints = if options.lints {
        lint::find(&suite, &concrete, &common)
    } else {
        Vec::new()
    };
    // The tables are no longer needed; taking them apart takes as long as summing up.
    let (tests, ()) = rayon::join(
        || {
            common
                .par_iter()
                .enumerate()
                .map(|(at, test)| {
                    report::summarise(&project, test, at, &shared, &by_model, &unreadable)
                })
                .collect()
        },
        || drop(suite),
    );
    drop(by_model);
    verdicts.into_par_iter().for_each(drop);
    problems.sort();
    problems.dedup();
    Ok(Scan {
        models,
        files: files.len(),
        tests,
        problems,
        lints,
        classes,
        sources: super::Sources(Some(Arc::new(project))),
    })
}

/// The names of the folders that hold test files, sorted.
pub(crate) fn model_names(files: &[String]) -> Vec<String> {
    let mut models: Vec<String> = files
        .iter()
        .map(|path| model_name(path).to_owned())
        .collect();
    models.sort();
    models.dedup();
    models
}

/// The folder a test file lies in.
pub(crate) fn model_name(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or("")
}

fn model_of(models: &[String], path: &str) -> Option<u32> {
    models
        .binary_search_by(|model| model.as_str().cmp(model_name(path)))
        .ok()
        .map(|at| at as u32)
}

/// The test classes of every file, the way pytest collects them: what the module's names hold,
/// classes imported from elsewhere included.
fn collect(
    project: &Project,
    files: &[String],
    models: &[String],
    lineages: &mut Lineages,
) -> Vec<Concrete> {
    let mut concrete = Vec::new();
    for path in files {
        let (Some(module), Some(model)) = (project.module_at(path), model_of(models, path)) else {
            continue;
        };
        let source = project.module(module);
        for name in &source.order {
            let class = match source.names.get(name) {
                Some(Binding::Class(class)) => ClassId {
                    module,
                    class: *class,
                },
                Some(Binding::From(from)) if !from.is_local() => continue,
                Some(Binding::From(_) | Binding::Value(_)) => {
                    match project.resolve_name(module, name) {
                        Def::Class(class) => class,
                        _ => continue,
                    }
                }
                _ => continue,
            };
            lineages.link(project, class);
            if is_collected(project, name, class, lineages.get(class)) {
                let imported = class.module != module;
                let place = project
                    .place(class.module, project.class(class).offset)
                    .into();
                concrete.push(Concrete {
                    model,
                    module,
                    name: (**name).into(),
                    class,
                    imported,
                    place,
                });
            }
        }
    }
    concrete
}

/// Whether pytest takes a class for a group of tests.
fn is_collected(project: &Project, name: &str, class: ClassId, lineage: &Lineage) -> bool {
    let off = lineage
        .classes()
        .find_map(|id| project.class(id).member("__test__"))
        .is_some_and(|m| {
            matches!(&m.kind, super::facts::MemberKind::Value(Some(value))
            if matches!(&**value, ruff_python_ast::Expr::BooleanLiteral(literal) if !literal.value))
        });
    if off {
        return false;
    }
    if lineage.is_test_case {
        return true;
    }
    // Its bases are not known; the name says that it is one.
    if lineage.opaque.is_some() && (name.ends_with("Test") || name.ends_with("Tests")) {
        return true;
    }
    name.starts_with("Test")
        && lineage
            .classes()
            .all(|id| project.class(id).member("__init__").is_none())
        && project
            .class(class)
            .members
            .iter()
            .any(|member| member.name.starts_with("test"))
}

/// The test methods of the mixins in the common files.
fn common_tests(project: &Project, lineages: &mut Lineages) -> Vec<CommonTest> {
    let mut tests: Vec<CommonTest> = Vec::new();
    let mut places: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    for (path, origin) in COMMON {
        let Some(module) = project.module_at(path) else {
            continue;
        };
        let source = project.module(module);
        for name in &source.order {
            let Some(Binding::Class(class)) = source.names.get(name) else {
                continue;
            };
            let id = ClassId {
                module,
                class: *class,
            };
            lineages.link(project, id);
            if lineages.get(id).is_test_case || name.starts_with("Test") {
                continue;
            }
            for member in &project.class(id).members {
                let is_method = matches!(member.kind, super::facts::MemberKind::Function(_));
                if !is_method || !member.name.starts_with("test_") {
                    continue;
                }
                let name: Arc<str> = (*member.name).into();
                match places.get(&name) {
                    Some(&at) => {
                        tests[at].origin = origin;
                        if !tests[at].mixins.contains(&id) {
                            tests[at].mixins.push(id);
                        }
                    }
                    None => {
                        places.insert(name.clone(), tests.len());
                        tests.push(CommonTest {
                            name,
                            origin,
                            mixins: vec![id],
                        });
                    }
                }
            }
        }
    }
    tests
}

/// The common test of that name, or any test that some class has.
fn single_test(
    suite: &Suite<'_>,
    concrete: &[Concrete],
    common: &[CommonTest],
    name: &str,
) -> Result<CommonTest, SkipsError> {
    if let Some(test) = common.iter().find(|test| &*test.name == name) {
        return Ok(CommonTest {
            name: test.name.clone(),
            origin: test.origin,
            mixins: test.mixins.clone(),
        });
    }
    let mut owners: FxHashSet<ClassId> = FxHashSet::default();
    let mut names: FxHashSet<Arc<str>> = FxHashSet::default();
    for class in concrete {
        for entry in suite.table(class.class).values() {
            if &*entry.family == name {
                owners.insert(class.class);
            }
            names.insert(entry.family.clone());
        }
    }
    if owners.is_empty() {
        let mut near: Vec<(usize, Arc<str>)> = names
            .into_iter()
            .chain(common.iter().map(|test| test.name.clone()))
            .map(|candidate| (distance(name, &candidate), candidate))
            .filter(|(distance, _)| *distance <= 4)
            .collect();
        near.sort();
        near.dedup();
        let hint = match near.first() {
            Some((_, near)) => format!("; did you mean `{near}`?"),
            None => String::new(),
        };
        return Err(SkipsError::NoSuchTest {
            name: name.to_owned(),
            hint,
        });
    }
    let mut mixins: Vec<ClassId> = owners.into_iter().collect();
    mixins.sort_unstable();
    Ok(CommonTest {
        name: name.into(),
        origin: "unknown",
        mixins,
    })
}

/// The number of single-character edits between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

fn judge_class<'a>(
    suite: &Suite<'_>,
    reach: &Reach,
    common: &[CommonTest],
    index: &FxHashMap<&str, usize>,
    concrete: &'a Concrete,
) -> ClassVerdicts<'a> {
    let lineage = suite.lineages.get(concrete.class);
    let table = suite.table(concrete.class);
    // A model's test class that overrides a test of a mixin it does not inherit has that test too.
    let is_model_test = common
        .iter()
        .flat_map(|test| &test.mixins)
        .any(|&mixin| lineage.contains(mixin));
    let own: FxHashSet<&str> = if is_model_test {
        table
            .values()
            .filter(|entry| entry.item.is_test())
            .map(|entry| &*entry.family)
            .collect()
    } else {
        FxHashSet::default()
    };
    let mut families: Vec<FamilyVerdicts> = common
        .iter()
        .map(|test| {
            if test.mixins.iter().any(|&mixin| lineage.contains(mixin)) || own.contains(&*test.name)
            {
                FamilyVerdicts::Has(Vec::new())
            } else if lineage.opaque.is_some() {
                FamilyVerdicts::Unknown
            } else {
                FamilyVerdicts::Lacks
            }
        })
        .collect();
    let tests_models = families
        .iter()
        .any(|family| matches!(family, FamilyVerdicts::Has(_)));
    if !tests_models {
        return ClassVerdicts {
            concrete,
            families,
            tests_models,
        };
    }
    let view = ClassView::new(suite, concrete.class);
    let rules = ClassRules::new(&view, reach, concrete.module);
    for entry in table.values() {
        let Some(&at) = index.get(&*entry.family) else {
            continue;
        };
        if let FamilyVerdicts::Has(tests) = &mut families[at] {
            let verdict = judge(&view, reach, &rules, entry);
            tests.push(report::CaseVerdict::new(entry, verdict));
        }
    }
    for family in &mut families {
        if let FamilyVerdicts::Has(tests) = family {
            tests.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    ClassVerdicts {
        concrete,
        families,
        tests_models,
    }
}

/// Every test of every class, with what happens to it.
fn inventory(suite: &Suite<'_>, reach: &Reach, concrete: &[Concrete]) -> Vec<ClassTests> {
    concrete
        .par_iter()
        .map(|class| {
            let view = ClassView::new(suite, class.class);
            let rules = ClassRules::new(&view, reach, class.module);
            let mut tests: Vec<(Arc<str>, Verdict)> = suite
                .table(class.class)
                .values()
                .map(|entry| (entry.item.name.clone(), judge(&view, reach, &rules, entry)))
                .filter(|(_, verdict)| verdict.status != Status::Absent)
                .collect();
            tests.sort_by(|a, b| a.0.cmp(&b.0));
            report::class_tests(suite.project, class, &rules, tests)
        })
        .collect()
}

/// Whether a path lies under the folder of the model tests.
pub(crate) fn under_models(path: &str) -> bool {
    path.strip_prefix(MODELS)
        .is_some_and(|rest| rest.starts_with('/'))
}
