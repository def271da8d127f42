//! The test cases that `parameterized.expand` makes of one method: their names and arguments.

use std::sync::Arc;

use ruff_python_ast::Expr;
use rustc_hash::FxHashMap;

use super::eval::{Evaluator, Scope};
use super::project::Project;
use super::value::Value;

/// The most cases one `parameterized.expand` may have.
const MAX_CASES: usize = 2_000;

/// The names and arguments of the cases that `parameterized.expand` makes of a method.
pub(crate) fn cases(
    project: &Project,
    module: u32,
    base: &str,
    call: &ruff_python_ast::ExprCall,
) -> Vec<(Arc<str>, Vec<Value>)> {
    let unknown = || vec![(Arc::from(format!("{base}_*")), Vec::new())];
    let Some(list) = call.arguments.args.first().or_else(|| {
        call.arguments
            .find_keyword("input")
            .map(|keyword| &keyword.value)
    }) else {
        return unknown();
    };
    let naming = call
        .arguments
        .find_keyword("name_func")
        .map(|keyword| &keyword.value);
    let evaluator = Evaluator::new(project);
    let Value::Seq(rows) = evaluator.value(list, Scope::module(module)) else {
        return unknown();
    };
    if rows.len() > MAX_CASES {
        return unknown();
    }
    let digits = rows.len().saturating_sub(1).to_string().len();
    let sources: Option<&[Expr]> = match list {
        Expr::List(list) => Some(&list.elts),
        Expr::Tuple(tuple) => Some(&tuple.elts),
        _ => None,
    };
    rows.into_iter()
        .enumerate()
        .map(|(at, row)| {
            let arguments = match row {
                Value::Seq(items) => items,
                Value::Map(items) => items.into_iter().map(|(key, _)| key).collect(),
                single => vec![single],
            };
            let suffix = match arguments.first() {
                Some(Value::Str(text)) => format!("_{}", safe_name(text)),
                // The value is only known on the machine: its source stands for it.
                Some(Value::Unknown(_)) => {
                    let source = sources.and_then(|rows| rows.get(at)).map(|row| match row {
                        Expr::Tuple(tuple) => tuple.elts.first().unwrap_or(row),
                        Expr::List(list) => list.elts.first().unwrap_or(row),
                        _ => row,
                    });
                    source.map_or_else(
                        || "_*".to_owned(),
                        |expr| format!("_<{}>", project.text(module, expr)),
                    )
                }
                _ => String::new(),
            };
            let name = match naming {
                None => format!("{base}_{at:0digits$}{suffix}"),
                Some(naming) => named_by(
                    &evaluator,
                    module,
                    naming,
                    base,
                    &format!("{at:0digits$}"),
                    &arguments,
                )
                // The number of cases holds, whatever they are called.
                .unwrap_or_else(|| format!("{base}_*")),
            };
            (Arc::from(name), arguments)
        })
        .collect()
}

/// The name that a lambda given as `name_func` makes of a method, a case's number and arguments.
fn named_by(
    evaluator: &Evaluator<'_>,
    module: u32,
    naming: &Expr,
    base: &str,
    number: &str,
    arguments: &[Value],
) -> Option<String> {
    let Expr::Lambda(lambda) = naming else {
        return None;
    };
    let parameters = lambda.parameters.as_ref()?;
    let values = [
        Value::Record(vec![("__name__".into(), Value::Str(base.into()))]),
        Value::Str(number.into()),
        Value::Record(vec![("args".into(), Value::Seq(arguments.to_vec()))]),
    ];
    let bound: FxHashMap<Box<str>, Value> = parameters
        .posonlyargs
        .iter()
        .chain(&parameters.args)
        .map(|parameter| parameter.parameter.name.as_str().into())
        .zip(values)
        .collect();
    let scope = Scope {
        bound: Some(&bound),
        ..Scope::module(module)
    };
    match evaluator.value(&lambda.body, scope) {
        Value::Str(name) => Some(name.into()),
        _ => None,
    }
}

/// Replaces every run of characters that cannot be part of a name by an underscore.
fn safe_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let mut replaced = false;
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' {
            name.push(c);
            replaced = false;
        } else if !replaced {
            name.push('_');
            replaced = true;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_made_safe() {
        assert_eq!(safe_name("fp16 pad-left"), "fp16_pad_left");
        assert_eq!(safe_name("paged|eager"), "paged_eager");
        assert_eq!(safe_name("é--x"), "_x");
    }
}
