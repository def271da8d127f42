//! Skips and flags that do not do what they seem to do.

use memchr::memmem::Finder;
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;
use rustc_hash::{FxHashMap, FxHashSet};

use super::analysis::{CommonTest, Concrete, under_models};
use super::decorator::Effect;
use super::facts::{Body, MemberKind};
use super::project::{ClassId, Project};
use super::suite::{Item, ItemKind, Suite};

/// The kinds of lints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LintKind {
    /// A skipped override of a test that no base class has any more.
    StaleSkip,
    /// A class flag that no code reads.
    UnreadFlag,
    /// A skip that skips nothing: above `parameterized.expand`, or in a class that is no test class.
    SkipWithoutEffect,
    /// A skip that gives no reason.
    MissingReason,
    /// A common test overridden by an empty body: it passes without testing anything.
    EmptyBody,
}

impl LintKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::StaleSkip,
        Self::UnreadFlag,
        Self::SkipWithoutEffect,
        Self::MissingReason,
        Self::EmptyBody,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::StaleSkip => "stale-skip",
            Self::UnreadFlag => "unread-flag",
            Self::SkipWithoutEffect => "skip-without-effect",
            Self::MissingReason => "missing-reason",
            Self::EmptyBody => "empty-body",
        }
    }

    /// One sentence on what it means and what to do.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::StaleSkip => {
                "The skipped test exists in no base class any more: remove the override."
            }
            Self::UnreadFlag => "No test reads this class flag: remove it.",
            Self::SkipWithoutEffect => {
                "The skip skips nothing: put it below `parameterized.expand` and into the test class."
            }
            Self::MissingReason => "The skip gives no reason: say why the test cannot run.",
            Self::EmptyBody => {
                "The override's body is empty, so the test passes without testing: skip it with a reason."
            }
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lint {
    /// The file, relative to the repository's root.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What kind it is.
    pub kind: LintKind,
    /// What was found.
    pub message: String,
}

/// Finds all lints in the model test files, sorted by place.
pub(crate) fn find(suite: &Suite<'_>, concrete: &[Concrete], common: &[CommonTest]) -> Vec<Lint> {
    let project = suite.project;
    let mixins: FxHashSet<ClassId> = common
        .iter()
        .flat_map(|test| test.mixins.iter().copied())
        .collect();
    let mut collected: FxHashSet<ClassId> = FxHashSet::default();
    for class in concrete {
        collected.extend(suite.lineages.get(class.class).classes());
    }
    let mut finder = Finding {
        suite,
        lints: Vec::new(),
    };
    let mut flags: FxHashMap<&str, Vec<(u32, u32, &str)>> = FxHashMap::default();
    for (number, module) in project.modules.iter().enumerate() {
        if !under_models(&module.path) {
            continue;
        }
        for (place, class) in module.classes.iter().enumerate() {
            let id = ClassId {
                module: number as u32,
                class: place as u32,
            };
            finder.reasons(id);
            finder.idle_calls(id);
            if !collected.contains(&id) {
                finder.helper_skips(id);
                continue;
            }
            let lineage = suite.lineages.get(id);
            if !lineage.classes().any(|ancestor| mixins.contains(&ancestor)) {
                continue;
            }
            if lineage.opaque.is_none() {
                finder.overrides(id);
            }
            // A value that hides an inherited test switches it off: it needs no reader.
            let hides = |name: &str| {
                lineage.classes().skip(1).any(|ancestor| {
                    suite
                        .own(ancestor)
                        .iter()
                        .any(|i| i.is_test() && &*i.name == name)
                })
            };
            for member in &class.members {
                let is_flag = matches!(&member.kind, MemberKind::Value(Some(value))
                    if matches!(&**value, Expr::BooleanLiteral(_)));
                if is_flag && !hides(&member.name) {
                    flags.entry(&member.name).or_default().push((
                        id.module,
                        member.offset,
                        &class.name,
                    ));
                }
            }
        }
    }
    let mut names: Vec<&str> = flags.keys().copied().collect();
    names.sort_unstable();
    for name in names {
        if is_read(project, name) {
            continue;
        }
        for &(module, offset, class) in &flags[name] {
            finder.add(
                LintKind::UnreadFlag,
                module,
                offset,
                format!("nothing reads `{name}` of `{class}`"),
            );
        }
    }
    let mut lints = finder.lints;
    lints.sort();
    lints.dedup();
    lints
}

struct Finding<'a, 'p> {
    suite: &'a Suite<'p>,
    lints: Vec<Lint>,
}

impl Finding<'_, '_> {
    fn add(&mut self, kind: LintKind, module: u32, offset: u32, message: String) {
        let source = self.suite.project.module(module);
        self.lints.push(Lint {
            file: source.path.to_string(),
            line: source.line(offset) as usize,
            kind,
            message,
        });
    }

    /// Skips without a reason, on the class or its methods.
    fn reasons(&mut self, id: ClassId) {
        let project = self.suite.project;
        let module = project.module(id.module);
        let class = project.class(id);
        let mut found: Vec<(u32, String)> = Vec::new();
        let on_class = class
            .decorators
            .iter()
            .map(|decorator| (decorator, &class.name));
        let on_methods = class.members.iter().filter_map(|member| match member.kind {
            MemberKind::Function(function) => Some(&module.functions[function as usize]),
            _ => None,
        });
        let on_methods =
            on_methods.flat_map(|function| function.decorators.iter().map(|d| (d, &function.name)));
        for (decorator, name) in on_class.chain(on_methods) {
            for effect in self.suite.decorators.effects(id.module, decorator) {
                if let Effect::Skip { reason, .. } = effect
                    && reason.is_none_or(|reason| reason.trim().is_empty())
                {
                    found.push((
                        decorator.range().start().to_u32(),
                        format!("the skip of `{name}` gives no reason"),
                    ));
                }
            }
        }
        for (offset, message) in found {
            self.add(LintKind::MissingReason, id.module, offset, message);
        }
    }

    /// `unittest.skip(…)` called as a statement inside a body.
    fn idle_calls(&mut self, id: ClassId) {
        let project = self.suite.project;
        let module = project.module(id.module);
        for member in &project.class(id).members {
            let MemberKind::Function(function) = member.kind else {
                continue;
            };
            for &offset in &module.functions[function as usize].idle_skips {
                let message = format!(
                    "`unittest.skip` called in the body of `{}` does nothing",
                    member.name
                );
                self.add(LintKind::SkipWithoutEffect, id.module, offset, message);
            }
        }
    }

    /// Skipped tests in a class that no test runner collects.
    fn helper_skips(&mut self, id: ClassId) {
        let project = self.suite.project;
        let module = project.module(id.module);
        let class = project.class(id);
        for member in class
            .members
            .iter()
            .filter(|member| member.name.starts_with("test"))
        {
            let MemberKind::Function(function) = member.kind else {
                continue;
            };
            for decorator in &module.functions[function as usize].decorators {
                let effects = self.suite.decorators.effects(id.module, decorator);
                if effects
                    .iter()
                    .any(|effect| matches!(effect, Effect::Skip { .. }))
                {
                    let message = format!(
                        "`{}` is skipped in `{}`, which is no test class",
                        member.name, class.name
                    );
                    self.add(
                        LintKind::SkipWithoutEffect,
                        id.module,
                        decorator.range().start().to_u32(),
                        message,
                    );
                }
            }
        }
    }

    /// Overrides in a test class: stale, without effect, or empty.
    fn overrides(&mut self, id: ClassId) {
        let suite = self.suite;
        let project = suite.project;
        let class_name = &project.class(id).name;
        let ancestors: Vec<ClassId> = suite.lineages.get(id).classes().skip(1).collect();
        let mut inherited: FxHashMap<&str, &Item> = FxHashMap::default();
        let mut expanded: FxHashSet<&str> = FxHashSet::default();
        for &ancestor in &ancestors {
            for item in suite.own(ancestor) {
                if item.is_test() {
                    inherited.entry(&*item.name).or_insert(item);
                }
                if matches!(item.kind, ItemKind::Case(..)) {
                    expanded.insert(&*item.family);
                }
            }
        }
        let mut stale: FxHashSet<&str> = FxHashSet::default();
        for item in suite.own(id) {
            let skip = item
                .effects
                .iter()
                .find(|placed| matches!(placed.effect, Effect::Skip { .. }));
            let offset = skip.map_or(item.offset, |placed| placed.offset);
            let empty = item
                .function()
                .is_some_and(|function| project.function(function).body == Body::Empty);
            let overrides = inherited.contains_key(&*item.name) || expanded.contains(&*item.family);
            match (&item.kind, skip) {
                (ItemKind::Husk, Some(_)) => {
                    let message = format!(
                        "the skip of `{}` stands above `parameterized.expand`: its cases still run",
                        item.name
                    );
                    self.add(LintKind::SkipWithoutEffect, id.module, offset, message);
                }
                (ItemKind::Method(_), Some(_))
                    if expanded.contains(&*item.name) && !inherited.contains_key(&*item.name) =>
                {
                    let message = format!(
                        "`{}` is skipped as a plain method: the inherited cases of `parameterized.expand` still run",
                        item.name
                    );
                    self.add(LintKind::SkipWithoutEffect, id.module, offset, message);
                }
                (ItemKind::Method(_) | ItemKind::Case(..), Some(_))
                    if !overrides && empty && stale.insert(&item.family) =>
                {
                    let message = format!(
                        "`{}` of `{class_name}` is skipped, but no base class has such a test",
                        item.family
                    );
                    self.add(LintKind::StaleSkip, id.module, offset, message);
                }
                (ItemKind::Method(_) | ItemKind::Case(..), None) if empty && overrides => {
                    let message = format!("`{}` of `{class_name}` has an empty body", item.family);
                    self.add(LintKind::EmptyBody, id.module, item.offset, message);
                }
                _ => {}
            }
        }
    }
}

/// Whether any file of the scan reads an attribute of that name or names it in a string.
fn is_read(project: &Project, name: &str) -> bool {
    let finder = Finder::new(name);
    // The common files, loaded first, read most flags.
    project.modules.iter().any(|module| {
        let text = module.text.as_bytes();
        finder.find_iter(text).any(|at| {
            let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
            let rest = &text[at + name.len()..];
            let after = rest.first().copied().unwrap_or(b' ');
            match before {
                b'.' => {
                    let word = after.is_ascii_alphanumeric() || after == b'_';
                    let mut rest = rest.iter().skip_while(|b| **b == b' ');
                    let assigned = rest.next() == Some(&b'=') && rest.next() != Some(&b'=');
                    !word && !assigned
                }
                b'"' | b'\'' => after == before,
                _ => false,
            }
        })
    })
}
