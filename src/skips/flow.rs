//! The statements of a function body that decide whether it skips, and nothing else of it.
//!
//! Bodies are reduced to a short list of steps (skip, branch, loop, call of a helper, return); most
//! functions reduce to nothing. Conditions are kept as expressions and judged later, per class.

use ruff_python_ast::{Expr, ExprCall, Parameters, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashSet;

use super::assigned::{collect_locals, inner_blocks};

/// Blocks nested deeper than this are treated as code that does not skip.
pub(super) const MAX_DEPTH: usize = 40;

/// One statement that matters to skipping.
#[derive(Debug)]
pub(crate) enum Step {
    /// `self.skipTest(…)`, `raise SkipTest(…)`, `pytest.skip(…)`.
    Skip { offset: u32, reason: Option<Expr> },
    If {
        test: Expr,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
    /// A `for` loop with what it runs over, or a `while` loop with its condition.
    Loop {
        over: Expr,
        is_while: bool,
        body: Vec<Step>,
    },
    /// A call, as a statement of its own, that hands `self` on.
    Call {
        target: Target,
        arguments: Vec<Expr>,
    },
    /// Steps that may not happen or whose skip may be caught: `try`, `match`, `with self.subTest()`.
    Perhaps(Vec<Step>),
    /// `return`, or `raise` of something else than a skip.
    Exit,
    /// `break` or `continue`.
    Leave,
}

/// Who is called with `self`.
#[derive(Debug)]
pub(crate) enum Target {
    /// `self.name(…)`.
    Method(Box<str>),
    /// `super().name(…)`.
    Super(Box<str>),
    /// `name(self, …)`.
    Function(Box<str>),
    /// `Class.name(self, …)`.
    Unbound(Expr, Box<str>),
}

/// What [`read`] finds in a body.
#[derive(Default)]
pub(crate) struct BodyFacts {
    pub steps: Vec<Step>,
    pub locals: FxHashSet<Box<str>>,
    pub idle_skips: Vec<u32>,
}

/// Reduces a function's body.
pub(crate) fn read(function: &StmtFunctionDef) -> BodyFacts {
    let mut facts = BodyFacts::default();
    if !may_skip(&function.body, 0) {
        return facts;
    }
    facts.steps = block(&function.body, &mut facts.idle_skips, 0);
    if !facts.steps.is_empty() {
        collect_locals(&function.body, &mut facts.locals, 0);
    }
    facts
}

/// The names of all parameters, in order.
pub(crate) fn parameter_names(parameters: &Parameters) -> Vec<Box<str>> {
    parameters
        .posonlyargs
        .iter()
        .chain(&parameters.args)
        .map(|p| p.parameter.name.as_str().into())
        .chain(parameters.vararg.iter().map(|p| p.name.as_str().into()))
        .chain(
            parameters
                .kwonlyargs
                .iter()
                .map(|p| p.parameter.name.as_str().into()),
        )
        .chain(parameters.kwarg.iter().map(|p| p.name.as_str().into()))
        .collect()
}

/// Whether a body does nothing: `pass`, `...`, strings, bare `return`.
pub(crate) fn is_empty(body: &[Stmt]) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::Pass(_) => true,
        Stmt::Expr(stmt) => matches!(
            &*stmt.value,
            Expr::StringLiteral(_) | Expr::EllipsisLiteral(_)
        ),
        Stmt::Return(stmt) => stmt
            .value
            .as_deref()
            .is_none_or(|value| matches!(value, Expr::NoneLiteral(_))),
        _ => false,
    })
}

/// Whether the source of an `__init_subclass__` re-assigns attributes found by `dir(cls)`.
pub(crate) fn reassigns_tests(source: &str) -> bool {
    source.contains("setattr(cls") && source.contains("dir(cls)")
}

/// The reason given to a skip: the first argument, or `reason=` / `msg=`.
pub(crate) fn skip_reason(call: &ExprCall) -> Option<&Expr> {
    call.arguments.args.first().or_else(|| {
        call.arguments
            .keywords
            .iter()
            .find(|k| {
                k.arg
                    .as_ref()
                    .is_some_and(|a| matches!(a.as_str(), "reason" | "msg"))
            })
            .map(|k| &k.value)
    })
}

/// `pytest.skip(…)`.
pub(crate) fn is_pytest_skip(call: &ExprCall) -> bool {
    matches!(&*call.func, Expr::Attribute(attribute)
        if attribute.attr.as_str() == "skip"
            && matches!(&*attribute.value, Expr::Name(name) if name.id.as_str() == "pytest"))
}

/// The exception `SkipTest` or `unittest.SkipTest` (also with a module before it).
pub(crate) fn is_skip_test(expr: &Expr) -> bool {
    match expr {
        Expr::Name(name) => name.id.as_str() == "SkipTest",
        Expr::Attribute(attribute) => attribute.attr.as_str() == "SkipTest",
        _ => false,
    }
}

/// Whether a block holds a statement that skips or hands `self` on: most functions do not, and are
/// not looked at any further.
fn may_skip(body: &[Stmt], depth: usize) -> bool {
    let call = |expr: &Expr| match expr {
        Expr::Call(call) => call_step(call, &mut Vec::new(), false).is_some() || is_idle(call),
        _ => false,
    };
    depth <= MAX_DEPTH
        && body.iter().any(|stmt| match stmt {
            Stmt::Expr(stmt) => call(&stmt.value),
            Stmt::Return(stmt) => stmt.value.as_deref().is_some_and(call),
            Stmt::Raise(stmt) => stmt.exc.as_deref().is_some_and(|exc| match exc {
                Expr::Call(call) => is_skip_test(&call.func),
                bare => is_skip_test(bare),
            }),
            compound => inner_blocks(compound)
                .into_iter()
                .any(|inner| may_skip(inner, depth + 1)),
        })
}

/// `unittest.skip(…)` and its like as a statement.
fn is_idle(call: &ExprCall) -> bool {
    matches!(&*call.func, Expr::Attribute(attribute)
        if matches!(attribute.attr.as_str(), "skip" | "skipIf" | "skipUnless")
            && matches!(&*attribute.value, Expr::Name(name) if name.id.as_str() == "unittest"))
}

fn block(body: &[Stmt], idle: &mut Vec<u32>, depth: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    if depth > MAX_DEPTH {
        return steps;
    }
    for stmt in body {
        match stmt {
            Stmt::Expr(stmt) => {
                if let Expr::Call(call) = &*stmt.value {
                    steps.extend(call_step(call, idle, true));
                }
            }
            Stmt::Return(stmt) => {
                if let Some(Expr::Call(call)) = stmt.value.as_deref() {
                    steps.extend(call_step(call, idle, true));
                }
                steps.push(Step::Exit);
            }
            Stmt::Raise(stmt) => match stmt.exc.as_deref() {
                Some(Expr::Call(call)) if is_skip_test(&call.func) => steps.push(Step::Skip {
                    offset: stmt.range.start().to_u32(),
                    reason: skip_reason(call).cloned(),
                }),
                Some(bare) if is_skip_test(bare) => {
                    steps.push(Step::Skip {
                        offset: stmt.range.start().to_u32(),
                        reason: None,
                    });
                }
                _ => steps.push(Step::Exit),
            },
            Stmt::Break(_) | Stmt::Continue(_) => steps.push(Step::Leave),
            Stmt::If(branch) => {
                let mut otherwise = Vec::new();
                for clause in branch.elif_else_clauses.iter().rev() {
                    let inner = block(&clause.body, idle, depth + 1);
                    otherwise = match &clause.test {
                        None => inner,
                        Some(_) if inner.is_empty() && otherwise.is_empty() => Vec::new(),
                        Some(test) => vec![Step::If {
                            test: test.clone(),
                            then: inner,
                            otherwise,
                        }],
                    };
                }
                let then = block(&branch.body, idle, depth + 1);
                if !(then.is_empty() && otherwise.is_empty()) {
                    steps.push(Step::If {
                        test: (*branch.test).clone(),
                        then,
                        otherwise,
                    });
                }
            }
            Stmt::For(stmt) => {
                let body = block(&stmt.body, idle, depth + 1);
                if body.iter().any(matters) {
                    steps.push(Step::Loop {
                        over: (*stmt.iter).clone(),
                        is_while: false,
                        body,
                    });
                } else if body.iter().any(exits_function) {
                    steps.push(Step::Perhaps(vec![Step::Exit]));
                }
                // The `else` of a loop runs unless the loop is left by `break`.
                let otherwise = block(&stmt.orelse, idle, depth + 1);
                if !otherwise.is_empty() {
                    steps.push(Step::Perhaps(otherwise));
                }
            }
            Stmt::While(stmt) => {
                let body = block(&stmt.body, idle, depth + 1);
                if body.iter().any(matters) {
                    steps.push(Step::Loop {
                        over: (*stmt.test).clone(),
                        is_while: true,
                        body,
                    });
                }
            }
            Stmt::With(stmt) => {
                let inner = block(&stmt.body, idle, depth + 1);
                if stmt.items.iter().any(|item| catches(&item.context_expr)) {
                    if !inner.is_empty() {
                        steps.push(Step::Perhaps(inner));
                    }
                } else {
                    steps.extend(inner);
                }
            }
            Stmt::Try(stmt) => {
                let mut inner = block(&stmt.body, idle, depth + 1);
                inner.extend(block(&stmt.orelse, idle, depth + 1));
                if stmt.handlers.is_empty() {
                    steps.extend(inner);
                } else if !inner.is_empty() {
                    steps.push(Step::Perhaps(inner));
                }
                for handler in &stmt.handlers {
                    let ruff_python_ast::ExceptHandler::ExceptHandler(handler) = handler;
                    let inner = block(&handler.body, idle, depth + 1);
                    if inner.iter().any(matters) {
                        steps.push(Step::Perhaps(inner));
                    }
                }
                steps.extend(block(&stmt.finalbody, idle, depth + 1));
            }
            Stmt::Match(stmt) => {
                for case in &stmt.cases {
                    let inner = block(&case.body, idle, depth + 1);
                    if !inner.is_empty() {
                        steps.push(Step::Perhaps(inner));
                    }
                }
            }
            _ => {}
        }
    }
    // Whatever follows the last step that can skip decides nothing; inside a nested block the
    // exits matter to what comes after it.
    if depth == 0 {
        while steps.last().is_some_and(|step| !matters(step)) {
            steps.pop();
        }
    }
    steps
}

/// Whether a step can lead to a skip.
fn matters(step: &Step) -> bool {
    match step {
        Step::Skip { .. } | Step::Call { .. } => true,
        Step::Exit | Step::Leave => false,
        Step::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise).any(matters),
        Step::Loop { body, .. } | Step::Perhaps(body) => body.iter().any(matters),
    }
}

fn exits_function(step: &Step) -> bool {
    match step {
        Step::Exit => true,
        Step::If {
            then, otherwise, ..
        } => then.iter().chain(otherwise).any(exits_function),
        Step::Loop { body, .. } | Step::Perhaps(body) => body.iter().any(exits_function),
        Step::Skip { .. } | Step::Call { .. } | Step::Leave => false,
    }
}

/// Context managers that swallow a skip.
fn catches(context: &Expr) -> bool {
    let Expr::Call(call) = context else {
        return false;
    };
    let name = match &*call.func {
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::Name(name) => name.id.as_str(),
        _ => return false,
    };
    matches!(
        name,
        "subTest" | "suppress" | "raises" | "assertRaises" | "assertRaisesRegex"
    )
}

/// The step a call amounts to; without `whole`, its arguments are left out.
fn call_step(call: &ExprCall, idle: &mut Vec<u32>, whole: bool) -> Option<Step> {
    let offset = call.range().start().to_u32();
    let passes_self = || matches!(call.arguments.args.first(), Some(Expr::Name(name)) if name.id.as_str() == "self");
    let arguments = |skip: usize| -> Vec<Expr> {
        if whole {
            call.arguments.args.iter().skip(skip).cloned().collect()
        } else {
            Vec::new()
        }
    };
    let reason = || skip_reason(call).filter(|_| whole).cloned();
    if is_idle(call) {
        idle.push(offset);
        return None;
    }
    if is_pytest_skip(call) {
        return Some(Step::Skip {
            offset,
            reason: reason(),
        });
    }
    match &*call.func {
        Expr::Attribute(attribute) => {
            let name = attribute.attr.as_str();
            match &*attribute.value {
                Expr::Name(owner) => match (owner.id.as_str(), name) {
                    (_, "skipTest") => Some(Step::Skip {
                        offset,
                        reason: reason(),
                    }),
                    ("self" | "cls", _) if !name.starts_with("assert") => Some(Step::Call {
                        target: Target::Method(name.into()),
                        arguments: arguments(0),
                    }),
                    _ if passes_self() => Some(Step::Call {
                        target: Target::Unbound((*attribute.value).clone(), name.into()),
                        arguments: arguments(1),
                    }),
                    _ => None,
                },
                Expr::Call(inner) if matches!(&*inner.func, Expr::Name(name) if name.id.as_str() == "super") => {
                    Some(Step::Call {
                        target: Target::Super(name.into()),
                        arguments: arguments(0),
                    })
                }
                _ => None,
            }
        }
        Expr::Name(name) if passes_self() => Some(Step::Call {
            target: Target::Function(name.id.as_str().into()),
            arguments: arguments(1),
        }),
        _ => None,
    }
}
