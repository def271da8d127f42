//! Leaving out the layers in the middle of a stack, as transformers' `do_prune_layers` does.

use super::{Node, Trace};

/// Keeps the first and the last of three or more sibling layers, everywhere in the trace.
///
/// A layer is a node whose path ends in `.<number>` and that has a child whose path contains
/// `.<number>.`. The kept node before each removed one lists it in [`Node::pruned`].
///
/// Rule: `prune_intermediate_layers` in transformers 5.24.0, `model_debugging_utils.py`.
pub fn prune(trace: &mut Trace) {
    trace.roots.iter_mut().for_each(prune_node);
}

fn prune_node(node: &mut Node) {
    let layers = node.children.iter().filter(|child| is_layer(child)).count();
    if layers > 2 {
        let mut seen = 0;
        let mut kept: Vec<Node> = Vec::with_capacity(node.children.len() + 2 - layers);
        for child in node.children.drain(..) {
            let layer = is_layer(&child);
            seen += usize::from(layer);
            if layer && seen > 1 && seen < layers {
                // The first layer is always kept, so there is a node before.
                if let Some(before) = kept.last_mut() {
                    before.pruned.push(child.path);
                }
            } else {
                kept.push(child);
            }
        }
        node.children = kept;
    }
    node.children.iter_mut().for_each(prune_node);
}

fn is_layer(node: &Node) -> bool {
    let Some((_, number)) = node.path.rsplit_once('.') else {
        return false;
    };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let inside = format!(".{number}.");
    node.children
        .iter()
        .any(|child| child.path.contains(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    fn node(path: &str, children: Vec<Node>) -> Node {
        Node {
            path: path.to_owned(),
            children,
            ..Node::default()
        }
    }

    fn layer(path: &str) -> Node {
        node(path, vec![node(&format!("{path}.norm"), Vec::new())])
    }

    fn paths(node: &Node) -> Vec<&str> {
        node.children
            .iter()
            .map(|child| child.path.as_str())
            .collect()
    }

    #[test]
    fn the_first_and_the_last_layer_stay_and_the_others_are_named() {
        let mut trace = Trace {
            roots: vec![node(
                "M",
                vec![
                    node("M.embed", Vec::new()),
                    layer("M.layers.0"),
                    layer("M.layers.1"),
                    node("M.between", Vec::new()),
                    layer("M.layers.2"),
                    layer("M.layers.3"),
                    node("M.norm", Vec::new()),
                ],
            )],
            ..Trace::default()
        };
        prune(&mut trace);
        let root = &trace.roots[0];
        assert_eq!(
            paths(root),
            ["M.embed", "M.layers.0", "M.between", "M.layers.3", "M.norm"]
        );
        assert_eq!(root.children[1].pruned, ["M.layers.1"]);
        assert_eq!(root.children[2].pruned, ["M.layers.2"]);
    }

    #[test]
    fn a_removed_layers_operations_go_with_it_and_no_others() {
        let ops = |order| {
            vec![Op {
                order,
                ..Op::default()
            }]
        };
        let mut layers: Vec<Node> = (0..3).map(|at| layer(&format!("M.layers.{at}"))).collect();
        for (order, layer) in (1..).zip(&mut layers) {
            layer.ops = ops(order);
        }
        let mut root = node("M", layers);
        root.ops = ops(0);
        let mut trace = Trace {
            roots: vec![root],
            ops: ops(9),
            ..Trace::default()
        };
        prune(&mut trace);
        let root = &trace.roots[0];
        assert_eq!((&trace.ops, &root.ops), (&ops(9), &ops(0)));
        assert_eq!(root.children[0].ops, ops(1));
        assert_eq!(root.children[1].ops, ops(3));
    }

    #[test]
    fn two_layers_and_numbered_leaves_stay() {
        let before = node(
            "M",
            vec![
                layer("M.layers.0"),
                layer("M.layers.1"),
                node("M.experts.0", Vec::new()),
                node("M.experts.1", Vec::new()),
                node("M.experts.2", Vec::new()),
            ],
        );
        let mut after = before.clone();
        prune_node(&mut after);
        assert_eq!(after, before);
    }
}
