//! An operation's line in the tree.

use burnscope::trace::{Attribution, Node, Op, Operand, Output};

use super::{Line, Place, Renderer, mark, tensor::columns};
use crate::cli::output::{FAINT, printable, styled};

impl Renderer<'_> {
    /// Adds the line of an operation that `call` made, and one for each further result.
    pub(super) fn op(&mut self, op: &Op, call: Option<&Node>, place: &Place<'_>) {
        let mut marks = Vec::new();
        if op.backward {
            marks.push("backward".to_owned());
        }
        let inferred = |attribution| attribution == Attribution::Inferred;
        // An inferred call says so itself.
        if inferred(op.attribution) && !call.is_some_and(|call| inferred(call.attribution)) {
            marks.push("inferred".to_owned());
        }
        let mark = mark(&marks);
        let number = format!("{} ", op.order);
        let name = printable(&op.name);
        let texts = [place.branch, &number, &name, &mark];
        let line = Line {
            width: texts.iter().map(|text| text.chars().count()).sum(),
            tree: format!(
                "{}{name}{}",
                styled(FAINT, format!("{}{number}", place.branch)),
                styled(FAINT, &mark)
            ),
            kind: given(op, call),
            is_op: true,
            ..Line::default()
        };
        let several = op.outputs.len() > 1;
        let results = op.outputs.iter().map(|output| made(output, several));
        self.lines(line, place.below, results);
    }
}

/// The columns of a result, with its name among several.
fn made(output: &Output, several: bool) -> (String, String) {
    let label = match several {
        true => format!("{}: ", printable(&output.label)),
        false => String::new(),
    };
    let (tensor, mut numbers) = columns(&label, Some(&output.tensor), true);
    if let Some(id) = output.alias_of {
        if !numbers.is_empty() {
            numbers += "  ";
        }
        numbers += &styled(FAINT, format!("alias of %{id}"));
    }
    (tensor, numbers)
}

/// What an operation was given: tensors, then the rest by name.
fn given(op: &Op, call: Option<&Node>) -> String {
    let operands = op.inputs.iter().map(|operand| given_tensor(operand, call));
    let scalars = op
        .scalars
        .iter()
        .map(|(name, value)| format!("{}={}", short(name), short(value)));
    operands.chain(scalars).collect::<Vec<_>>().join(", ")
}

fn given_tensor(operand: &Operand, call: Option<&Node>) -> String {
    let id = operand.id;
    let Some(parameter) = &operand.parameter else {
        return format!("%{id}");
    };
    // As the modules' names: below the call's own.
    let below = call.and_then(|call| parameter.strip_prefix(&call.path)?.strip_prefix('.'));
    format!("%{id} {}", printable(below.unwrap_or(parameter)))
}

/// Options may be a whole struct's text.
fn short(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    printable(&short)
}
