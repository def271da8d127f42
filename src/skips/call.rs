//! The calls and comprehensions that a constant may be written with.

use ruff_python_ast::{Expr, ExprCall};
use rustc_hash::FxHashMap;

use super::builtin;
use super::eval::{Evaluator, Scope};
use super::project::Def;
use super::value::{Truth, Value, Why, truth_value};

impl Evaluator<'_> {
    pub(super) fn comprehension(
        &self,
        element: &Expr,
        generators: &[ruff_python_ast::Comprehension],
        scope: Scope<'_>,
        depth: usize,
    ) -> Value {
        let mut bound = scope.bound.cloned().unwrap_or_default();
        let mut items = Vec::new();
        match self.generate(element, generators, scope, &mut bound, depth, &mut items) {
            Ok(()) => Value::Seq(items),
            Err(why) => Value::Unknown(why),
        }
    }

    fn generate(
        &self,
        element: &Expr,
        generators: &[ruff_python_ast::Comprehension],
        scope: Scope<'_>,
        bound: &mut FxHashMap<Box<str>, Value>,
        depth: usize,
        items: &mut Vec<Value>,
    ) -> Result<(), Why> {
        let Some((first, rest)) = generators.split_first() else {
            items.push(self.eval(
                element,
                Scope {
                    bound: Some(bound),
                    ..scope
                },
                depth,
            ));
            return if self.left.get() == 0 {
                Err(Why::Runtime)
            } else {
                Ok(())
            };
        };
        let over = self.eval(
            &first.iter,
            Scope {
                bound: Some(bound),
                ..scope
            },
            depth,
        );
        let over = match builtin::iterate(over) {
            Value::Seq(items) => items,
            other => return Err(other.why().unwrap_or(Why::Runtime)),
        };
        'items: for item in over {
            bind_target(&first.target, item, bound)?;
            for condition in &first.ifs {
                match self
                    .eval(
                        condition,
                        Scope {
                            bound: Some(bound),
                            ..scope
                        },
                        depth,
                    )
                    .truth()
                {
                    Truth::True => {}
                    Truth::False => continue 'items,
                    Truth::Unknown(why) => return Err(why),
                }
            }
            self.generate(element, rest, scope, bound, depth, items)?;
        }
        Ok(())
    }

    pub(super) fn call(
        &self,
        call: &ExprCall,
        whole: &Expr,
        scope: Scope<'_>,
        depth: usize,
    ) -> Value {
        let arguments = &call.arguments.args;
        match &*call.func {
            Expr::Name(function) => {
                let function = function.id.as_str();
                match (function, &**arguments) {
                    ("getattr", [object, Expr::StringLiteral(name), rest @ ..])
                        if scope.is_receiver(object) =>
                    {
                        let Some(flags) = scope.flags else {
                            return Value::Unknown(Why::Runtime);
                        };
                        let name = name.value.to_str();
                        return match (flags.has_attribute(name), rest.first()) {
                            (Truth::False, Some(default)) => self.eval(default, scope, depth),
                            (Truth::Unknown(why), _) => Value::Unknown(why),
                            _ => flags.attribute(name),
                        };
                    }
                    ("hasattr", [object, Expr::StringLiteral(name)])
                        if scope.is_receiver(object) =>
                    {
                        let Some(flags) = scope.flags else {
                            return Value::Unknown(Why::Runtime);
                        };
                        return truth_value(flags.has_attribute(name.value.to_str()));
                    }
                    // A switch that is on unless an environment variable turns it off is taken as
                    // on; one that is off unless turned on depends on the machine.
                    ("parse_flag_from_env", _) => {
                        let default = call
                            .arguments
                            .find_keyword("default")
                            .map(|keyword| &keyword.value)
                            .or(arguments.get(1));
                        return match default.map(|expr| self.eval(expr, scope, depth)) {
                            Some(Value::Bool(true)) => Value::Bool(true),
                            _ => Value::Unknown(Why::Environment),
                        };
                    }
                    _ => {}
                }
                if builtin::is_function(function) && !self.shadows(function, scope) {
                    let values: Vec<Value> = arguments
                        .iter()
                        .map(|a| self.eval(a, scope, depth))
                        .collect();
                    if call.arguments.keywords.is_empty()
                        && let Some(value) = builtin::call(function, &values)
                    {
                        return self.bounded(value);
                    }
                }
                self.instance(call, scope, depth)
                    .unwrap_or_else(|| Value::Unknown(self.blame(whole, scope)))
            }
            Expr::Attribute(method) => {
                let name = method.attr.as_str();
                if let Expr::Name(owner) = &*method.value {
                    let values = || -> Vec<Value> {
                        arguments
                            .iter()
                            .map(|a| self.eval(a, scope, depth))
                            .collect()
                    };
                    match (owner.id.as_str(), name) {
                        ("itertools", "product") if call.arguments.keywords.is_empty() => {
                            return builtin::product(values(), self.left.get())
                                .map_or(Value::Unknown(Why::Runtime), |value| self.bounded(value));
                        }
                        _ => {}
                    }
                }
                if builtin::is_method(name) && !scope.is_receiver(&method.value) {
                    let object = self.eval(&method.value, scope, depth);
                    if object.why().is_none() && call.arguments.keywords.is_empty() {
                        let values: Vec<Value> = arguments
                            .iter()
                            .map(|a| self.eval(a, scope, depth))
                            .collect();
                        if let Some(value) = builtin::method(&object, name, &values) {
                            return self.bounded(value);
                        }
                    }
                }
                if let Expr::Attribute(path) = &*method.value
                    && name == "basename"
                    && path.attr.as_str() == "path"
                    && let [argument] = &**arguments
                    && let Value::Str(text) = self.eval(argument, scope, depth)
                {
                    return Value::Str(text.rsplit('/').next().unwrap_or("").into());
                }
                Value::Unknown(self.blame(whole, scope))
            }
            _ => Value::Unknown(self.blame(whole, scope)),
        }
    }

    /// An object made by a class of a library from keywords alone: by convention it keeps them as
    /// attributes.
    fn instance(&self, call: &ExprCall, scope: Scope<'_>, depth: usize) -> Option<Value> {
        if !call.arguments.args.is_empty() || call.arguments.keywords.is_empty() {
            return None;
        }
        let Def::External(path) = self.project.resolve(scope.module, &call.func) else {
            return None;
        };
        if !path
            .rsplit('.')
            .next()?
            .starts_with(|c: char| c.is_ascii_uppercase())
        {
            return None;
        }
        let fields = call.arguments.keywords.iter().map(|keyword| {
            Some((
                keyword.arg.as_ref()?.as_str().into(),
                self.eval(&keyword.value, scope, depth),
            ))
        });
        fields.collect::<Option<Vec<_>>>().map(Value::Record)
    }

    fn shadows(&self, name: &str, scope: Scope<'_>) -> bool {
        scope.is_local(name)
            || self.project.module(scope.module).names.contains_key(name)
            || scope.bound.is_some_and(|bound| bound.contains_key(name))
    }
}

fn bind_target(
    target: &Expr,
    value: Value,
    bound: &mut FxHashMap<Box<str>, Value>,
) -> Result<(), Why> {
    match target {
        Expr::Name(name) => {
            bound.insert(name.id.as_str().into(), value);
            Ok(())
        }
        Expr::Tuple(tuple) => match value {
            Value::Seq(items) if items.len() == tuple.elts.len() => tuple
                .elts
                .iter()
                .zip(items)
                .try_for_each(|(target, item)| bind_target(target, item, bound)),
            other => Err(other.why().unwrap_or(Why::Runtime)),
        },
        _ => Err(Why::Runtime),
    }
}
