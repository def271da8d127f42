//! Operations and calls in one order, that of the program, although a trace keeps them apart.

use std::collections::HashMap;

use super::{Node, Op, Trace};

/// Where the calls of a trace lie among its operations.
pub struct Timeline<'t> {
    trace: &'t Trace,
    /// The number of the first operation of each call that made any, itself or in the calls inside it;
    /// by the node's address, which the borrowed trace holds in place.
    first_ops: HashMap<*const Node, u64>,
}

/// What a call did next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'t> {
    /// It made an operation itself.
    Op(&'t Op),
    /// It called a module.
    Call(&'t Node),
}

impl<'t> Timeline<'t> {
    /// Looks at every call of the trace once.
    pub fn new(trace: &'t Trace) -> Self {
        let mut first_ops = HashMap::new();
        for root in &trace.roots {
            first_op(root, &mut first_ops);
        }
        Self { trace, first_ops }
    }

    /// The root calls and the operations that belong to none, in program order as in
    /// [`parts`](Self::parts).
    pub fn roots(&self) -> Vec<Part<'t>> {
        self.merge(&self.trace.ops, &self.trace.roots)
    }

    /// What the call did, in program order: [`Node::ops`] and [`Node::children`].
    ///
    /// A child stands after the operations that come before its own first one. One that made no
    /// operation leaves no sign of its place and follows the child before it.
    pub fn parts(&self, node: &'t Node) -> Vec<Part<'t>> {
        self.merge(&node.ops, &node.children)
    }

    fn merge(&self, ops: &'t [Op], calls: &'t [Node]) -> Vec<Part<'t>> {
        let mut parts = Vec::with_capacity(ops.len() + calls.len());
        let mut ops = ops.iter().peekable();
        for call in calls {
            if let Some(&first) = self.first_ops.get(&std::ptr::from_ref(call)) {
                while let Some(op) = ops.next_if(|op| op.order < first) {
                    parts.push(Part::Op(op));
                }
            }
            parts.push(Part::Call(call));
        }
        parts.extend(ops.map(Part::Op));
        parts
    }
}

fn first_op(node: &Node, first_ops: &mut HashMap<*const Node, u64>) -> Option<u64> {
    let mut first = node.ops.first().map(|op| op.order);
    for child in &node.children {
        let inside = first_op(child, first_ops);
        first = [first, inside].into_iter().flatten().min();
    }
    if let Some(first) = first {
        first_ops.insert(std::ptr::from_ref(node), first);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(orders: &[u64]) -> Vec<Op> {
        let op = |&order| Op {
            order,
            ..Op::default()
        };
        orders.iter().map(op).collect()
    }

    fn call(path: &str, orders: &[u64], children: Vec<Node>) -> Node {
        Node {
            path: path.to_owned(),
            ops: ops(orders),
            children,
            ..Node::default()
        }
    }

    fn text(parts: &[Part<'_>]) -> String {
        let part = |part: &Part<'_>| match part {
            Part::Op(op) => op.order.to_string(),
            Part::Call(node) => node.path.clone(),
        };
        parts.iter().map(part).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_stands_where_its_first_operation_does_however_deep_that_is() {
        let trace = Trace {
            roots: vec![
                call(
                    "a",
                    &[1, 4, 9],
                    vec![
                        call(
                            "b",
                            &[],
                            vec![call("c", &[2], vec![]), call("d", &[3], vec![])],
                        ),
                        call("silent", &[], vec![]),
                        call("e", &[6], vec![call("f", &[5], vec![])]),
                        // Two threads: the caller went on meanwhile.
                        call("g", &[7, 10], vec![]),
                    ],
                ),
                call("h", &[12], vec![]),
            ],
            ops: ops(&[0, 11, 13]),
            ..Trace::default()
        };
        let timeline = Timeline::new(&trace);
        assert_eq!(text(&timeline.roots()), "0 a 11 h 13");
        let root = &trace.roots[0];
        assert_eq!(text(&timeline.parts(root)), "1 b silent 4 e g 9");
        assert_eq!(text(&timeline.parts(&root.children[0])), "c d");
        assert_eq!(text(&timeline.parts(&root.children[2])), "f 6");
    }
}
