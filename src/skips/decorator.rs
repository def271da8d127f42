//! What decorators do to a test: skip it, skip it under a condition, expect it to fail, or expand it.
//!
//! Decorators of `unittest` and `pytest` are known by name. Decorators of the checkout itself
//! (`@slow`, `@require_torch`) are read: every skip their definition can apply becomes an effect
//! with the condition it is applied under. Anything else is taken to leave the test alone.

use std::sync::{Arc, Mutex, PoisonError};

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, ExprCall, Stmt, StmtFunctionDef, UnaryOp};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;

use super::eval::{Evaluator, Scope};
use super::project::{Def, FunctionId, Project, one_line};
use super::value::{Truth, Value, Why};

/// Blocks of a decorator's definition nested deeper than this are not read.
const MAX_DEPTH: usize = 16;
/// Local names that stand for longer text than this are kept by name in a condition.
const MAX_SUBSTITUTE: usize = 400;

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
    project: &'p Project,
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
    fn framework(
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
        let mut reader = Reader {
            decorators: self,
            module: id.module,
            bound: FxHashMap::default(),
            subst: FxHashMap::default(),
            effects: Vec::new(),
        };
        reader.bind_parameters(definition, call.map(|call| (module, call)));
        reader.block(&definition.body, &mut Vec::new(), 0);
        let effects = reader.effects;
        if call.is_none() {
            self.known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, Arc::new(effects.clone()));
        }
        effects
    }

    /// The source of a condition (negated on request) with known names replaced by their values.
    fn condition(
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

/// Reads the body of one decorator.
struct Reader<'d, 'p> {
    decorators: &'d Decorators<'p>,
    module: u32,
    bound: FxHashMap<Box<str>, Value>,
    subst: FxHashMap<Box<str>, String>,
    effects: Vec<Effect>,
}

impl Reader<'_, '_> {
    /// Binds parameters to the call's arguments, or the first one to the decorated test.
    fn bind_parameters(&mut self, definition: &StmtFunctionDef, call: Option<(u32, &ExprCall)>) {
        let evaluator = Evaluator::new(self.decorators.project);
        let parameters = &definition.parameters;
        let positional = parameters.posonlyargs.iter().chain(&parameters.args);
        for (at, parameter) in positional.chain(&parameters.kwonlyargs).enumerate() {
            let name = parameter.parameter.name.as_str();
            let given = call.and_then(|(module, call)| {
                let is_positional = at < parameters.posonlyargs.len() + parameters.args.len();
                call.arguments
                    .find_keyword(name)
                    .map(|keyword| &keyword.value)
                    .or_else(|| call.arguments.args.get(at).filter(|_| is_positional))
                    .map(|expr| (module, expr))
            });
            let value = match (given, &parameter.default) {
                (Some((module, expr)), _) => evaluator.value(expr, Scope::module(module)),
                (None, _) if call.is_none() && at == 0 => Value::Object,
                (None, Some(default)) => evaluator.value(default, Scope::module(self.module)),
                (None, None) => Value::Unknown(Why::Runtime),
            };
            self.bind(name, value, given);
        }
    }

    fn bind(&mut self, name: &str, value: Value, source: Option<(u32, &Expr)>) {
        let text = value.repr().or_else(|| {
            let (module, expr) = source?;
            let text = self.decorators.project.module(module).slice(expr.range());
            Some(substituted(text, expr, &self.subst))
        });
        if let Some(text) = text.filter(|text| text.len() <= MAX_SUBSTITUTE) {
            self.subst.insert(name.into(), text);
        }
        self.bound.insert(name.into(), value);
    }

    /// Reads a block under the conditions of `path`; true when it always returns.
    fn block(&mut self, block: &[Stmt], path: &mut Vec<String>, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        for stmt in block {
            match stmt {
                Stmt::Return(stmt) => {
                    if let Some(value) = &stmt.value {
                        self.expression(value, path);
                    }
                    return true;
                }
                Stmt::Raise(_) => return true,
                Stmt::Expr(stmt) => self.expression(&stmt.value, path),
                Stmt::Assign(assign) => {
                    self.expression(&assign.value, path);
                    if let [Expr::Name(name)] = &*assign.targets {
                        let value = Evaluator::new(self.decorators.project)
                            .value(&assign.value, self.scope());
                        self.bind(name.id.as_str(), value, Some((self.module, &assign.value)));
                    }
                }
                Stmt::If(branch) => {
                    let mut clauses = vec![(Some(&*branch.test), &*branch.body)];
                    clauses.extend(
                        branch
                            .elif_else_clauses
                            .iter()
                            .map(|c| (c.test.as_ref(), &*c.body)),
                    );
                    let mut all_return = true;
                    let mut complete = false;
                    for (test, body) in clauses {
                        let truth = test.map_or(Truth::True, |test| {
                            Evaluator::new(self.decorators.project).truth(test, self.scope())
                        });
                        match (truth, test) {
                            (Truth::False, _) => {}
                            (Truth::True, _) | (_, None) => {
                                all_return &= self.block(body, path, depth + 1);
                                complete = true;
                                break;
                            }
                            (Truth::Unknown(_), Some(test)) => {
                                path.push(self.decorators.condition(
                                    self.module,
                                    test,
                                    false,
                                    &self.subst,
                                ));
                                all_return &= self.block(body, path, depth + 1);
                                path.pop();
                            }
                        }
                    }
                    if complete && all_return {
                        return true;
                    }
                }
                Stmt::Try(stmt) => {
                    let returns = self.block(&stmt.body, path, depth + 1);
                    if returns || self.block(&stmt.orelse, path, depth + 1) {
                        return true;
                    }
                }
                Stmt::With(stmt) => {
                    let returns = self.block(&stmt.body, path, depth + 1);
                    if returns {
                        return true;
                    }
                }
                Stmt::FunctionDef(inner) if !is_wrapper(inner) => {
                    for parameter in &inner.parameters.args {
                        self.bound
                            .insert(parameter.parameter.name.as_str().into(), Value::Object);
                    }
                    self.block(&inner.body, path, depth + 1);
                }
                _ => {}
            }
        }
        false
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            bound: Some(&self.bound),
            ..Scope::module(self.module)
        }
    }

    /// Collects the skips applied anywhere in an expression.
    fn expression(&mut self, expr: &Expr, path: &[String]) {
        let mut calls = Calls(Vec::new());
        calls.visit_expr(expr);
        for call in calls.0 {
            let project = self.decorators.project;
            let name = match project.resolve(self.module, &call.func) {
                Def::External(name) => name,
                Def::Function(_) | Def::Class(_) => continue,
                _ => project.text(self.module, &call.func),
            };
            let evaluator = Evaluator::new(project);
            let scope = Scope {
                bound: Some(&self.bound),
                ..Scope::module(self.module)
            };
            let found = self
                .decorators
                .framework(
                    &name,
                    Some(call),
                    self.module,
                    scope,
                    &evaluator,
                    &self.subst,
                )
                .unwrap_or_default();
            for effect in found {
                self.effects.push(under(effect, path));
            }
        }
    }
}

/// Adds the conditions around an effect to it.
fn under(effect: Effect, path: &[String]) -> Effect {
    if path.is_empty() {
        return effect;
    }
    let outer = path.join(" and ");
    match effect {
        Effect::Skip { reason, mark } => Effect::SkipIf {
            condition: outer,
            reason,
            mark,
        },
        Effect::SkipIf {
            condition,
            reason,
            mark,
        } => Effect::SkipIf {
            condition: format!("{outer} and {condition}"),
            reason,
            mark,
        },
        Effect::ExpectFailure { condition, reason } => Effect::ExpectFailure {
            condition: Some(
                condition.map_or(outer.clone(), |inner| format!("{outer} and {inner}")),
            ),
            reason,
        },
    }
}

/// The function a decorator returns in place of the test: its body runs with the test, not before.
fn is_wrapper(function: &StmtFunctionDef) -> bool {
    let parameters = &function.parameters;
    parameters.vararg.is_some() || parameters.kwarg.is_some() || !function.decorator_list.is_empty()
}

struct Calls<'a>(Vec<&'a ExprCall>);

impl<'a> Visitor<'a> for Calls<'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr {
            self.0.push(call);
        }
        walk_expr(self, expr);
    }
}

/// The source of `expr` with the names in `subst` replaced.
fn substituted(text: &str, expr: &Expr, subst: &FxHashMap<Box<str>, String>) -> String {
    struct Names<'a>(Vec<(usize, &'a str)>);
    impl<'a> Visitor<'a> for Names<'a> {
        fn visit_expr(&mut self, expr: &'a Expr) {
            if let Expr::Name(name) = expr {
                self.0
                    .push((name.range.start().to_usize(), name.id.as_str()));
            }
            walk_expr(self, expr);
        }
    }
    if subst.is_empty() {
        return one_line(text);
    }
    let mut names = Names(Vec::new());
    names.visit_expr(expr);
    names.0.sort_unstable();
    let start = expr.range().start().to_usize();
    let mut result = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, name) in names.0 {
        let Some(value) = subst.get(name) else {
            continue;
        };
        let (from, to) = (at - start, at - start + name.len());
        if from < copied || text.get(from..to) != Some(name) {
            continue;
        }
        result.push_str(&text[copied..from]);
        result.push_str(value);
        copied = to;
    }
    result.push_str(&text[copied..]);
    one_line(&result)
}
