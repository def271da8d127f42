//! Which tests every class has: own, inherited, overridden and expanded ones.
//!
//! A class's table maps the name of each test method, as a test runner would list it, to the
//! definition that Python's attribute lookup finds. What happens to the test is judged elsewhere.

use std::sync::Arc;

use rayon::prelude::*;
use ruff_python_ast::Expr;
use ruff_text_size::Ranged;
use rustc_hash::{FxHashMap, FxHashSet};

use super::decorator::{Decorators, Placed};
use super::eval::{Evaluator, Scope};
use super::expand::cases;
use super::facts::{Member, MemberKind};
use super::mro::{Ancestor, Lineages};
use super::project::{ClassId, Def, FunctionId, Project};
use super::value::Value;
use super::verdict::{Verdict, conditions};

/// One test (or what stands in its place) as one class defines it.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub name: Arc<str>,
    /// The name of the method it is a case of; its own name for a plain method.
    pub family: Arc<str>,
    pub owner: ClassId,
    pub offset: u32,
    pub kind: ItemKind,
    pub effects: Arc<Vec<Placed>>,
    /// The conditional ones among the effects, joined.
    conditions: Option<Arc<Verdict>>,
}

#[derive(Clone, Debug)]
pub(crate) enum ItemKind {
    Method(FunctionId),
    /// One case of an expanded method, with its arguments where they are known.
    Case(FunctionId, Arc<Vec<Value>>),
    /// The name of an expanded method itself, kept alive by a decorator above `expand`. Nothing of
    /// the method is behind it.
    Husk,
    /// The name of an expanded method, which is `None` afterwards.
    Consumed,
    /// A value that is no test: `test_x = False`.
    NotCallable,
    /// Something that cannot be known.
    Unknown,
}

impl Item {
    /// Whether a test runner sees a test under this name.
    pub fn is_test(&self) -> bool {
        !matches!(self.kind, ItemKind::NotCallable | ItemKind::Consumed)
    }

    /// The conditions under which its decorators skip it.
    pub fn conditions(&self) -> Option<&Verdict> {
        self.conditions.as_deref()
    }

    /// The method behind the test.
    pub fn function(&self) -> Option<FunctionId> {
        match &self.kind {
            ItemKind::Method(id) | ItemKind::Case(id, _) => Some(*id),
            _ => None,
        }
    }
}

/// What a class has under one name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub item: Arc<Item>,
    /// The family by which the class's ancestors know the name.
    pub family: Arc<str>,
    /// The test of an ancestor that this definition hides.
    pub hides: Option<Arc<Item>>,
}

/// The tests of one class by name.
pub(crate) type Table = FxHashMap<Arc<str>, Entry>;

/// All classes that matter, with their tests.
pub(crate) struct Suite<'p> {
    pub project: &'p Project,
    pub lineages: Lineages,
    pub decorators: Decorators<'p>,
    own: FxHashMap<ClassId, Vec<Arc<Item>>>,
    tables: FxHashMap<ClassId, Arc<Table>>,
}

impl<'p> Suite<'p> {
    /// Builds the tables of `classes`, whose lineages are linked.
    pub fn new(project: &'p Project, lineages: Lineages, classes: &[ClassId]) -> Self {
        let decorators = Decorators::new(project);
        let mut wanted: Vec<ClassId> = classes
            .iter()
            .flat_map(|&class| lineages.get(class).classes())
            .collect::<FxHashSet<_>>()
            .into_iter()
            .collect();
        wanted.sort_unstable();
        let own: FxHashMap<ClassId, Vec<Arc<Item>>> = wanted
            .par_iter()
            .map(|&class| (class, contributions(project, &decorators, class)))
            .collect();
        let mut suite = Self {
            project,
            lineages,
            decorators,
            own,
            tables: FxHashMap::default(),
        };
        // Tables of classes that pin their tests are needed to build those of their subclasses.
        let mut pinned: Vec<ClassId> = wanted
            .iter()
            .copied()
            .filter(|&c| suite.is_pinned(c))
            .collect();
        pinned.sort_by_key(|&class| suite.lineages.get(class).order.len());
        // A class's ancestors have shorter lineages than the class itself.
        let mut at = 0;
        while at < pinned.len() {
            let length = suite.lineages.get(pinned[at]).order.len();
            let end =
                at + pinned[at..].partition_point(|&c| suite.lineages.get(c).order.len() <= length);
            let built: Vec<(ClassId, Arc<Table>)> = pinned[at..end]
                .par_iter()
                .map(|&class| (class, Arc::new(suite.build(class))))
                .collect();
            suite.tables.extend(built);
            at = end;
        }
        let rest: Vec<ClassId> = classes
            .iter()
            .copied()
            .filter(|class| !suite.tables.contains_key(class))
            .collect();
        let built: Vec<(ClassId, Arc<Table>)> = rest
            .par_iter()
            .map(|&class| (class, Arc::new(suite.build(class))))
            .collect();
        suite.tables.extend(built);
        suite
    }

    /// The tests of a class the suite was built for.
    pub fn table(&self, class: ClassId) -> &Table {
        // Built in `new` for every class handed to it.
        &self.tables[&class]
    }

    /// What a class defines itself.
    pub fn own(&self, class: ClassId) -> &[Arc<Item>] {
        self.own.get(&class).map_or(&[], Vec::as_slice)
    }

    /// Whether an ancestor's `__init_subclass__` copies every test onto the class.
    fn is_pinned(&self, class: ClassId) -> bool {
        self.lineages
            .get(class)
            .classes()
            .skip(1)
            .any(|id| self.project.class(id).pins_tests)
    }

    fn build(&self, class: ClassId) -> Table {
        let mut table = Table::default();
        for (place, id) in self.lineages.get(class).classes().enumerate() {
            if let Some(pinned) = self
                .tables
                .get(&id)
                .filter(|_| place > 0 && self.is_pinned(id))
            {
                for entry in pinned.values().filter(|entry| entry.item.is_test()) {
                    add(&mut table, &entry.item, &entry.family);
                }
                for item in self.own(id).iter().filter(|item| !item.is_test()) {
                    add(&mut table, item, &item.family);
                }
            } else {
                for item in self.own(id) {
                    add(&mut table, item, &item.family);
                }
            }
        }
        table
    }
}

/// Adds what an ancestor defines unless a class before it already has the name.
fn add(table: &mut Table, item: &Arc<Item>, family: &Arc<str>) {
    match table.get_mut(&item.name) {
        None => {
            let entry = Entry {
                item: item.clone(),
                family: family.clone(),
                hides: None,
            };
            table.insert(item.name.clone(), entry);
        }
        Some(entry) => {
            if item.is_test() && !Arc::ptr_eq(&entry.item, item) && entry.hides.is_none() {
                entry.hides = Some(item.clone());
                // A plain method that carries the name of one expanded case takes its place.
                if entry.item.family == entry.item.name {
                    entry.family = family.clone();
                }
            }
        }
    }
}

/// The tests that the body of one class defines, in the order of their last definition.
fn contributions(project: &Project, decorators: &Decorators<'_>, id: ClassId) -> Vec<Arc<Item>> {
    let class = project.class(id);
    let mut items: Vec<Arc<Item>> = Vec::new();
    let mut places: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    let mut put = |item: Item| {
        let item = Arc::new(item);
        match places.get(&item.name) {
            Some(&at) => items[at] = item,
            None => {
                places.insert(item.name.clone(), items.len());
                items.push(item);
            }
        }
    };
    for member in class
        .members
        .iter()
        .filter(|member| member.name.starts_with("test"))
    {
        match &member.kind {
            MemberKind::Function(function) => {
                let function = FunctionId {
                    module: id.module,
                    function: *function,
                };
                method(project, decorators, id, member, function, &mut put);
            }
            MemberKind::Value(value) => {
                put(assigned(project, decorators, id, member, value.as_deref()));
            }
            MemberKind::Deleted => {
                let name: Arc<str> = (*member.name).into();
                put(Item {
                    name: name.clone(),
                    family: name,
                    owner: id,
                    offset: member.offset,
                    kind: ItemKind::Consumed,
                    effects: Arc::default(),
                    conditions: None,
                });
            }
        }
    }
    // A deleted name is as if it had never been defined here.
    items.retain(|item| {
        !matches!(item.kind, ItemKind::Consumed)
            || class
                .member(&item.name)
                .is_none_or(|m| !matches!(m.kind, MemberKind::Deleted))
    });
    items
}

fn method(
    project: &Project,
    decorators: &Decorators<'_>,
    owner: ClassId,
    member: &Member,
    id: FunctionId,
    put: &mut dyn FnMut(Item),
) {
    let function = project.function(id);
    let name: Arc<str> = (*member.name).into();
    let expansion = function
        .decorators
        .iter()
        .enumerate()
        .find_map(|(at, expr)| Some((at, decorators.expansion(owner.module, expr)?)));
    let placed = |exprs: &[Expr]| -> Arc<Vec<Placed>> {
        Arc::new(
            exprs
                .iter()
                .flat_map(|expr| {
                    let offset = expr.range().start().to_u32();
                    decorators
                        .effects(owner.module, expr)
                        .into_iter()
                        .map(move |effect| Placed { effect, offset })
                })
                .collect(),
        )
    };
    let item = |name: Arc<str>, family: &Arc<str>, kind, effects: &Arc<Vec<Placed>>| Item {
        name,
        family: family.clone(),
        owner,
        offset: member.offset,
        kind,
        effects: effects.clone(),
        conditions: conditions(effects, owner.module).map(Arc::new),
    };
    let Some((at, (list_module, call))) = expansion else {
        let effects = placed(&function.decorators);
        let kind = if is_attribute(&function.decorators) {
            ItemKind::NotCallable
        } else {
            ItemKind::Method(id)
        };
        put(item(name.clone(), &name, kind, &effects));
        return;
    };
    let inner = placed(&function.decorators[at + 1..]);
    let shared = item(name.clone(), &name, ItemKind::Consumed, &inner);
    for (case, arguments) in cases(project, list_module, &name, call) {
        let kind = ItemKind::Case(id, Arc::new(arguments));
        put(Item {
            name: case,
            kind,
            ..shared.clone()
        });
    }
    let outer = placed(&function.decorators[..at]);
    let kind = if at == 0 {
        ItemKind::Consumed
    } else {
        ItemKind::Husk
    };
    put(item(name.clone(), &name, kind, &outer));
}

/// Whether decorators turn a method into an attribute, which is no test.
fn is_attribute(decorators: &[Expr]) -> bool {
    decorators.iter().any(|decorator| {
        let name = match decorator {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => return false,
        };
        matches!(name, "property" | "cached_property" | "setter")
    })
}

/// `test_x = …` in a class body.
fn assigned(
    project: &Project,
    decorators: &Decorators<'_>,
    owner: ClassId,
    member: &Member,
    value: Option<&Expr>,
) -> Item {
    let name: Arc<str> = (*member.name).into();
    let mut effects = Vec::new();
    let kind = match value {
        None => ItemKind::Unknown,
        // `unittest.skip("…")(Mixin.test_x)`: a decorator applied by hand.
        Some(Expr::Call(call))
            if call.arguments.args.len() == 1 && matches!(*call.func, Expr::Call(_)) =>
        {
            let offset = call.func.range().start().to_u32();
            let found = decorators.effects(owner.module, &call.func);
            effects.extend(found.into_iter().map(|effect| Placed { effect, offset }));
            match named_method(project, owner, &call.arguments.args[0]) {
                Some(function) => ItemKind::Method(function),
                None if effects.is_empty() => ItemKind::Unknown,
                None => ItemKind::Husk,
            }
        }
        Some(expr) => match named_method(project, owner, expr) {
            Some(function) => ItemKind::Method(function),
            None => match Evaluator::new(project).value(expr, Scope::module(owner.module)) {
                Value::Object | Value::Unknown(_) => ItemKind::Unknown,
                _ => ItemKind::NotCallable,
            },
        },
    };
    Item {
        name: name.clone(),
        family: name,
        owner,
        offset: member.offset,
        kind,
        conditions: conditions(&effects, owner.module).map(Arc::new),
        effects: Arc::new(effects),
    }
}

/// The method an expression in a class body names: `test_other` or `Mixin.test_x`.
fn named_method(project: &Project, owner: ClassId, expr: &Expr) -> Option<FunctionId> {
    let (class, name) = match expr {
        Expr::Name(name) => (owner, name.id.as_str()),
        Expr::Attribute(attribute) => match project.resolve(owner.module, &attribute.value) {
            Def::Class(class) => (class, attribute.attr.as_str()),
            _ => return None,
        },
        _ => return None,
    };
    let mut class = class;
    // Along the first bases only: enough for mixins, which have one.
    for _ in 0..16 {
        match project.class(class).member(name).map(|m| &m.kind) {
            Some(MemberKind::Function(function)) => {
                return Some(FunctionId {
                    module: class.module,
                    function: *function,
                });
            }
            Some(_) => return None,
            None => {}
        }
        let base = project.class(class).bases.first()?;
        let Def::Class(parent) = project.resolve(class.module, base) else {
            return None;
        };
        class = parent;
    }
    None
}

/// The place of a class among the ancestors, if it is one.
pub(crate) fn place_of(order: &[Ancestor], class: ClassId) -> Option<usize> {
    order
        .iter()
        .position(|ancestor| *ancestor == Ancestor::Class(class))
}
