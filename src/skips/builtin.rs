//! The few builtin functions and methods that lists of test cases and reasons are written with.

use super::value::{Value, Why};

/// Ranges longer than this are not expanded.
const MAX_RANGE: i64 = 10_000;

/// Whether [`call`] may know the function.
pub(crate) fn is_function(name: &str) -> bool {
    matches!(
        name,
        "list"
            | "tuple"
            | "set"
            | "sorted"
            | "str"
            | "len"
            | "bool"
            | "range"
            | "enumerate"
            | "zip"
            | "any"
            | "all"
    )
}

/// Whether [`method`] may know the method.
pub(crate) fn is_method(name: &str) -> bool {
    matches!(
        name,
        "keys"
            | "values"
            | "items"
            | "replace"
            | "lower"
            | "upper"
            | "strip"
            | "join"
            | "format"
            | "split"
            | "get"
            | "startswith"
            | "endswith"
    )
}

/// Whether a name is that of a builtin type.
pub(crate) fn is_type(name: &str) -> bool {
    matches!(
        name,
        "object"
            | "int"
            | "float"
            | "str"
            | "bool"
            | "list"
            | "tuple"
            | "dict"
            | "set"
            | "type"
            | "bytes"
    )
}

/// The elements of a value as a list.
pub(crate) fn iterate(value: Value) -> Value {
    match value {
        Value::Map(items) => Value::Seq(items.into_iter().map(|(key, _)| key).collect()),
        Value::Str(text) => Value::Seq(
            text.chars()
                .map(|c| Value::Str(c.to_string().into()))
                .collect(),
        ),
        other => other,
    }
}

/// Calls a builtin; nothing where the result is not known.
pub(crate) fn call(name: &str, arguments: &[Value]) -> Option<Value> {
    Some(match (name, arguments) {
        ("list" | "tuple" | "set", []) => Value::Seq(Vec::new()),
        ("list" | "tuple", [value]) => match iterate(value.clone()) {
            Value::Seq(items) => Value::Seq(items),
            _ => return None,
        },
        ("str", [value]) => Value::Str(value.display()?.into()),
        ("bool", [value]) => match value.truth() {
            super::value::Truth::True => Value::Bool(true),
            super::value::Truth::False => Value::Bool(false),
            super::value::Truth::Unknown(why) => Value::Unknown(why),
        },
        ("len", [Value::Str(text)]) => Value::Int(text.chars().count() as i64),
        ("len", [Value::Seq(items)]) => Value::Int(items.len() as i64),
        ("len", [Value::Map(items)]) => Value::Int(items.len() as i64),
        ("range", [Value::Int(end)]) => range(0, *end, 1)?,
        ("range", [Value::Int(start), Value::Int(end)]) => range(*start, *end, 1)?,
        ("range", [Value::Int(start), Value::Int(end), Value::Int(step)]) => {
            range(*start, *end, *step)?
        }
        ("enumerate", [value]) => match iterate(value.clone()) {
            Value::Seq(items) => Value::Seq(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| Value::Seq(vec![Value::Int(at as i64), item]))
                    .collect(),
            ),
            _ => return None,
        },
        ("zip", [Value::Seq(a), Value::Seq(b)]) => Value::Seq(
            a.iter()
                .zip(b)
                .map(|(a, b)| Value::Seq(vec![a.clone(), b.clone()]))
                .collect(),
        ),
        ("any" | "all", [Value::Seq(items)]) => {
            use super::value::Truth;
            let wanted = if name == "any" {
                Truth::True
            } else {
                Truth::False
            };
            let mut unknown = None;
            for item in items {
                match item.truth() {
                    truth if truth == wanted => return Some(Value::Bool(name == "any")),
                    Truth::Unknown(why) => unknown = unknown.max(Some(why)),
                    _ => {}
                }
            }
            unknown.map_or(Value::Bool(name == "all"), Value::Unknown)
        }
        _ => return None,
    })
}

fn range(start: i64, end: i64, step: i64) -> Option<Value> {
    if step == 0 {
        return None;
    }
    let mut items = Vec::new();
    let mut at = start;
    while (step > 0 && at < end) || (step < 0 && at > end) {
        items.push(Value::Int(at));
        if items.len() as i64 > MAX_RANGE {
            return None;
        }
        at = at.checked_add(step)?;
    }
    Some(Value::Seq(items))
}

/// `itertools.product`, if it has at most `limit` elements.
pub(crate) fn product(arguments: Vec<Value>, limit: usize) -> Option<Value> {
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for argument in arguments {
        let Value::Seq(items) = iterate(argument) else {
            return None;
        };
        if rows.len().saturating_mul(items.len()) > limit {
            return None;
        }
        rows = rows
            .iter()
            .flat_map(|row| {
                items.iter().map(move |item| {
                    let mut longer = row.clone();
                    longer.push(item.clone());
                    longer
                })
            })
            .collect();
    }
    Some(Value::Seq(rows.into_iter().map(Value::Seq).collect()))
}

/// `base[index]`.
pub(crate) fn item(base: &Value, index: &Value) -> Value {
    let unknown = || Value::Unknown(base.why().max(index.why()).unwrap_or(Why::Runtime));
    match (base, index) {
        (Value::Seq(items), Value::Int(at)) => {
            let length = items.len() as i64;
            let at = if *at < 0 { at + length } else { *at };
            usize::try_from(at)
                .ok()
                .and_then(|at| items.get(at))
                .cloned()
                .unwrap_or_else(unknown)
        }
        (Value::Map(items), key) => items
            .iter()
            .rev()
            .find(|(candidate, _)| candidate.equals(key) == Some(true))
            .map_or_else(unknown, |(_, value)| value.clone()),
        _ => unknown(),
    }
}

/// Calls a method of a known value; nothing where the result is not known.
pub(crate) fn method(object: &Value, name: &str, arguments: &[Value]) -> Option<Value> {
    Some(match (object, name, arguments) {
        (Value::Map(items), "keys", []) => {
            Value::Seq(items.iter().map(|(k, _)| k.clone()).collect())
        }
        (Value::Map(items), "values", []) => {
            Value::Seq(items.iter().map(|(_, v)| v.clone()).collect())
        }
        (Value::Map(items), "items", []) => Value::Seq(
            items
                .iter()
                .map(|(k, v)| Value::Seq(vec![k.clone(), v.clone()]))
                .collect(),
        ),
        (Value::Map(items), "get", [key, rest @ ..]) => {
            let mut known = true;
            for (candidate, value) in items {
                match candidate.equals(key) {
                    Some(true) => return Some(value.clone()),
                    None => known = false,
                    Some(false) => {}
                }
            }
            if !known {
                return None;
            }
            rest.first().cloned().unwrap_or(Value::None)
        }
        (Value::Str(text), "replace", [Value::Str(from), Value::Str(to)]) => {
            if from.is_empty() {
                return None;
            }
            Value::Str(text.replace(&**from, to).into())
        }
        (Value::Str(text), "lower", []) => Value::Str(text.to_lowercase().into()),
        (Value::Str(text), "upper", []) => Value::Str(text.to_uppercase().into()),
        (Value::Str(text), "strip", []) => Value::Str(text.trim().into()),
        (Value::Str(text), "startswith", [Value::Str(part)]) => {
            Value::Bool(text.starts_with(&**part))
        }
        (Value::Str(text), "endswith", [Value::Str(part)]) => Value::Bool(text.ends_with(&**part)),
        (Value::Str(text), "split", [Value::Str(separator)]) if !separator.is_empty() => {
            Value::Seq(
                text.split(&**separator)
                    .map(|part| Value::Str(part.into()))
                    .collect(),
            )
        }
        (Value::Str(separator), "join", [Value::Seq(items)]) => {
            let mut parts: Vec<&str> = Vec::with_capacity(items.len());
            for item in items {
                let Value::Str(part) = item else { return None };
                parts.push(part);
            }
            Value::Str(parts.join(separator).into())
        }
        (Value::Str(text), "format", values) => Value::Str(brace_format(text, values)?.into()),
        _ => return None,
    })
}

/// `"{} {1}".format(…)` with plain fields only.
fn brace_format(format: &str, values: &[Value]) -> Option<String> {
    let mut text = String::new();
    let mut rest = format;
    let mut automatic = 0;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let doubled = rest[at..].starts_with("{{") || rest[at..].starts_with("}}");
        if doubled {
            text.push_str(&rest[at..=at]);
            rest = &rest[at + 2..];
            continue;
        }
        let end = at + rest[at..].find('}')?;
        let field = rest.get(at + 1..end)?;
        let index = if field.is_empty() {
            automatic += 1;
            automatic - 1
        } else {
            field.parse::<usize>().ok()?
        };
        text.push_str(&values.get(index)?.display()?);
        rest = &rest[end + 1..];
    }
    text.push_str(rest);
    Some(text)
}

/// `"%s %d" % values` with plain conversions only.
pub(crate) fn percent(format: &str, values: &Value) -> Value {
    let single = std::slice::from_ref(values);
    let values = match values {
        Value::Seq(items) => items.as_slice(),
        _ => single,
    };
    let unknown = Value::Unknown(
        values
            .iter()
            .filter_map(Value::why)
            .max()
            .unwrap_or(Why::Runtime),
    );
    let mut text = String::new();
    let mut next = values.iter();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => text.push('%'),
            Some('s' | 'd') => match next.next().and_then(Value::display) {
                Some(value) => text.push_str(&value),
                None => return unknown,
            },
            Some('r') => match next.next().and_then(Value::repr) {
                Some(value) => text.push_str(&value),
                None => return unknown,
            },
            _ => return unknown,
        }
    }
    Value::Str(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::Str(value.into())
    }

    #[test]
    fn formatting_matches_python() {
        assert_eq!(
            percent("%s of %d%%", &Value::Seq(vec![text("a"), Value::Int(3)])),
            text("a of 3%")
        );
        assert_eq!(percent("%r", &text("it's")), text("\"it's\""));
        assert_eq!(
            method(&text("{} {{}} {0}"), "format", &[text("x")]),
            Some(text("x {} x"))
        );
        assert_eq!(method(&text("{x}"), "format", &[text("x")]), None);
    }

    #[test]
    fn a_product_has_the_last_argument_vary_fastest() {
        let bools = Value::Seq(vec![Value::Bool(false), Value::Bool(true)]);
        let Some(Value::Seq(rows)) = product(vec![Value::Seq(vec![text("a")]), bools], 10) else {
            panic!()
        };
        assert_eq!(rows[1], Value::Seq(vec![text("a"), Value::Bool(true)]));
        assert_eq!(
            product(vec![Value::Seq(vec![Value::None; 10]); 3], 100),
            None
        );
    }

    #[test]
    fn indices_stay_inside() {
        let list = Value::Seq(vec![Value::Int(1)]);
        assert_eq!(item(&list, &Value::Int(-1)), Value::Int(1));
        assert!(matches!(item(&list, &Value::Int(1)), Value::Unknown(_)));
        assert!(matches!(
            item(&list, &Value::Int(i64::MIN)),
            Value::Unknown(_)
        ));
    }
}
