//! What happens to one test in one class.

use std::sync::Arc;

use super::decorator::{Effect, Placed};
use super::facts::Body;
use super::flags::ClassView;
use super::guard::{self, Guard};
use super::project::{ClassId, FunctionId};
use super::reach::Reach;
use super::status::Status;
use super::suite::{Entry, ItemKind, Suite};
use super::value::Why;

/// A status with its grounds.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub status: Status,
    pub reason: Option<Arc<str>>,
    pub condition: Option<Arc<str>>,
    pub module: u32,
    pub offset: u32,
}

/// What applies to every test of one class in one file.
pub(crate) struct ClassRules {
    /// A mark or a module-level skip, which comes before anything else.
    mark: Option<Verdict>,
    /// `unittest.skip` on the class or an ancestor.
    skip: Option<Verdict>,
    /// Skips under conditions.
    conditions: Vec<Verdict>,
    /// `setUp` and `setUpClass` skip.
    setup: Option<Verdict>,
    xfail: Option<Verdict>,
    unknown: Option<Verdict>,
}

impl ClassRules {
    /// The rules for `view`'s class as collected from the file `module`.
    pub fn new(view: &ClassView<'_>, reach: &Reach, module: u32) -> Self {
        let suite = view.suite;
        let project = suite.project;
        let mut rules = Self {
            mark: None,
            skip: None,
            conditions: Vec::new(),
            setup: None,
            xfail: None,
            unknown: None,
        };
        for id in suite.lineages.get(view.class).classes() {
            let class = project.class(id);
            for placed in class_effects(suite, id) {
                rules.add(&placed, id.module);
            }
            if class.member("__test__").is_some() || class.member("__unittest_skip__").is_some() {
                rules.add_attribute(suite, id);
            }
        }
        for placed in module_marks(suite, module) {
            rules.add(&placed, module);
        }
        if let Some(skip) = &project.module(module).skip {
            let scope = super::eval::Scope::module(module);
            let evaluator = super::eval::Evaluator::new(project);
            let reason = skip
                .reason
                .as_ref()
                .map(|reason| evaluator.reason(reason, scope));
            let effect = match &skip.condition {
                None => Some(Effect::Skip { reason, mark: true }),
                Some(test) => match evaluator.truth(test, scope) {
                    super::value::Truth::True => Some(Effect::Skip { reason, mark: true }),
                    super::value::Truth::False => None,
                    super::value::Truth::Unknown(_) => Some(Effect::SkipIf {
                        condition: project.text(module, test),
                        reason,
                        mark: true,
                    }),
                },
            };
            if let Some(effect) = effect {
                rules.add(
                    &Placed {
                        effect,
                        offset: skip.offset,
                    },
                    module,
                );
            }
        }
        for name in [
            "setUpClass",
            "setUp",
            "asyncSetUp",
            "setup_method",
            "setup_class",
        ] {
            let Some((owner, function)) = view.method(name, None) else {
                continue;
            };
            let outcome = guard::judge(view, reach, owner, function, &[]);
            if let Some(skip) = &outcome.certain {
                rules
                    .setup
                    .get_or_insert_with(|| verdict(Status::SkippedByClass, skip));
            }
            for possible in &outcome.possible {
                match possible.why {
                    Some(Why::Environment) => {
                        rules
                            .conditions
                            .push(verdict(Status::Conditional, possible));
                    }
                    Some(Why::Flag) => {
                        rules
                            .unknown
                            .get_or_insert_with(|| verdict(Status::Unknown, possible));
                    }
                    _ => {}
                }
            }
        }
        rules
    }

    fn add(&mut self, placed: &Placed, module: u32) {
        let of = |status, reason: &Option<String>, condition: Option<&String>| Verdict {
            status,
            reason: reason.as_deref().map(Arc::from),
            condition: condition.map(|text| text.as_str().into()),
            module,
            offset: placed.offset,
        };
        match &placed.effect {
            Effect::Skip { reason, mark } => {
                let slot = if *mark {
                    &mut self.mark
                } else {
                    &mut self.skip
                };
                slot.get_or_insert_with(|| of(Status::SkippedByClass, reason, None));
            }
            Effect::SkipIf {
                condition, reason, ..
            } => {
                self.conditions
                    .push(of(Status::Conditional, reason, Some(condition)));
            }
            Effect::ExpectFailure { condition, reason } => {
                self.xfail
                    .get_or_insert_with(|| of(Status::ExpectedFailure, reason, condition.as_ref()));
            }
        }
    }

    /// `__unittest_skip__ = True` in the class body.
    fn add_attribute(&mut self, suite: &Suite<'_>, id: ClassId) {
        let project = suite.project;
        let class = project.class(id);
        let evaluator = super::eval::Evaluator::new(project);
        let scope = super::eval::Scope::module(id.module);
        let value = |name: &str| match &class.member(name)?.kind {
            super::facts::MemberKind::Value(Some(expr)) => Some(evaluator.value(expr, scope)),
            _ => None,
        };
        if value("__unittest_skip__").is_some_and(|v| v.truth() == super::value::Truth::True) {
            let offset = class
                .member("__unittest_skip__")
                .map_or(class.offset, |m| m.offset);
            let reason = value("__unittest_skip_why__").and_then(|v| v.display());
            self.add(
                &Placed {
                    effect: Effect::Skip {
                        reason,
                        mark: false,
                    },
                    offset,
                },
                id.module,
            );
        }
    }

    /// The class-level skip that holds on every machine.
    pub fn certain(&self) -> Option<&Verdict> {
        self.mark.as_ref().or(self.skip.as_ref())
    }

    /// Class-level skips under conditions.
    pub fn conditions(&self) -> &[Verdict] {
        &self.conditions
    }
}

/// The effects of a class's decorators and of its `pytestmark`, outermost first.
pub(crate) fn class_effects(suite: &Suite<'_>, id: ClassId) -> Vec<Placed> {
    use ruff_text_size::Ranged;
    let class = suite.project.class(id);
    let mut effects: Vec<Placed> = Vec::new();
    for decorator in &class.decorators {
        let offset = decorator.range().start().to_u32();
        let found = suite.decorators.effects(id.module, decorator);
        effects.extend(found.into_iter().map(|effect| Placed { effect, offset }));
    }
    if let Some(member) = class.member("pytestmark")
        && let super::facts::MemberKind::Value(Some(expr)) = &member.kind
    {
        effects.extend(marks(suite, id.module, expr));
    }
    effects
}

fn module_marks(suite: &Suite<'_>, module: u32) -> Vec<Placed> {
    match suite.project.module(module).names.get("pytestmark") {
        Some(super::facts::Binding::Value(Some(expr))) => marks(suite, module, expr),
        _ => Vec::new(),
    }
}

/// The marks in `pytestmark = mark` or `pytestmark = [mark, …]`.
fn marks(suite: &Suite<'_>, module: u32, expr: &ruff_python_ast::Expr) -> Vec<Placed> {
    use ruff_python_ast::Expr;
    use ruff_text_size::Ranged;
    let list = match expr {
        Expr::List(list) => list.elts.as_slice(),
        Expr::Tuple(tuple) => tuple.elts.as_slice(),
        single => std::slice::from_ref(single),
    };
    list.iter()
        .flat_map(|mark| {
            let offset = mark.range().start().to_u32();
            suite
                .decorators
                .effects(module, mark)
                .into_iter()
                .map(move |effect| Placed { effect, offset })
        })
        .collect()
}

fn verdict(status: Status, guard: &Guard) -> Verdict {
    Verdict {
        status,
        reason: guard.reason.clone(),
        condition: guard.condition.clone(),
        module: guard.module,
        offset: guard.offset,
    }
}

/// Judges one entry of the table of `view`'s class.
pub(crate) fn judge(
    view: &ClassView<'_>,
    reach: &Reach,
    rules: &ClassRules,
    entry: &Entry,
) -> Verdict {
    let item = &*entry.item;
    let module = item.owner.module;
    let plain = |status| Verdict {
        status,
        reason: None,
        condition: None,
        module,
        offset: item.offset,
    };
    if !item.is_test() {
        return plain(if entry.hides.is_some() {
            Status::Shadowed
        } else {
            Status::Absent
        });
    }
    // An unknown base before the definition's place may define the test anew.
    let lineage = view.suite.lineages.get(view.class);
    if let Some((at, name)) = &lineage.opaque
        && super::suite::place_of(&lineage.order, item.owner).is_some_and(|place| *at < place)
    {
        let mut verdict = plain(Status::Unknown);
        verdict.reason = Some(format!("the base class `{name}` is not known").into());
        return verdict;
    }
    // Function marks come first, then class marks, then unittest's own skips: class, method.
    let own = |effect: &Placed| -> Option<Verdict> {
        match &effect.effect {
            Effect::Skip { reason, .. } => Some(Verdict {
                status: if item.owner == view.class {
                    Status::Skipped
                } else {
                    Status::Inherited
                },
                reason: reason.as_deref().map(Arc::from),
                condition: None,
                module,
                offset: effect.offset,
            }),
            _ => None,
        }
    };
    let is_mark = |placed: &&Placed| matches!(placed.effect, Effect::Skip { mark: true, .. });
    if let Some(found) = item.effects.iter().find(is_mark).and_then(&own) {
        return found;
    }
    if let Some(found) = rules.certain() {
        return found.clone();
    }
    if let Some(found) = item.effects.iter().find_map(&own) {
        return found;
    }
    if let Some(found) = &rules.setup {
        return found.clone();
    }
    let outcome = body(view, reach, entry);
    if let Some(skip) = &outcome.certain {
        let status = match (skip.condition.is_none(), item.owner == view.class) {
            (false, _) => Status::Flag,
            (true, true) => Status::Skipped,
            (true, false) => Status::Inherited,
        };
        return verdict(status, skip);
    }
    if matches!(item.kind, ItemKind::Unknown) {
        return plain(Status::Unknown);
    }
    if let Some(function) = item.function()
        && entry.hides.is_some()
        && view.suite.project.function(function).body == Body::Empty
    {
        return plain(Status::Neutralised);
    }
    let environment = || {
        outcome
            .possible
            .iter()
            .filter(|guard| guard.why == Some(Why::Environment))
    };
    if rules.conditions.is_empty() && environment().next().is_none() {
        // The same for every class: joined once.
        if let Some(found) = item.conditions() {
            return found.clone();
        }
    } else {
        let all = item.conditions().into_iter().cloned();
        let all = all.chain(rules.conditions.iter().cloned());
        let all = all.chain(environment().map(|guard| verdict(Status::Conditional, guard)));
        if let Some(found) = joined(all.collect()) {
            return found;
        }
    }
    if let Some(flag) = outcome
        .possible
        .iter()
        .find(|guard| guard.why == Some(Why::Flag))
    {
        return verdict(Status::Unknown, flag);
    }
    if let Some(unknown) = &rules.unknown {
        return unknown.clone();
    }
    let expected = item.effects.iter().find_map(|placed| match &placed.effect {
        Effect::ExpectFailure { condition, reason } => Some(Verdict {
            status: Status::ExpectedFailure,
            reason: reason.as_deref().map(Arc::from),
            condition: condition.as_deref().map(Arc::from),
            module,
            offset: placed.offset,
        }),
        _ => None,
    });
    if let Some(found) = expected.or_else(|| rules.xfail.clone()) {
        return found;
    }
    match outcome.possible.first() {
        Some(guard) => verdict(Status::Guarded, guard),
        None => plain(Status::Runs),
    }
}

/// One verdict for several conditions, each of which skips: they are joined by `or`, their reasons
/// by a semicolon.
pub(crate) fn joined(verdicts: Vec<Verdict>) -> Option<Verdict> {
    let mut rest = verdicts.into_iter();
    let mut first = rest.next()?;
    let mut conditions: Vec<Arc<str>> = first.condition.iter().cloned().collect();
    let mut reasons: Vec<Arc<str>> = first.reason.iter().cloned().collect();
    for next in rest {
        for (value, seen) in [
            (next.condition, &mut conditions),
            (next.reason, &mut reasons),
        ] {
            if let Some(value) = value
                && !seen.contains(&value)
            {
                seen.push(value);
            }
        }
    }
    if conditions.len() > 1 {
        let parts: Vec<String> = conditions
            .iter()
            .map(|text| match text {
                text if text.starts_with('(') => text.to_string(),
                text if text.contains(" and ") || text.contains(" or ") => format!("({text})"),
                text => text.to_string(),
            })
            .collect();
        first.condition = Some(parts.join(" or ").into());
    }
    if reasons.len() > 1 {
        first.reason = Some(reasons.join("; ").into());
    }
    Some(first)
}

/// The conditional skips among the effects of a test's decorators, as one verdict.
pub(crate) fn conditions(effects: &[Placed], module: u32) -> Option<Verdict> {
    let found = effects.iter().filter_map(|placed| match &placed.effect {
        Effect::SkipIf {
            condition, reason, ..
        } => Some(Verdict {
            status: Status::Conditional,
            reason: reason.as_deref().map(Arc::from),
            condition: Some(condition.as_str().into()),
            module,
            offset: placed.offset,
        }),
        _ => None,
    });
    joined(found.collect())
}

fn body(view: &ClassView<'_>, reach: &Reach, entry: &Entry) -> Arc<guard::Outcome> {
    let judge = |function: FunctionId, case: &[super::value::Value]| {
        guard::judge(view, reach, entry.item.owner, function, case)
    };
    match &entry.item.kind {
        ItemKind::Method(function) => judge(*function, &[]),
        ItemKind::Case(function, case) => judge(*function, case),
        _ => Arc::default(),
    }
}
