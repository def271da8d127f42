//! Evaluates the constant part of Python expressions: reasons, test cases, flags and conditions.
//!
//! Whatever cannot be known without running Python becomes an unknown value that says why. Work is
//! bounded: an expression larger than the budget is unknown too.

use std::cell::Cell;

use ruff_python_ast::{BoolOp, Expr, Number, Operator, UnaryOp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::builtin;
use super::project::{Def, Project};
use super::value::{Truth, Value, Why, compare_values, int, truth_value};

/// The most elements one evaluation may produce or visit.
const BUDGET: usize = 20_000;
/// Expressions nested deeper than this are unknown.
const MAX_DEPTH: usize = 60;

/// Looks up attributes of the class under judgement.
pub(crate) trait Flags {
    /// The value of `self.name`.
    fn attribute(&self, name: &str) -> Value;
    /// Whether `self` has the attribute.
    fn has_attribute(&self, name: &str) -> Truth;
}

/// The names an expression sees.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub module: u32,
    /// Parameters and assigned names of the function around it: known only while it runs.
    pub locals: Option<&'s FxHashSet<Box<str>>>,
    pub params: &'s [Box<str>],
    /// Names with a known value, which win over `locals`.
    pub bound: Option<&'s FxHashMap<Box<str>, Value>>,
    /// The class that `self` belongs to.
    pub flags: Option<&'s dyn Flags>,
}

impl Scope<'_> {
    /// The scope of module-level code.
    pub fn module(module: u32) -> Self {
        Self {
            module,
            locals: None,
            params: &[],
            bound: None,
            flags: None,
        }
    }

    pub(super) fn is_local(&self, name: &str) -> bool {
        self.params.iter().any(|p| &**p == name) || self.locals.is_some_and(|l| l.contains(name))
    }

    pub(super) fn is_receiver(&self, expr: &Expr) -> bool {
        self.flags.is_some()
            && match expr {
                Expr::Name(name) => {
                    let name = name.id.as_str();
                    matches!(name, "self" | "cls")
                        && self.bound.is_none_or(|b| !b.contains_key(name))
                }
                // `self.__class__` and `type(self)` reach the same class attributes.
                Expr::Attribute(attribute) => {
                    attribute.attr.as_str() == "__class__" && self.is_receiver(&attribute.value)
                }
                Expr::Call(call) => {
                    matches!(&*call.func, Expr::Name(name) if name.id.as_str() == "type")
                        && call.arguments.args.len() == 1
                        && self.is_receiver(&call.arguments.args[0])
                }
                _ => false,
            }
    }
}

/// One evaluation with its budget.
pub(crate) struct Evaluator<'p> {
    pub project: &'p Project,
    pub(super) left: Cell<usize>,
}

impl<'p> Evaluator<'p> {
    pub fn new(project: &'p Project) -> Self {
        Self {
            project,
            left: Cell::new(BUDGET),
        }
    }

    /// The truth of a condition.
    pub fn truth(&self, expr: &Expr, scope: Scope<'_>) -> Truth {
        self.value(expr, scope).truth()
    }

    /// The value of an expression.
    pub fn value(&self, expr: &Expr, scope: Scope<'_>) -> Value {
        self.eval(expr, scope, 0)
    }

    /// The text of a reason: the value if it is a known string, else its source text.
    pub fn reason(&self, expr: &Expr, scope: Scope<'_>) -> String {
        match self.value(expr, scope).display() {
            Some(text) => text,
            None => match expr {
                Expr::FString(_) => self.partial_fstring(expr, scope),
                _ => self.project.text(scope.module, expr),
            },
        }
    }

    /// An f-string with the fields that are not known left as they are written.
    fn partial_fstring(&self, expr: &Expr, scope: Scope<'_>) -> String {
        let mut text = String::new();
        self.fstring(expr, scope, 0, &mut |part| match part {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Unknown(source) => {
                text.push('{');
                text.push_str(source);
                text.push('}');
            }
        });
        text
    }

    pub(super) fn eval(&self, expr: &Expr, scope: Scope<'_>, depth: usize) -> Value {
        let value = self.eval_inner(expr, scope, depth);
        if matches!(value, Value::Unknown(_))
            && matches!(
                expr,
                Expr::Call(_) | Expr::Name(_) | Expr::Attribute(_) | Expr::Compare(_)
            )
            && let Some(known) = self.project.assumed(scope.module, expr)
        {
            return Value::Bool(known);
        }
        value
    }

    fn eval_inner(&self, expr: &Expr, scope: Scope<'_>, depth: usize) -> Value {
        let left = self.left.get();
        if depth > MAX_DEPTH || left == 0 {
            return Value::Unknown(Why::Runtime);
        }
        self.left.set(left - 1);
        let next = depth + 1;
        match expr {
            Expr::NoneLiteral(_) => Value::None,
            Expr::BooleanLiteral(literal) => Value::Bool(literal.value),
            Expr::NumberLiteral(literal) => match &literal.value {
                Number::Int(int) => int.as_i64().map_or(Value::Object, Value::Int),
                Number::Float(float) => Value::Float(*float),
                Number::Complex { .. } => Value::Object,
            },
            Expr::StringLiteral(literal) => Value::Str(literal.value.to_str().into()),
            Expr::BytesLiteral(_) | Expr::EllipsisLiteral(_) | Expr::Lambda(_) => Value::Object,
            Expr::FString(_) => {
                let mut text = String::new();
                let mut known = true;
                self.fstring(expr, scope, next, &mut |piece| match piece {
                    Piece::Text(piece) => text.push_str(piece),
                    Piece::Unknown(_) => known = false,
                });
                if known {
                    Value::Str(text.into())
                } else {
                    Value::Unknown(self.blame(expr, scope))
                }
            }
            Expr::Tuple(tuple) => self.sequence(&tuple.elts, scope, next),
            Expr::List(list) => self.sequence(&list.elts, scope, next),
            Expr::Set(set) => self.sequence(&set.elts, scope, next),
            Expr::Dict(dict) => {
                let mut items = Vec::with_capacity(dict.items.len());
                for item in &dict.items {
                    let value = self.eval(&item.value, scope, next);
                    match &item.key {
                        Some(key) => items.push((self.eval(key, scope, next), value)),
                        None => match value {
                            Value::Map(inner) => items.extend(inner),
                            other => return Value::Unknown(other.why().unwrap_or(Why::Runtime)),
                        },
                    }
                }
                Value::Map(items)
            }
            Expr::ListComp(comp) => self.comprehension(&comp.elt, &comp.generators, scope, next),
            Expr::SetComp(comp) => self.comprehension(&comp.elt, &comp.generators, scope, next),
            Expr::Generator(comp) => self.comprehension(&comp.elt, &comp.generators, scope, next),
            Expr::Name(name) => self.name(name.id.as_str(), scope, next),
            Expr::Attribute(attribute) => {
                let name = attribute.attr.as_str();
                if scope.is_receiver(&attribute.value)
                    && let Some(flags) = scope.flags
                {
                    return flags.attribute(name);
                }
                if scope.bound.is_some()
                    && let Value::Record(fields) = self.eval(&attribute.value, scope, next)
                {
                    return fields
                        .into_iter()
                        .find(|(field, _)| &**field == name)
                        .map_or(Value::Unknown(Why::Runtime), |(_, value)| value);
                }
                if self.mentions_local(expr, scope) {
                    return Value::Unknown(Why::Runtime);
                }
                self.definition(self.project.resolve(scope.module, expr), next)
            }
            Expr::UnaryOp(unary) => {
                let value = self.eval(&unary.operand, scope, next);
                match (unary.op, value) {
                    (UnaryOp::Not, value) => truth_value(value.truth().not()),
                    (UnaryOp::USub, Value::Int(value)) => {
                        value.checked_neg().map_or(Value::Object, Value::Int)
                    }
                    (UnaryOp::USub, Value::Float(value)) => Value::Float(-value),
                    (UnaryOp::UAdd, value @ (Value::Int(_) | Value::Float(_))) => value,
                    (_, value) => Value::Unknown(value.why().unwrap_or(Why::Runtime)),
                }
            }
            Expr::BoolOp(boolean) => {
                let mut unknown: Option<Why> = None;
                let mut last = Value::None;
                for operand in &boolean.values {
                    last = self.eval(operand, scope, next);
                    let decides = match (boolean.op, last.truth()) {
                        (BoolOp::And, Truth::False) | (BoolOp::Or, Truth::True) => true,
                        (_, Truth::Unknown(why)) => {
                            unknown = unknown.max(Some(why));
                            false
                        }
                        _ => false,
                    };
                    if decides {
                        // Whichever operand Python returns, its truth is the same.
                        return if unknown.is_some() {
                            Value::Bool(boolean.op == BoolOp::Or)
                        } else {
                            last
                        };
                    }
                }
                unknown.map_or(last, Value::Unknown)
            }
            Expr::If(choice) => match self.truth(&choice.test, scope) {
                Truth::True => self.eval(&choice.body, scope, next),
                Truth::False => self.eval(&choice.orelse, scope, next),
                Truth::Unknown(why) => {
                    let (a, b) = (
                        self.eval(&choice.body, scope, next),
                        self.eval(&choice.orelse, scope, next),
                    );
                    if a.equals(&b) == Some(true) {
                        a
                    } else {
                        Value::Unknown(why)
                    }
                }
            },
            Expr::Compare(compare) => self.compare(compare, scope, next),
            Expr::BinOp(binary) => {
                let left = self.eval(&binary.left, scope, next);
                let right = self.eval(&binary.right, scope, next);
                self.binary(left, binary.op, right)
            }
            Expr::Subscript(subscript) => {
                let base = self.eval(&subscript.value, scope, next);
                let index = self.eval(&subscript.slice, scope, next);
                builtin::item(&base, &index)
            }
            Expr::Named(named) => self.eval(&named.value, scope, next),
            Expr::Call(call) => self.call(call, expr, scope, next),
            _ => Value::Unknown(self.blame(expr, scope)),
        }
    }

    fn sequence(&self, elements: &[Expr], scope: Scope<'_>, depth: usize) -> Value {
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            if let Expr::Starred(starred) = element {
                match self.eval(&starred.value, scope, depth) {
                    Value::Seq(inner) => items.extend(inner),
                    other => return Value::Unknown(other.why().unwrap_or(Why::Runtime)),
                }
            } else {
                items.push(self.eval(element, scope, depth));
            }
        }
        Value::Seq(items)
    }

    fn name(&self, name: &str, scope: Scope<'_>, depth: usize) -> Value {
        if let Some(value) = scope.bound.and_then(|bound| bound.get(name)) {
            return value.clone();
        }
        if scope.is_local(name) {
            return Value::Unknown(Why::Runtime);
        }
        match self.project.resolve_name(scope.module, name) {
            Def::Unbound if builtin::is_type(name) => Value::Object,
            def => self.definition(def, depth),
        }
    }

    fn definition(&self, def: Def<'_>, depth: usize) -> Value {
        match def {
            Def::Class(_) | Def::Function(_) | Def::Module(_) => Value::Object,
            Def::Value(module, Some(expr)) => self.eval(expr, Scope::module(module), depth + 4),
            // A class or function of a library is true; a constant of one (`torch_device`) is not
            // known. Names of classes start with a capital.
            Def::External(path) => {
                let last = path.rsplit('.').next().unwrap_or("");
                if last.starts_with(|c: char| c.is_ascii_uppercase())
                    && last.contains(|c: char| c.is_ascii_lowercase())
                {
                    Value::Object
                } else {
                    Value::Unknown(Why::Environment)
                }
            }
            Def::Value(_, None) | Def::Missing | Def::Unbound => Value::Unknown(Why::Environment),
        }
    }

    fn compare(
        &self,
        compare: &ruff_python_ast::ExprCompare,
        scope: Scope<'_>,
        depth: usize,
    ) -> Value {
        let mut left = self.eval(&compare.left, scope, depth);
        let mut unknown: Option<Why> = None;
        for (op, right) in compare.ops.iter().zip(&compare.comparators) {
            let right = self.eval(right, scope, depth);
            match compare_values(&left, *op, &right) {
                Some(true) => {}
                Some(false) => return Value::Bool(false),
                None => {
                    unknown = unknown
                        .max(left.why())
                        .max(right.why())
                        .max(Some(Why::Environment));
                }
            }
            left = right;
        }
        unknown.map_or(Value::Bool(true), Value::Unknown)
    }

    fn binary(&self, left: Value, op: Operator, right: Value) -> Value {
        let why = left.why().max(right.why());
        // `True` counts as 1 in arithmetic.
        let number = |value: Value| match value {
            Value::Bool(value) => Value::Int(i64::from(value)),
            other => other,
        };
        match (number(left), op, number(right)) {
            (Value::Str(a), Operator::Add, Value::Str(b)) => self.text(format!("{a}{b}")),
            (Value::Seq(mut a), Operator::Add, Value::Seq(b)) => {
                a.extend(b);
                self.bounded(Value::Seq(a))
            }
            (Value::Int(a), Operator::Add, Value::Int(b)) => int(a.checked_add(b)),
            (Value::Int(a), Operator::Sub, Value::Int(b)) => int(a.checked_sub(b)),
            (Value::Int(a), Operator::Mult, Value::Int(b)) => int(a.checked_mul(b)),
            (Value::Int(a), Operator::FloorDiv, Value::Int(b)) if b > 0 => {
                int(Some(a.div_euclid(b)))
            }
            (Value::Int(a), Operator::Mod, Value::Int(b)) if b > 0 => int(Some(a.rem_euclid(b))),
            (Value::Str(a), Operator::Mult, Value::Int(n)) => {
                let n = usize::try_from(n).unwrap_or(0);
                if a.len().saturating_mul(n) > BUDGET {
                    return Value::Unknown(Why::Runtime);
                }
                Value::Str(a.repeat(n).into())
            }
            (Value::Seq(a), Operator::Mult, Value::Int(n)) => {
                let n = usize::try_from(n).unwrap_or(0);
                if a.len().saturating_mul(n) > BUDGET {
                    return Value::Unknown(Why::Runtime);
                }
                Value::Seq(a.iter().cycle().take(a.len() * n).cloned().collect())
            }
            (Value::Str(format), Operator::Mod, right) => builtin::percent(&format, &right),
            _ => Value::Unknown(why.unwrap_or(Why::Runtime)),
        }
    }

    fn text(&self, text: String) -> Value {
        if text.len() > BUDGET * 4 {
            Value::Unknown(Why::Runtime)
        } else {
            Value::Str(text.into())
        }
    }

    /// Charges the length of a sequence to the budget.
    pub(super) fn bounded(&self, value: Value) -> Value {
        let Value::Seq(items) = &value else {
            return value;
        };
        let left = self.left.get();
        if items.len() > left {
            self.left.set(0);
            return Value::Unknown(Why::Runtime);
        }
        self.left.set(left - items.len());
        value
    }

    /// Why an expression is unknown: it names something local, or else the environment decides.
    pub(super) fn blame(&self, expr: &Expr, scope: Scope<'_>) -> Why {
        if self.mentions_local(expr, scope) {
            Why::Runtime
        } else {
            Why::Environment
        }
    }

    fn mentions_local(&self, expr: &Expr, scope: Scope<'_>) -> bool {
        use ruff_python_ast::visitor::{Visitor, walk_expr};
        struct Finder<'f> {
            scope: Scope<'f>,
            found: bool,
        }
        impl<'a> Visitor<'a> for Finder<'_> {
            fn visit_expr(&mut self, expr: &'a Expr) {
                if self.found {
                    return;
                }
                if let Expr::Name(name) = expr {
                    let name = name.id.as_str();
                    self.found |= (self.scope.is_local(name)
                        && self.scope.bound.is_none_or(|b| {
                            b.get(name).is_none_or(|v| v.why() == Some(Why::Runtime))
                        }))
                        || matches!(name, "self" | "cls");
                }
                walk_expr(self, expr);
            }
        }
        let mut finder = Finder {
            scope,
            found: false,
        };
        finder.visit_expr(expr);
        finder.found
    }

    fn fstring(
        &self,
        expr: &Expr,
        scope: Scope<'_>,
        depth: usize,
        emit: &mut dyn FnMut(Piece<'_>),
    ) {
        use ruff_python_ast::{ConversionFlag, FStringPart, InterpolatedStringElement};
        let Expr::FString(fstring) = expr else { return };
        for part in &fstring.value {
            match part {
                FStringPart::Literal(literal) => emit(Piece::Text(&literal.value)),
                FStringPart::FString(inner) => {
                    for element in &inner.elements {
                        match element {
                            InterpolatedStringElement::Literal(literal) => {
                                emit(Piece::Text(&literal.value));
                            }
                            InterpolatedStringElement::Interpolation(field) => {
                                let value = self.eval(&field.expression, scope, depth + 1);
                                let text = match field.conversion {
                                    ConversionFlag::None | ConversionFlag::Str => value.display(),
                                    ConversionFlag::Repr | ConversionFlag::Ascii => value.repr(),
                                };
                                match text {
                                    Some(text) if field.format_spec.is_none() => {
                                        emit(Piece::Text(&text));
                                    }
                                    _ => emit(Piece::Unknown(
                                        &self.project.text(scope.module, &field.expression),
                                    )),
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A part of an f-string: text, or the source of a field whose value is not known.
enum Piece<'t> {
    Text(&'t str),
    Unknown(&'t str),
}
