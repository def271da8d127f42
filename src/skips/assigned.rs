//! What the statements of a body assign: names and attributes, not their values.

use ruff_python_ast::{Expr, Stmt, StmtFunctionDef};
use rustc_hash::FxHashSet;

use super::flow::MAX_DEPTH;

/// Adds the attributes of `self`/`cls` that a method assigns or sets by name.
pub(crate) fn instance_assignments(function: &StmtFunctionDef, into: &mut FxHashSet<Box<str>>) {
    let Some(first) = function
        .parameters
        .posonlyargs
        .iter()
        .chain(&function.parameters.args)
        .next()
    else {
        return;
    };
    assignments(&function.body, first.parameter.name.as_str(), into, 0);
}

fn assignments(block: &[Stmt], receiver: &str, into: &mut FxHashSet<Box<str>>, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    for stmt in block {
        match stmt {
            Stmt::Assign(assign) => {
                assign
                    .targets
                    .iter()
                    .for_each(|target| assigned_attribute(target, receiver, into));
            }
            Stmt::AugAssign(assign) => assigned_attribute(&assign.target, receiver, into),
            Stmt::AnnAssign(assign) => assigned_attribute(&assign.target, receiver, into),
            Stmt::Expr(stmt) => {
                if let Expr::Call(call) = &*stmt.value
                    && matches!(&*call.func, Expr::Name(name) if name.id.as_str() == "setattr")
                    && let [Expr::Name(object), Expr::StringLiteral(attribute), ..] =
                        &*call.arguments.args
                    && object.id.as_str() == receiver
                {
                    into.insert(attribute.value.to_str().into());
                }
            }
            _ => {}
        }
    }
    for stmt in block {
        for inner in inner_blocks(stmt) {
            assignments(inner, receiver, into, depth + 1);
        }
    }
}

fn assigned_attribute(target: &Expr, receiver: &str, into: &mut FxHashSet<Box<str>>) {
    match target {
        Expr::Attribute(attribute) => {
            let owner = match &*attribute.value {
                // `self.__class__.x = …`
                Expr::Attribute(class) if class.attr.as_str() == "__class__" => &*class.value,
                other => other,
            };
            if matches!(owner, Expr::Name(name) if name.id.as_str() == receiver) {
                into.insert(attribute.attr.as_str().into());
            }
        }
        Expr::Tuple(tuple) => {
            for element in &tuple.elts {
                if matches!(element, Expr::Attribute(_)) {
                    assigned_attribute(element, receiver, into);
                }
            }
        }
        _ => {}
    }
}

/// The blocks directly inside a compound statement (not those of nested functions and classes).
pub(super) fn inner_blocks(stmt: &Stmt) -> Vec<&[Stmt]> {
    match stmt {
        Stmt::If(s) => std::iter::once(&*s.body)
            .chain(s.elif_else_clauses.iter().map(|clause| &*clause.body))
            .collect(),
        Stmt::For(s) => vec![&s.body, &s.orelse],
        Stmt::While(s) => vec![&s.body, &s.orelse],
        Stmt::With(s) => vec![&s.body],
        Stmt::Try(s) => {
            let mut blocks: Vec<&[Stmt]> = vec![&s.body];
            for handler in &s.handlers {
                let ruff_python_ast::ExceptHandler::ExceptHandler(handler) = handler;
                blocks.push(&handler.body);
            }
            blocks.push(&s.orelse);
            blocks.push(&s.finalbody);
            blocks
        }
        Stmt::Match(s) => s.cases.iter().map(|case| &*case.body).collect(),
        _ => Vec::new(),
    }
}

/// Adds the names that a block assigns.
pub(super) fn collect_locals(block: &[Stmt], into: &mut FxHashSet<Box<str>>, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    for stmt in block {
        match stmt {
            Stmt::Assign(assign) => assign.targets.iter().for_each(|t| local_target(t, into)),
            Stmt::AnnAssign(assign) => local_target(&assign.target, into),
            Stmt::AugAssign(assign) => local_target(&assign.target, into),
            Stmt::For(stmt) => local_target(&stmt.target, into),
            Stmt::With(stmt) => {
                for item in &stmt.items {
                    if let Some(name) = &item.optional_vars {
                        local_target(name, into);
                    }
                }
            }
            _ => {}
        }
        for inner in inner_blocks(stmt) {
            collect_locals(inner, into, depth + 1);
        }
    }
}

fn local_target(target: &Expr, into: &mut FxHashSet<Box<str>>) {
    match target {
        Expr::Name(name) => {
            into.insert(name.id.as_str().into());
        }
        Expr::Tuple(tuple) => {
            for element in &tuple.elts {
                if let Expr::Name(name) = element {
                    into.insert(name.id.as_str().into());
                }
            }
        }
        _ => {}
    }
}
