//! The attributes of one class as a condition in a test sees them through `self`.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::eval::{Evaluator, Flags, Scope};
use super::facts::MemberKind;
use super::mro::Ancestor;
use super::project::{ClassId, FunctionId};
use super::suite::{Suite, place_of};
use super::value::{Truth, Value, Why};

/// One class, with the attributes looked up so far.
pub(crate) struct ClassView<'s> {
    pub suite: &'s Suite<'s>,
    pub class: ClassId,
    known: RefCell<FxHashMap<Box<str>, Value>>,
    /// What was asked since recording began.
    asked: RefCell<Option<Vec<Lookup>>>,
}

/// A question about a class and its answer. Bodies that ask nothing else do the same in every class
/// that gives the same answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lookup {
    Attribute(Box<str>, Value),
    Has(Box<str>, Truth),
    Method(Box<str>, Option<ClassId>, Option<(ClassId, FunctionId)>),
}

impl<'s> ClassView<'s> {
    pub fn new(suite: &'s Suite<'s>, class: ClassId) -> Self {
        Self {
            suite,
            class,
            known: RefCell::default(),
            asked: RefCell::default(),
        }
    }

    /// Starts to record lookups.
    pub fn record(&self) {
        *self.asked.borrow_mut() = Some(Vec::new());
    }

    /// The lookups since [`record`](Self::record).
    pub fn recorded(&self) -> Vec<Lookup> {
        self.asked.borrow_mut().take().unwrap_or_default()
    }

    /// Whether the class gives the same answers.
    pub fn answers(&self, lookups: &[Lookup]) -> bool {
        lookups.iter().all(|lookup| match lookup {
            Lookup::Attribute(name, value) => self.has_value(name, value),
            Lookup::Has(name, truth) => self.look_for(name) == *truth,
            Lookup::Method(name, after, found) => self.find(name, *after) == *found,
        })
    }

    fn note(&self, lookup: impl FnOnce() -> Lookup) {
        if let Some(asked) = &mut *self.asked.borrow_mut() {
            let lookup = lookup();
            if !asked.contains(&lookup) {
                asked.push(lookup);
            }
        }
    }

    fn has_value(&self, name: &str, value: &Value) -> bool {
        if let Some(known) = self.known.borrow().get(name) {
            return known == value;
        }
        self.value_of(name) == *value
    }

    fn value_of(&self, name: &str) -> Value {
        if let Some(value) = self.known.borrow().get(name) {
            return value.clone();
        }
        let value = self.look_up(name);
        self.known.borrow_mut().insert(name.into(), value.clone());
        value
    }

    /// The method that `self.name` or, with `after`, `super().name` in a method of that class finds.
    pub fn method(&self, name: &str, after: Option<ClassId>) -> Option<(ClassId, FunctionId)> {
        let found = self.find(name, after);
        self.note(|| Lookup::Method(name.into(), after, found));
        found
    }

    fn find(&self, name: &str, after: Option<ClassId>) -> Option<(ClassId, FunctionId)> {
        let order = &self.suite.lineages.get(self.class).order;
        let start = match after {
            Some(class) => place_of(order, class)? + 1,
            None => 0,
        };
        for ancestor in &order[start..] {
            let Ancestor::Class(id) = ancestor else {
                continue;
            };
            if let Some(member) = self.suite.project.class(*id).member(name) {
                return match member.kind {
                    MemberKind::Function(function) => Some((
                        *id,
                        FunctionId {
                            module: id.module,
                            function,
                        },
                    )),
                    _ => None,
                };
            }
        }
        None
    }

    fn look_up(&self, name: &str) -> Value {
        let project = self.suite.project;
        let lineage = self.suite.lineages.get(self.class);
        if lineage
            .classes()
            .any(|id| project.class(id).assigned.contains(name))
        {
            return Value::Unknown(Why::Flag);
        }
        for ancestor in &lineage.order {
            let id = match ancestor {
                Ancestor::Class(id) => *id,
                Ancestor::Outside(outside) => {
                    if lineage
                        .opaque
                        .as_ref()
                        .is_some_and(|(_, name)| name == outside)
                    {
                        return Value::Unknown(Why::Flag);
                    }
                    continue;
                }
            };
            let Some(member) = project.class(id).member(name) else {
                continue;
            };
            let value = match &member.kind {
                MemberKind::Function(function) => {
                    let function = FunctionId {
                        module: id.module,
                        function: *function,
                    };
                    // A property's value is computed by the test run.
                    if project.function(function).decorators.is_empty() {
                        return Value::Object;
                    }
                    return Value::Unknown(Why::Flag);
                }
                MemberKind::Value(Some(expr)) => {
                    Evaluator::new(project).value(expr, Scope::module(id.module))
                }
                MemberKind::Value(None) | MemberKind::Deleted => Value::Unknown(Why::Flag),
            };
            // A mixin's empty default stands for "set this in your class or in `setUp`".
            let unset = match &value {
                Value::None => true,
                Value::Seq(items) => items.is_empty(),
                _ => false,
            };
            if unset && !self.suite.lineages.get(id).is_test_case {
                return Value::Unknown(Why::Flag);
            }
            return match value {
                Value::Unknown(_) => Value::Unknown(Why::Flag),
                known => known,
            };
        }
        Value::Unknown(Why::Flag)
    }
}

impl Flags for ClassView<'_> {
    fn attribute(&self, name: &str) -> Value {
        let value = self.value_of(name);
        self.note(|| Lookup::Attribute(name.into(), value.clone()));
        value
    }

    fn has_attribute(&self, name: &str) -> Truth {
        let truth = self.look_for(name);
        self.note(|| Lookup::Has(name.into(), truth));
        truth
    }
}

impl ClassView<'_> {
    fn look_for(&self, name: &str) -> Truth {
        let project = self.suite.project;
        let lineage = self.suite.lineages.get(self.class);
        if lineage
            .classes()
            .any(|id| project.class(id).member(name).is_some())
        {
            return Truth::True;
        }
        let assigned = lineage
            .classes()
            .any(|id| project.class(id).assigned.contains(name));
        // `unittest.TestCase` has attributes of its own; their names are not those of flags.
        if assigned
            || lineage.opaque.is_some()
            || name.starts_with("_test")
            || name.starts_with("assert")
        {
            return Truth::Unknown(Why::Flag);
        }
        Truth::False
    }
}
