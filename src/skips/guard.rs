//! Walks the reduced body of a test for one class and finds out whether it skips itself.

use std::sync::Arc;

use ruff_python_ast::Expr;
use rustc_hash::FxHashMap;

use super::decorator::Effect;
use super::eval::{Evaluator, Scope};
use super::flags::ClassView;
use super::flow::{Step, Target};
use super::project::{ClassId, Def, FunctionId};
use super::reach::{MAX_VARIANTS, Reach};
use super::value::{Truth, Value, Why};

/// Helpers that call helpers are followed this far.
const MAX_CALLS: usize = 8;
/// The most steps one test may take, calls included.
const MAX_STEPS: usize = 4_000;

/// A skip in a body: where it is, why, and under which condition it happens.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub module: u32,
    pub offset: u32,
    pub reason: Option<Arc<str>>,
    /// Nothing for a skip that nothing guards.
    pub condition: Option<Arc<str>>,
    /// Why it is not known whether it happens; nothing when it certainly does.
    pub why: Option<Why>,
}

/// What a body does for one class.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The skip that certainly happens.
    pub certain: Option<Guard>,
    /// Skips that may happen before that.
    pub possible: Vec<Guard>,
}

/// How a list of steps ends.
enum Flow {
    /// The next step runs.
    On,
    /// The test skips.
    Skipped(Guard),
    /// The function or loop is left without a skip.
    Left,
}

/// The function a walk is in.
#[derive(Clone, Copy)]
struct Frame<'f> {
    function: FunctionId,
    owner: ClassId,
    bound: &'f FxHashMap<Box<str>, Value>,
    depth: usize,
}

/// A condition around a step, written out only when a skip is reported.
#[derive(Clone, Copy)]
enum Condition<'w> {
    Holds(u32, &'w Expr),
    Fails(u32, &'w Expr),
    Over(u32, &'w Expr),
}

struct Walk<'w, 's> {
    view: &'w ClassView<'s>,
    reach: &'w Reach,
    evaluator: Evaluator<'s>,
    possible: Vec<Guard>,
    /// The conditions around the step being read.
    path: Vec<Condition<'w>>,
    /// A skip of unknown outcome that the test's own computation decides is noted already.
    noted_runtime: bool,
    /// Inside a loop or a block that may not run to its end.
    uncertain: usize,
    steps: usize,
}

/// Judges the body of `function`, a method of `owner`, for the class of `view`.
pub(crate) fn judge(
    view: &ClassView<'_>,
    reach: &Reach,
    owner: ClassId,
    function: FunctionId,
    case: &[Value],
) -> Arc<Outcome> {
    if !reach.can_skip(function) {
        return Arc::default();
    }
    let key = (owner, function, case.as_ptr() as usize);
    if let Some(known) = reach.shard(function).get(&key)
        && let Some((_, outcome)) = known.iter().find(|(lookups, _)| view.answers(lookups))
    {
        return outcome.clone();
    }
    view.record();
    let outcome = Arc::new(walk(view, reach, owner, function, case));
    let lookups = view.recorded();
    let mut shard = reach.shard(function);
    let known = shard.entry(key).or_default();
    if known.len() < MAX_VARIANTS {
        known.push((lookups, outcome.clone()));
    }
    outcome
}

fn walk(
    view: &ClassView<'_>,
    reach: &Reach,
    owner: ClassId,
    function: FunctionId,
    case: &[Value],
) -> Outcome {
    let definition = view.suite.project.function(function);
    let bound: FxHashMap<Box<str>, Value> = definition
        .params
        .iter()
        .skip(1)
        .cloned()
        .zip(case.iter().cloned())
        .collect();
    let mut walk = Walk {
        view,
        reach,
        evaluator: Evaluator::new(view.suite.project),
        possible: Vec::new(),
        path: Vec::new(),
        noted_runtime: false,
        uncertain: 0,
        steps: 0,
    };
    let frame = Frame {
        function,
        owner,
        bound: &bound,
        depth: 0,
    };
    let mut may_exit = false;
    let flow = walk.run(&definition.steps, frame, &mut may_exit);
    let certain = match flow {
        Flow::Skipped(guard) => Some(guard),
        Flow::On | Flow::Left => None,
    };
    Outcome {
        certain,
        possible: walk.possible,
    }
}

impl<'w, 's: 'w> Walk<'w, 's> {
    fn run(&mut self, steps: &'w [Step], frame: Frame<'_>, may_exit: &mut bool) -> Flow {
        for step in steps {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Flow::Left;
            }
            match step {
                Step::Exit | Step::Leave => return Flow::Left,
                Step::Skip { offset, reason } => {
                    let guard = self.guard(frame, *offset, reason.as_ref());
                    if *may_exit {
                        self.note(guard, Why::Runtime);
                        return Flow::Left;
                    }
                    return Flow::Skipped(guard);
                }
                Step::If {
                    test,
                    then,
                    otherwise,
                } => match self.branch(test, then, otherwise, frame, may_exit) {
                    Flow::On => {}
                    ended => return ended,
                },
                Step::Loop {
                    over,
                    is_while,
                    body,
                } => match self.repeat(over, *is_while, body, frame, may_exit) {
                    Flow::On => {}
                    ended => return ended,
                },
                Step::Perhaps(body) => {
                    self.uncertain += 1;
                    let mut inner = *may_exit;
                    match self.run(body, frame, &mut inner) {
                        Flow::Skipped(guard) => self.note(guard, Why::Runtime),
                        Flow::Left => *may_exit = true,
                        Flow::On => *may_exit |= inner,
                    }
                    self.uncertain -= 1;
                }
                Step::Call { target, arguments } => {
                    if let Some(guard) = self.call(target, arguments, frame) {
                        if *may_exit {
                            self.note(guard, Why::Runtime);
                            return Flow::Left;
                        }
                        return Flow::Skipped(guard);
                    }
                }
            }
        }
        Flow::On
    }

    fn branch(
        &mut self,
        test: &'w Expr,
        then: &'w [Step],
        otherwise: &'w [Step],
        frame: Frame<'_>,
        may_exit: &mut bool,
    ) -> Flow {
        let module = frame.function.module;
        match self.evaluator.truth(test, self.scope(frame)) {
            Truth::True => {
                self.path.push(Condition::Holds(module, test));
                let flow = self.run(then, frame, may_exit);
                self.path.pop();
                flow
            }
            Truth::False => {
                if otherwise.is_empty() {
                    return Flow::On;
                }
                self.path.push(Condition::Fails(module, test));
                let flow = self.run(otherwise, frame, may_exit);
                self.path.pop();
                flow
            }
            Truth::Unknown(why) => {
                let (mut exit_then, mut exit_else) = (*may_exit, *may_exit);
                self.path.push(Condition::Holds(module, test));
                let first = self.run(then, frame, &mut exit_then);
                self.path.pop();
                let second = if otherwise.is_empty() {
                    Flow::On
                } else {
                    self.path.push(Condition::Fails(module, test));
                    let flow = self.run(otherwise, frame, &mut exit_else);
                    self.path.pop();
                    flow
                };
                match (first, second) {
                    (Flow::Skipped(guard), Flow::Skipped(_)) => Flow::Skipped(guard),
                    (Flow::Skipped(guard), Flow::On) | (Flow::On, Flow::Skipped(guard)) => {
                        self.note(guard, why);
                        *may_exit |= exit_then || exit_else;
                        Flow::On
                    }
                    (Flow::Skipped(guard), Flow::Left) | (Flow::Left, Flow::Skipped(guard)) => {
                        self.note(guard, why);
                        Flow::Left
                    }
                    (Flow::Left, Flow::Left) => Flow::Left,
                    (Flow::Left, Flow::On) | (Flow::On, Flow::Left) => {
                        *may_exit = true;
                        Flow::On
                    }
                    (Flow::On, Flow::On) => {
                        *may_exit |= exit_then || exit_else;
                        Flow::On
                    }
                }
            }
        }
    }

    fn repeat(
        &mut self,
        over: &'w Expr,
        is_while: bool,
        body: &'w [Step],
        frame: Frame<'_>,
        may_exit: &mut bool,
    ) -> Flow {
        let module = frame.function.module;
        let (runs, condition) = if is_while {
            (
                self.evaluator.truth(over, self.scope(frame)),
                Condition::Holds(module, over),
            )
        } else {
            let runs = match self.evaluator.value(over, self.scope(frame)) {
                Value::Object => Truth::Unknown(Why::Runtime),
                value => value.truth(),
            };
            (runs, Condition::Over(module, over))
        };
        match runs {
            Truth::False => Flow::On,
            Truth::True => {
                let flow = self.run(body, frame, may_exit);
                match flow {
                    Flow::Left => {
                        *may_exit = true;
                        Flow::On
                    }
                    other => other,
                }
            }
            Truth::Unknown(_) => {
                self.uncertain += 1;
                self.path.push(condition);
                let mut inner = *may_exit;
                match self.run(body, frame, &mut inner) {
                    Flow::Skipped(guard) => self.note(guard, Why::Runtime),
                    Flow::Left => *may_exit = true,
                    Flow::On => *may_exit |= inner,
                }
                self.path.pop();
                self.uncertain -= 1;
                Flow::On
            }
        }
    }

    /// Follows a call; the skip it certainly leads to.
    fn call(
        &mut self,
        target: &'w Target,
        arguments: &'w [Expr],
        frame: Frame<'_>,
    ) -> Option<Guard> {
        if frame.depth >= MAX_CALLS {
            return None;
        }
        let project = self.view.suite.project;
        let (owner, function) = match target {
            Target::Method(name) => self.view.method(name, None)?,
            Target::Super(name) => self.view.method(name, Some(frame.owner))?,
            Target::Function(name) => match project.resolve_name(frame.function.module, name) {
                Def::Function(function) => (frame.owner, function),
                _ => return None,
            },
            Target::Unbound(class, name) => {
                let Def::Class(class) = project.resolve(frame.function.module, class) else {
                    return None;
                };
                if !self.view.suite.lineages.has(class) {
                    return None;
                }
                let found = self
                    .view
                    .suite
                    .lineages
                    .get(class)
                    .classes()
                    .find_map(|id| match project.class(id).member(name)?.kind {
                        super::facts::MemberKind::Function(function) => Some((
                            id,
                            FunctionId {
                                module: id.module,
                                function,
                            },
                        )),
                        _ => None,
                    });
                found?
            }
        };
        let definition = project.function(function);
        // A skipped test raises when it is called, whoever calls it.
        if matches!(target, Target::Super(_) | Target::Unbound(..))
            && !definition.decorators.is_empty()
        {
            for decorator in &definition.decorators {
                for effect in self
                    .view
                    .suite
                    .decorators
                    .effects(function.module, decorator)
                {
                    if let Effect::Skip {
                        reason,
                        mark: false,
                    } = effect
                    {
                        return Some(Guard {
                            module: function.module,
                            offset: definition.offset,
                            reason: reason.map(Arc::from),
                            condition: self.condition(),
                            why: None,
                        });
                    }
                }
            }
        }
        if !self.reach.can_skip(function) {
            return None;
        }
        let scope = self.scope(frame);
        let bound: FxHashMap<Box<str>, Value> = definition
            .params
            .iter()
            .skip(1)
            .cloned()
            .zip(arguments.iter().map(|argument| match argument {
                Expr::Starred(_) => Value::Unknown(Why::Runtime),
                _ => self.evaluator.value(argument, scope),
            }))
            .collect();
        let starred = arguments
            .iter()
            .any(|argument| matches!(argument, Expr::Starred(_)));
        let bound = if starred { FxHashMap::default() } else { bound };
        let inner = Frame {
            function,
            owner,
            bound: &bound,
            depth: frame.depth + 1,
        };
        let mut may_exit = false;
        match self.run(&definition.steps, inner, &mut may_exit) {
            Flow::Skipped(guard) => Some(guard),
            Flow::On | Flow::Left => None,
        }
    }

    fn scope<'f>(&'f self, frame: Frame<'f>) -> Scope<'f> {
        let definition = self.view.suite.project.function(frame.function);
        Scope {
            module: frame.function.module,
            locals: Some(&definition.locals),
            params: &definition.params,
            bound: Some(frame.bound),
            flags: Some(self.view),
        }
    }

    fn guard(&self, frame: Frame<'_>, offset: u32, reason: Option<&Expr>) -> Guard {
        // One skip of this kind is enough to report: the rest is not written out.
        let repeated = self.uncertain > 0 && self.noted_runtime;
        Guard {
            module: frame.function.module,
            offset,
            reason: reason
                .filter(|_| !repeated)
                .map(|reason| self.evaluator.reason(reason, self.scope(frame)).into()),
            condition: if repeated { None } else { self.condition() },
            why: None,
        }
    }

    /// The conditions around the current step as one expression.
    fn condition(&self) -> Option<Arc<str>> {
        if self.path.is_empty() {
            return None;
        }
        let project = self.view.suite.project;
        let parts: Vec<String> = self
            .path
            .iter()
            .map(|condition| match *condition {
                Condition::Holds(module, test) => project.text(module, test),
                Condition::Fails(module, test) => {
                    let text = project.text(module, test);
                    match text.strip_prefix("not ") {
                        Some(rest) if !rest.contains(" and ") && !rest.contains(" or ") => {
                            rest.to_owned()
                        }
                        _ => format!("not ({text})"),
                    }
                }
                Condition::Over(module, over) => format!("in {}", project.text(module, over)),
            })
            .collect();
        Some(parts.join(" and ").into())
    }

    fn note(&mut self, mut guard: Guard, why: Why) {
        let why = if self.uncertain > 0 {
            Why::Runtime
        } else {
            why
        };
        if why == Why::Runtime {
            if self.noted_runtime {
                return;
            }
            self.noted_runtime = true;
        }
        guard.why = Some(why);
        self.possible.push(guard);
    }
}
