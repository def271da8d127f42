//! Reads the facts of a file from its syntax tree, which it does not keep.

use ruff_python_ast::{Expr, ExprCall, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;
use rustc_hash::FxHashSet;

use super::assigned;
use super::facts::{
    Binding, Body, Class, Function, ImportFrom, Member, MemberKind, Module, ModuleSkip,
};
use super::flow;

/// Values with more source text than this (tables of expected numbers) are not kept.
const MAX_VALUE_BYTES: usize = 32 << 10;
/// Classes nested deeper than this in `if`/`try`/`with` blocks are not looked for.
const MAX_BLOCK_DEPTH: usize = 32;
/// Functions with more source text than this are not considered to be decorators.
const MAX_DECORATOR_BYTES: usize = 8 << 10;

impl Module {
    fn bind(&mut self, name: &str, binding: Binding, conditional: bool) {
        match self.names.get_mut(name) {
            // `try: import x … except: x = None` and `if …: class A … else: class A`: the first
            // definition is the one that matters where the library is installed.
            Some(_) if conditional => {
                if matches!(binding, Binding::Value(_))
                    && matches!(self.names.get(name), Some(Binding::Value(_)))
                {
                    self.names.insert(name.into(), Binding::Value(None));
                }
            }
            Some(old) => *old = binding,
            None => {
                self.order.push(name.into());
                self.names.insert(name.into(), binding);
            }
        }
    }

    /// Reads the statements of the module or of a block in it; `condition` is the test of the
    /// nearest `if` around them.
    pub(super) fn read_block(&mut self, block: &[Stmt], condition: Option<&Expr>, depth: usize) {
        if depth > MAX_BLOCK_DEPTH {
            return;
        }
        let conditional = depth > 0;
        for stmt in block {
            match stmt {
                Stmt::Import(import) => {
                    for alias in &import.names {
                        let full = alias.name.as_str();
                        match &alias.asname {
                            Some(name) => {
                                self.bind(name.as_str(), Binding::Import(full.into()), conditional);
                            }
                            None => {
                                let root = full.split('.').next().unwrap_or(full);
                                self.bind(root, Binding::Import(root.into()), conditional);
                            }
                        }
                    }
                }
                Stmt::ImportFrom(import) => {
                    for alias in &import.names {
                        let from = ImportFrom {
                            module: import.module.as_ref().map_or("", |m| m.as_str()).into(),
                            level: import.level,
                            name: if alias.name.as_str() == "*" {
                                ""
                            } else {
                                alias.name.as_str()
                            }
                            .into(),
                            offset: alias.range.start().to_u32(),
                        };
                        if from.name.is_empty() {
                            self.stars.push(from);
                        } else {
                            let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                            self.bind(name, Binding::From(from), conditional);
                        }
                    }
                }
                Stmt::ClassDef(class) => {
                    let id = self.read_class(class);
                    self.bind(class.name.as_str(), Binding::Class(id), conditional);
                }
                Stmt::FunctionDef(function) => {
                    let id = self.read_function(function);
                    let source = self.slice(function.range);
                    if source.len() <= MAX_DECORATOR_BYTES
                        && (source.contains("skip") || source.contains("xfail"))
                    {
                        self.functions[id as usize].definition = Some(Box::new(function.clone()));
                    }
                    self.bind(function.name.as_str(), Binding::Function(id), conditional);
                }
                Stmt::Assign(assign) => {
                    let value = kept(&assign.value);
                    for target in &assign.targets {
                        if let Expr::Name(name) = target {
                            self.bind(name.id.as_str(), Binding::Value(value.clone()), conditional);
                        }
                    }
                }
                Stmt::AnnAssign(assign) => {
                    if let (Expr::Name(name), Some(value)) = (&*assign.target, &assign.value) {
                        self.bind(name.id.as_str(), Binding::Value(kept(value)), conditional);
                    }
                }
                Stmt::AugAssign(assign) => {
                    if let Expr::Name(name) = &*assign.target {
                        self.bind(name.id.as_str(), Binding::Value(None), false);
                    }
                }
                Stmt::Delete(delete) => {
                    for target in &delete.targets {
                        if let Expr::Name(name) = target {
                            self.names.remove(name.id.as_str());
                        }
                    }
                }
                Stmt::If(branch) => {
                    self.read_block(&branch.body, Some(&branch.test), depth + 1);
                    for clause in &branch.elif_else_clauses {
                        self.read_block(&clause.body, condition, depth + 1);
                    }
                }
                Stmt::Try(block) => {
                    self.read_block(&block.body, condition, depth + 1);
                    for handler in &block.handlers {
                        let ruff_python_ast::ExceptHandler::ExceptHandler(handler) = handler;
                        self.read_block(&handler.body, condition, depth + 1);
                    }
                    self.read_block(&block.orelse, condition, depth + 1);
                    self.read_block(&block.finalbody, condition, depth + 1);
                }
                Stmt::With(block) => self.read_block(&block.body, condition, depth + 1),
                Stmt::Expr(stmt) => {
                    if let Expr::Call(call) = &*stmt.value
                        && flow::is_pytest_skip(call)
                    {
                        self.note_module_skip(call, condition);
                    }
                }
                Stmt::Raise(raise) => {
                    if let Some(Expr::Call(call)) = raise.exc.as_deref()
                        && flow::is_skip_test(&call.func)
                    {
                        self.note_module_skip(call, condition);
                    }
                }
                _ => {}
            }
        }
    }

    fn note_module_skip(&mut self, call: &ExprCall, condition: Option<&Expr>) {
        self.skip.get_or_insert_with(|| ModuleSkip {
            offset: call.range().start().to_u32(),
            reason: flow::skip_reason(call).cloned(),
            condition: condition.cloned(),
        });
    }

    fn read_class(&mut self, class: &StmtClassDef) -> u32 {
        let decorators: Vec<Expr> = class
            .decorator_list
            .iter()
            .map(|d| d.expression.clone())
            .collect();
        let bases: Vec<Expr> = class
            .arguments
            .as_ref()
            .map_or_else(Vec::new, |arguments| arguments.args.to_vec());
        for expr in &decorators {
            self.note_used(expr);
        }
        // Of the library's own classes only those for tests have tests.
        for expr in bases
            .iter()
            .filter(|expr| self.slice(expr.range()).contains("Test"))
            .collect::<Vec<_>>()
        {
            self.note_used(expr);
        }
        let mut result = Class {
            name: class.name.as_str().into(),
            offset: class.name.range.start().to_u32(),
            decorators,
            bases,
            members: Vec::new(),
            assigned: FxHashSet::default(),
            pins_tests: false,
        };
        self.read_members(&class.body, &mut result, 0);
        self.classes.push(result);
        (self.classes.len() - 1) as u32
    }

    fn read_members(&mut self, block: &[Stmt], class: &mut Class, depth: usize) {
        if depth > MAX_BLOCK_DEPTH {
            return;
        }
        for stmt in block {
            match stmt {
                Stmt::FunctionDef(function) => {
                    let name = function.name.as_str();
                    if name == "__init_subclass__" {
                        class.pins_tests |= flow::reassigns_tests(self.slice(function.range));
                    }
                    if !name.starts_with("test") {
                        assigned::instance_assignments(function, &mut class.assigned);
                    }
                    let id = self.read_function(function);
                    class.members.push(Member {
                        name: name.into(),
                        offset: function.name.range.start().to_u32(),
                        kind: MemberKind::Function(id),
                    });
                }
                Stmt::Assign(assign) => {
                    let value = kept(&assign.value);
                    for target in &assign.targets {
                        if let Expr::Name(name) = target {
                            self.note_value_use(&assign.value);
                            class.members.push(Member {
                                name: name.id.as_str().into(),
                                offset: name.range.start().to_u32(),
                                kind: MemberKind::Value(value.clone()),
                            });
                        }
                    }
                }
                Stmt::AnnAssign(assign) => {
                    if let (Expr::Name(name), Some(value)) = (&*assign.target, &assign.value) {
                        class.members.push(Member {
                            name: name.id.as_str().into(),
                            offset: name.range.start().to_u32(),
                            kind: MemberKind::Value(kept(value)),
                        });
                    }
                }
                Stmt::AugAssign(assign) => {
                    if let Expr::Name(name) = &*assign.target {
                        class.members.push(Member {
                            name: name.id.as_str().into(),
                            offset: name.range.start().to_u32(),
                            kind: MemberKind::Value(None),
                        });
                    }
                }
                Stmt::Delete(delete) => {
                    for target in &delete.targets {
                        if let Expr::Name(name) = target {
                            class.members.push(Member {
                                name: name.id.as_str().into(),
                                offset: name.range.start().to_u32(),
                                kind: MemberKind::Deleted,
                            });
                        }
                    }
                }
                Stmt::If(branch) => {
                    self.read_members(&branch.body, class, depth + 1);
                    for clause in &branch.elif_else_clauses {
                        self.read_members(&clause.body, class, depth + 1);
                    }
                }
                Stmt::Try(block) => self.read_members(&block.body, class, depth + 1),
                Stmt::With(block) => self.read_members(&block.body, class, depth + 1),
                _ => {}
            }
        }
    }

    fn read_function(&mut self, function: &StmtFunctionDef) -> u32 {
        let decorators: Vec<Expr> = function
            .decorator_list
            .iter()
            .map(|d| d.expression.clone())
            .collect();
        for expr in &decorators {
            self.note_used(expr);
        }
        let body = flow::read(function);
        self.functions.push(Function {
            name: function.name.as_str().into(),
            offset: function.name.range.start().to_u32(),
            decorators,
            params: flow::parameter_names(&function.parameters),
            locals: body.locals,
            steps: body.steps,
            body: if flow::is_empty(&function.body) {
                Body::Empty
            } else {
                Body::Code
            },
            idle_skips: body.idle_skips,
            definition: None,
        });
        (self.functions.len() - 1) as u32
    }

    /// Remembers the leading name of a dotted name, a call of one, or a subscript of one.
    fn note_used(&mut self, expr: &Expr) {
        let mut expr = expr;
        loop {
            expr = match expr {
                Expr::Attribute(attribute) => &attribute.value,
                Expr::Call(call) => &call.func,
                Expr::Subscript(subscript) => &subscript.value,
                Expr::Name(name) => {
                    self.used.insert(name.id.as_str().into());
                    return;
                }
                _ => return,
            };
        }
    }

    /// `test_x = unittest.skip("…")(Mixin.test_x)`: both the decorator and the class are used.
    fn note_value_use(&mut self, value: &Expr) {
        if let Expr::Call(call) = value {
            self.note_used(&call.func);
            for argument in &call.arguments.args {
                self.note_used(argument);
            }
        } else {
            self.note_used(value);
        }
    }
}

fn kept(value: &Expr) -> Option<Box<Expr>> {
    (value.range().len().to_usize() <= MAX_VALUE_BYTES).then(|| Box::new(value.clone()))
}
