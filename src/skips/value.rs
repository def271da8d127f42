//! Values that can be known without running Python, and truth with a third value, unknown.

use ruff_python_ast::CmpOp;

/// Why something cannot be known, mildest first: of two reasons the later one prevails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// It depends on the machine, an environment variable or an installed package.
    Environment,
    /// A class attribute whose value cannot be computed.
    Flag,
    /// It depends on what the test itself computes.
    Runtime,
}

/// True, false, or unknown with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown(Why),
}

impl Truth {
    pub fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            unknown => unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// A Python value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Box<str>),
    /// A list, tuple or set.
    Seq(Vec<Value>),
    /// A dictionary in insertion order.
    Map(Vec<(Value, Value)>),
    /// An object of which some attributes are known.
    Record(Vec<(Box<str>, Value)>),
    /// Something that exists and is true (a class, a function, an instance) but is not known.
    Object,
    Unknown(Why),
}

impl Value {
    pub fn truth(&self) -> Truth {
        match self {
            Self::None => Truth::False,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value != 0).into(),
            Self::Float(value) => (*value != 0.0).into(),
            Self::Str(value) => (!value.is_empty()).into(),
            Self::Seq(items) => (!items.is_empty()).into(),
            Self::Map(items) => (!items.is_empty()).into(),
            Self::Object | Self::Record(_) => Truth::True,
            Self::Unknown(why) => Truth::Unknown(*why),
        }
    }

    /// The value as `str()` writes it, where that is known.
    pub fn display(&self) -> Option<String> {
        match self {
            Self::Str(value) => Some(value.to_string()),
            other => other.repr(),
        }
    }

    /// The value as `repr()` writes it, where that is known.
    pub fn repr(&self) -> Option<String> {
        Some(match self {
            Self::None => "None".into(),
            Self::Bool(true) => "True".into(),
            Self::Bool(false) => "False".into(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => float_repr(*value),
            Self::Str(value) => {
                let quote = if value.contains('\'') && !value.contains('"') {
                    '"'
                } else {
                    '\''
                };
                let mut text = String::with_capacity(value.len() + 2);
                text.push(quote);
                for c in value.chars() {
                    match c {
                        '\\' => text.push_str("\\\\"),
                        '\n' => text.push_str("\\n"),
                        '\r' => text.push_str("\\r"),
                        '\t' => text.push_str("\\t"),
                        c if c == quote => {
                            text.push('\\');
                            text.push(c);
                        }
                        c => text.push(c),
                    }
                }
                text.push(quote);
                text
            }
            Self::Seq(_) | Self::Map(_) | Self::Record(_) | Self::Object | Self::Unknown(_) => {
                return None;
            }
        })
    }

    /// Whether two values are equal, where that is known.
    pub fn equals(&self, other: &Self) -> Option<bool> {
        use Value::{Bool, Float, Int, Map, Object, Record, Seq, Unknown};
        match (self, other) {
            (Unknown(_) | Object | Record(_), _) | (_, Unknown(_) | Object | Record(_)) => None,
            (Seq(a), Seq(b)) => {
                if a.len() != b.len() {
                    return Some(false);
                }
                let mut equal = Some(true);
                for (a, b) in a.iter().zip(b) {
                    match a.equals(b) {
                        Some(false) => return Some(false),
                        None => equal = None,
                        Some(true) => {}
                    }
                }
                equal
            }
            (Map(_), Map(_)) => None,
            (Bool(a), Int(b)) | (Int(b), Bool(a)) => Some(i64::from(*a) == *b),
            (Int(a), Float(b)) | (Float(b), Int(a)) => Some(*a as f64 == *b),
            (a, b) => Some(a == b),
        }
    }

    /// The reason it is unknown, if it is.
    pub fn why(&self) -> Option<Why> {
        match self {
            Self::Unknown(why) => Some(*why),
            Self::Object | Self::Record(_) => Some(Why::Runtime),
            _ => None,
        }
    }
}

/// A float as Python writes it.
pub(crate) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value:?}")
}

/// A number, or some object where it is out of range.
pub(super) fn int(value: Option<i64>) -> Value {
    value.map_or(Value::Object, Value::Int)
}

/// A truth as a value.
pub(super) fn truth_value(truth: Truth) -> Value {
    match truth {
        Truth::True => Value::Bool(true),
        Truth::False => Value::Bool(false),
        Truth::Unknown(why) => Value::Unknown(why),
    }
}

/// Whether a comparison holds, where both sides are known well enough.
pub(super) fn compare_values(left: &Value, op: CmpOp, right: &Value) -> Option<bool> {
    let order = |test: fn(std::cmp::Ordering) -> bool| match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(test(a.cmp(b))),
        (Value::Str(a), Value::Str(b)) => Some(test(a.cmp(b))),
        _ => None,
    };
    match op {
        CmpOp::Eq => left.equals(right),
        CmpOp::NotEq => left.equals(right).map(|equal| !equal),
        CmpOp::Is | CmpOp::IsNot => {
            let same = match (left, right) {
                (Value::Unknown(_), _) | (_, Value::Unknown(_)) => None,
                (Value::None | Value::Bool(_), _) | (_, Value::None | Value::Bool(_)) => {
                    Some(left == right)
                }
                _ => None,
            };
            same.map(|same| same == (op == CmpOp::Is))
        }
        CmpOp::Lt => order(std::cmp::Ordering::is_lt),
        CmpOp::LtE => order(std::cmp::Ordering::is_le),
        CmpOp::Gt => order(std::cmp::Ordering::is_gt),
        CmpOp::GtE => order(std::cmp::Ordering::is_ge),
        CmpOp::In | CmpOp::NotIn => {
            let inside = match (left, right) {
                (Value::Str(a), Value::Str(b)) => Some(b.contains(&**a)),
                (_, Value::Seq(items)) => contains(items.iter(), left),
                (_, Value::Map(items)) => contains(items.iter().map(|(key, _)| key), left),
                _ => None,
            };
            inside.map(|inside| inside == (op == CmpOp::In))
        }
    }
}

fn contains<'v>(items: impl Iterator<Item = &'v Value>, wanted: &Value) -> Option<bool> {
    let mut result = Some(false);
    for item in items {
        match item.equals(wanted) {
            Some(true) => return Some(true),
            None => result = None,
            Some(false) => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        // Values printed by CPython 3.11.
        for (value, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.0021, "0.0021"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (123456.789, "123456.789"),
        ] {
            assert_eq!(float_repr(value), text);
        }
    }

    #[test]
    fn strings_are_quoted_as_python_quotes_them() {
        for (value, text) in [("a", "'a'"), ("it's", "\"it's\""), ("a'b\"c", "'a\\'b\"c'")] {
            assert_eq!(Value::Str(value.into()).repr().unwrap(), text);
        }
    }

    #[test]
    fn unknown_values_are_neither_equal_nor_different() {
        let unknown = Value::Unknown(Why::Flag);
        assert_eq!(unknown.equals(&Value::Int(1)), None);
        assert_eq!(
            Value::Seq(vec![unknown.clone()]).equals(&Value::Seq(vec![])),
            Some(false)
        );
        assert_eq!(Value::Bool(true).equals(&Value::Int(1)), Some(true));
    }
}
