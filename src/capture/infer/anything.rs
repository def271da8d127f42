//! Whatever the operations are, each is in one place afterwards.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    made_up::tree,
    tests::{every, record},
    *,
};
use crate::{
    summary::DType,
    trace::{Operand, Output},
};

const NAMES: &[&str] = &[
    "Add",
    "AddScalar",
    "Cast",
    "Cos",
    "Div",
    "Exp",
    "Init",
    "Log",
    "Matmul",
    "MeanDim",
    "Mul",
    "MulScalar",
    "Recip",
    "Reshape",
    "Select",
    "Sin",
    "Slice",
    "Sqrt",
    "Sub",
    "SwapDims",
    "Tanh",
];
const PARAMETERS: &[&str] = &[
    "Net.emb.weight",
    "Net.blocks.0.fc.weight",
    "Net.blocks.0.fc.bias",
    "Net.blocks.0.norm.gamma",
    "Net.blocks.1.fc.weight",
    "Net.token",
    "Elsewhere.weight",
];
const NET: &[(&str, &str)] = &[
    ("emb", "Struct:Net"),
    ("emb.weight!", "Struct:Embedding"),
    ("blocks", "Struct:Net"),
    ("blocks.0", "Vec"),
    ("blocks.0.fc", "Struct:Block"),
    ("blocks.0.fc.weight!", "Struct:Linear"),
    ("blocks.0.fc.bias!", "Struct:Linear"),
    ("blocks.0.norm", "Struct:Block"),
    ("blocks.0.norm.gamma!", "Struct:Other"),
    ("blocks.0.act", "Struct:Block"),
    ("blocks.1", "Vec"),
    ("blocks.1.fc", "Struct:Block"),
    ("blocks.1.fc.weight! = blocks.0.fc.weight", "Struct:Linear"),
    ("token!", "Struct:Net"),
];

prop_compose! {
    /// Any operation: its operands may be any tensor, made before, later or never.
    fn any_op()(
        name in 0..NAMES.len(),
        operands in prop::collection::vec((0_u64..40, prop::option::weighted(0.3, 0..PARAMETERS.len())), 0..4),
        outputs in prop::collection::vec(0_u64..40, 0..3),
        rank in 0_usize..4,
        backward in prop::bool::weighted(0.1),
    ) -> Op {
        let parameter_id = |parameter: usize| 100 + parameter as u64;
        Op {
            name: NAMES[name].to_owned(),
            inputs: operands
                .into_iter()
                .map(|(id, parameter)| Operand {
                    label: String::new(),
                    id: parameter.map_or(id, parameter_id),
                    shape: vec![2; rank],
                    dtype: DType::F32,
                    parameter: parameter.map(|parameter| PARAMETERS[parameter].to_owned()),
                })
                .collect(),
            outputs: outputs
                .into_iter()
                .map(|id| Output {
                    label: String::new(),
                    tensor: record(id, vec![2; rank], DType::F32),
                    alias_of: None,
                })
                .collect(),
            backward,
            ..Op::default()
        }
    }
}

fn check_conserved(within: Option<&str>, mut ops: Vec<Op>) -> Result<(), TestCaseError> {
    let net = tree("Net", NET, "Net { blocks: [Block { act: Tanh }] }");
    for (at, op) in ops.iter_mut().enumerate() {
        op.order = at as u64;
    }
    let found = infer(&net, within, ops.clone());
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    for node in every(&found.calls) {
        for op in &node.ops {
            prop_assert!(!op.backward);
            prop_assert_eq!(op.attribution, Attribution::Inferred);
            let original = Op {
                attribution: Attribution::Exact,
                ..op.clone()
            };
            prop_assert_eq!(&original, &ops[usize::try_from(op.order).unwrap()]);
        }
        prop_assert!(node.ops.is_sorted_by_key(|op| op.order));
    }
    let placed = every(&found.calls).into_iter().flat_map(|node| &node.ops);
    for op in placed.chain(&found.rest) {
        *seen.entry(op.order).or_default() += 1;
    }
    prop_assert_eq!(seen.len(), ops.len());
    prop_assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    Ok(())
}

proptest! {
    #[test]
    fn no_operation_is_lost_or_doubled(
        ops in prop::collection::vec(any_op(), 0..60),
        within in prop::option::of(prop::sample::select(vec!["Net", "Net.blocks.0", "Net.emb", "None"])),
    ) {
        check_conserved(within, ops)?;
    }
}
