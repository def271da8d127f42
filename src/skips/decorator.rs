//! What decorators do to a test: skip it, skip it under a condition, expect it to fail, or expand it.
//!
//! Decorators of `unittest` and `pytest` are known by name. Decorators of the checkout itself
//! (`@slow`, `@require_torch`) are read: every skip their definition can apply becomes an effect
//! with the condition it is applied under. Anything else is taken to leave the test alone.

use std::sync::{Arc, Mutex, PoisonError};

use ruff_python_ast::{Expr, ExprCall, UnaryOp};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;

use super::definition::{Reader, substituted};
use super::eval::{Evaluator, Scope};
use super::project::{Def, FunctionId, Project};
use super::value::Truth;

/// One thing a decorator does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Skip {
        reason: Option<String>,
        mark: bool,
    },
    SkipIf {
        condition: String,
        reason: Option<String>,
        mark: bool,
    },
    ExpectFailure {
        condition: Option<String>,
        reason: Option<String>,
    },
}

/// An effect and where its decorator stands in the file that uses it.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub effect: Effect,
    pub offset: u32,
}

/// Reads decorators, remembering the ones defined in the checkout.
pub(crate) struct Decorators<'p> {
    pub(super) project: &'p Project,
    known: Mutex<FxHashMap<FunctionId, Arc<Vec<Effect>>>>,
}

impl<'p> Decorators<'p> {
    pub fn new(project: &'p Project) -> Self {
        Self {
            project,
            known: Mutex::default(),
        }
    }

    /// The effects of one decorator expression in `module`, outermost first.
    pub fn effects(&self, module: u32, decorator: &Expr) -> Vec<Effect> {
        let (callee, call) = match decorator {
            Expr::Call(call) => (&*call.func, Some(call)),
            other => (other, None),
        };
        let scope = Scope::module(module);
        match self.project.resolve(module, callee) {
            Def::Function(function) => self.own(module, function, call),
            Def::External(name) => self.external(&name, module, decorator, call, scope),
            _ => self.external(
                &self.project.text(module, callee),
                module,
                decorator,
                call,
                scope,
            ),
        }
    }

    /// The call of `parameterized.expand(…)` that a decorator is, directly or by the name of a
    /// constant, and the module the call is in.
    pub fn expansion<'e>(
        &'e self,
        module: u32,
        decorator: &'e Expr,
    ) -> Option<(u32, &'e ExprCall)> {
        let (module, decorator) = match decorator {
            Expr::Name(_) => match self.project.resolve(module, decorator) {
                Def::Value(module, Some(value)) => (module, value),
                _ => return None,
            },
            other => (module, other),
        };
        let Expr::Call(call) = decorator else {
            return None;
        };
        let Expr::Attribute(attribute) = &*call.func else {
            return None;
        };
        if attribute.attr.as_str() != "expand" {
            return None;
        }
        let name = match self.project.resolve(module, &call.func) {
            Def::External(name) => name,
            _ => self.project.text(module, &call.func),
        };
        name.contains("parameterized").then_some((module, call))
    }

    fn external(
        &self,
        name: &str,
        module: u32,
        decorator: &Expr,
        call: Option<&ExprCall>,
        scope: Scope<'_>,
    ) -> Vec<Effect> {
        let evaluator = Evaluator::new(self.project);
        let subst = FxHashMap::default();
        if let Some(effects) = self.framework(name, call, module, scope, &evaluator, &subst) {
            return effects;
        }
        // A requirement whose definition is not at hand: by the library's naming convention it
        // skips unless the requirement is met.
        let last = name.rsplit('.').next().unwrap_or(name);
        if last.starts_with("require_") || last == "slow" {
            let condition = format!("@{}", self.project.text(module, decorator));
            return vec![Effect::SkipIf {
                condition,
                reason: None,
                mark: false,
            }];
        }
        Vec::new()
    }

    /// Decorators of `unittest` and `pytest`; nothing when the name is neither.
    pub(super) fn framework(
        &self,
        name: &str,
        call: Option<&ExprCall>,
        module: u32,
        scope: Scope<'_>,
        evaluator: &Evaluator<'_>,
        subst: &FxHashMap<Box<str>, String>,
    ) -> Option<Vec<Effect>> {
        let short = name
            .strip_prefix("unittest.case.")
            .or_else(|| name.strip_prefix("unittest."));
        let mark = name
            .strip_prefix("pytest.mark.")
            .or_else(|| name.strip_prefix("_pytest.mark."));
        let argument = |at: usize, keyword: &str| {
            call.and_then(|call| {
                call.arguments
                    .find_keyword(keyword)
                    .map(|keyword| &keyword.value)
                    .or_else(|| call.arguments.args.get(at))
            })
        };
        let reason = |expr: Option<&Expr>| expr.map(|expr| evaluator.reason(expr, scope));
        let conditional = |test: &Expr, skip_when: bool, reason: Option<String>, mark: bool| {
            let truth = evaluator.truth(test, scope);
            let truth = if skip_when { truth } else { truth.not() };
            match truth {
                Truth::True => vec![Effect::Skip { reason, mark }],
                Truth::False => Vec::new(),
                Truth::Unknown(_) => {
                    let condition = match test {
                        // pytest evaluates a string as an expression.
                        Expr::StringLiteral(text) => text.value.to_str().to_owned(),
                        _ => self.condition(module, test, !skip_when, subst),
                    };
                    vec![Effect::SkipIf {
                        condition,
                        reason,
                        mark,
                    }]
                }
            }
        };
        Some(match (short, mark) {
            (Some("skip"), _) => vec![Effect::Skip {
                reason: reason(argument(0, "reason")),
                mark: false,
            }],
            (Some("skipIf"), _) => conditional(
                argument(0, "condition")?,
                true,
                reason(argument(1, "reason")),
                false,
            ),
            (Some("skipUnless"), _) => conditional(
                argument(0, "condition")?,
                false,
                reason(argument(1, "reason")),
                false,
            ),
            (Some("expectedFailure"), _) => {
                vec![Effect::ExpectFailure {
                    condition: None,
                    reason: None,
                }]
            }
            (_, Some("skip")) => vec![Effect::Skip {
                reason: reason(argument(0, "reason")),
                mark: true,
            }],
            (_, Some("skipif")) => {
                let call = call?;
                let keyword = |name: &str| call.arguments.find_keyword(name).map(|k| &k.value);
                let why = reason(keyword("reason"));
                call.arguments
                    .args
                    .iter()
                    .chain(keyword("condition"))
                    .flat_map(|test| match test {
                        Expr::StringLiteral(text) => vec![Effect::SkipIf {
                            condition: text.value.to_str().to_owned(),
                            reason: why.clone(),
                            mark: true,
                        }],
                        _ => conditional(test, true, why.clone(), true),
                    })
                    .collect()
            }
            (_, Some("xfail")) => {
                let keyword = |name: &str| {
                    call.and_then(|call| call.arguments.find_keyword(name))
                        .map(|k| &k.value)
                };
                let test = argument(0, "condition");
                let condition = match test.map(|test| (test, evaluator.truth(test, scope))) {
                    Some((_, Truth::False)) => return Some(Vec::new()),
                    Some((test, Truth::Unknown(_))) => {
                        Some(self.condition(module, test, false, subst))
                    }
                    _ => None,
                };
                // pytest reports `run=False` as an expected failure too.
                let reason = reason(keyword("reason"));
                vec![Effect::ExpectFailure { condition, reason }]
            }
            (Some(_), _) | (_, Some(_)) => Vec::new(),
            _ => return None,
        })
    }

    /// A decorator defined in the checkout.
    fn own(&self, module: u32, id: FunctionId, call: Option<&ExprCall>) -> Vec<Effect> {
        if call.is_none()
            && let Some(effects) = self
                .known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&id)
        {
            return effects.to_vec();
        }
        let function = self.project.function(id);
        let Some(definition) = &function.definition else {
            return Vec::new();
        };
        let effects =
            Reader::new(self, id.module).read(definition, call.map(|call| (module, call)));
        if call.is_none() {
            self.known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, Arc::new(effects.clone()));
        }
        effects
    }

    /// The source of a condition (negated on request) with known names replaced by their values.
    pub(super) fn condition(
        &self,
        module: u32,
        expr: &Expr,
        negate: bool,
        subst: &FxHashMap<Box<str>, String>,
    ) -> String {
        if negate
            && let Expr::UnaryOp(unary) = expr
            && unary.op == UnaryOp::Not
        {
            return self.condition(module, &unary.operand, false, subst);
        }
        let text = substituted(self.project.module(module).slice(expr.range()), expr, subst);
        if !negate {
            return text;
        }
        let replaced = matches!(expr, Expr::Name(name) if subst.contains_key(name.id.as_str()));
        match expr {
            _ if replaced && text.contains(' ') => format!("not ({text})"),
            Expr::Name(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => {
                format!("not {text}")
            }
            _ => format!("not ({text})"),
        }
    }
}
