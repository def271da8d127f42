//! Reads the definition of one decorator of the checkout for the skips it can apply.
//!
//! Statements are followed in order with the parameters bound to their arguments; nothing is run.

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, ExprCall, Stmt, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;

use super::decorator::{Decorators, Effect};
use super::eval::{Evaluator, Scope};
use super::project::{Def, one_line};
use super::value::{Truth, Value, Why};

/// Blocks of a decorator's definition nested deeper than this are not read.
const MAX_DEPTH: usize = 16;
/// Local names that stand for longer text than this are kept by name in a condition.
const MAX_SUBSTITUTE: usize = 400;

/// Reads the body of one decorator.
pub(super) struct Reader<'d, 'p> {
    decorators: &'d Decorators<'p>,
    module: u32,
    bound: FxHashMap<Box<str>, Value>,
    subst: FxHashMap<Box<str>, String>,
    effects: Vec<Effect>,
}

impl<'d, 'p> Reader<'d, 'p> {
    /// A reader of a definition in `module`.
    pub(super) fn new(decorators: &'d Decorators<'p>, module: u32) -> Self {
        Self {
            decorators,
            module,
            bound: FxHashMap::default(),
            subst: FxHashMap::default(),
            effects: Vec::new(),
        }
    }

    /// What the definition does to a test.
    pub(super) fn read(
        mut self,
        definition: &StmtFunctionDef,
        call: Option<(u32, &ExprCall)>,
    ) -> Vec<Effect> {
        self.bind_parameters(definition, call);
        self.block(&definition.body, &mut Vec::new(), 0);
        self.effects
    }

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
pub(super) fn substituted(text: &str, expr: &Expr, subst: &FxHashMap<Box<str>, String>) -> String {
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
