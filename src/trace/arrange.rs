//! Putting calls that were concluded afterwards among those that were seen, by their operations.

use super::{Attribution, Node, Trace};

/// Puts the calls of a trace, at each level, in the order of their first operations, and numbers them
/// anew in the order in which they began.
///
/// A call without operations stays behind the one that it followed. A trace that has no operations or
/// no inferred calls is left as it is.
pub fn arrange(trace: &mut Trace) {
    let inferred = |node: &Node| any(node, &|node| node.attribution == Attribution::Inferred);
    let operated = |node: &Node| any(node, &|node| !node.ops.is_empty());
    if !trace.roots.iter().any(inferred) || !trace.roots.iter().any(operated) {
        return;
    }
    sort(&mut trace.roots);
    let mut order = 0;
    trace
        .roots
        .iter_mut()
        .for_each(|root| number(root, &mut order));
}

fn any(node: &Node, holds: &dyn Fn(&Node) -> bool) -> bool {
    holds(node) || node.children.iter().any(|child| any(child, holds))
}

/// Sorts siblings and what is below them; returns the first operation of all.
fn sort(siblings: &mut Vec<Node>) -> Option<u64> {
    let mut before = 0;
    let mut keyed: Vec<(u64, Node)> = Vec::with_capacity(siblings.len());
    let mut first = None;
    for mut node in siblings.drain(..) {
        let inside = sort(&mut node.children);
        let own = node.ops.first().map(|op| op.order);
        let begins = [own, inside].into_iter().flatten().min();
        first = [first, begins].into_iter().flatten().min();
        before = begins.unwrap_or(before);
        keyed.push((before, node));
    }
    keyed.sort_by_key(|(begins, _)| *begins);
    siblings.extend(keyed.into_iter().map(|(_, node)| node));
    first
}

fn number(node: &mut Node, order: &mut u64) {
    node.order = *order;
    *order += 1;
    let children = node.children.iter_mut();
    children.for_each(|child| number(child, order));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    fn node(path: &str, attribution: Attribution, ops: &[u64], children: Vec<Node>) -> Node {
        Node {
            path: path.to_owned(),
            attribution,
            ops: ops
                .iter()
                .map(|order| Op {
                    order: *order,
                    ..Op::default()
                })
                .collect(),
            children,
            ..Node::default()
        }
    }

    #[test]
    fn concluded_calls_stand_where_their_operations_are() {
        use Attribution::{Exact, Inferred};
        let children = vec![
            node("M.late", Inferred, &[7], Vec::new()),
            node(
                "M.a",
                Exact,
                &[],
                vec![node("M.a.x", Exact, &[1], Vec::new())],
            ),
            node("M.dropout", Exact, &[], Vec::new()),
            node("M.b", Exact, &[5], Vec::new()),
            node("M.early", Inferred, &[3], Vec::new()),
        ];
        let mut trace = Trace {
            roots: vec![node("M", Exact, &[0], children)],
            ..Trace::default()
        };
        arrange(&mut trace);
        let order: Vec<(&str, u64)> = trace.roots[0]
            .children
            .iter()
            .map(|child| (child.path.as_str(), child.order))
            .collect();
        assert_eq!(
            order,
            [
                ("M.a", 1),
                ("M.dropout", 3),
                ("M.early", 4),
                ("M.b", 5),
                ("M.late", 6)
            ]
        );
    }

    #[test]
    fn a_trace_without_operations_keeps_its_order() {
        let mut trace = Trace {
            roots: vec![
                node("M", Attribution::Inferred, &[], Vec::new()),
                node("N", Attribution::Exact, &[], Vec::new()),
            ],
            ..Trace::default()
        };
        let before = trace.clone();
        arrange(&mut trace);
        assert_eq!(trace, before);
    }
}
