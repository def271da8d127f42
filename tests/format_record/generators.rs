//! Traces of any kind, whether or not a run could make them.

use std::sync::Arc;

use burnscope::{
    summary::{DType, Number, Summary},
    trace::{
        Attribution, Inputs, Node, Op, Operand, Output, Printed, TensorRecord, TensorValue, Time,
        Trace, Value, arrange,
    },
};
use proptest::prelude::*;

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        any::<i32>().prop_map(f64::from),
        prop_oneof![
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(-0.0),
            Just(f64::from_bits(1)),
            Just(1e16),
            Just(9_007_199_254_740_993.0)
        ],
    ]
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        any::<i64>().prop_map(Number::Int),
        (i64::MAX as u64 + 1..).prop_map(Number::UInt),
        real().prop_map(Number::Float),
    ]
}

prop_compose! {
    fn summary()(
        counts in any::<[u64; 5]>(),
        reals in [real(), real(), real(), real()],
        elements in (proptest::option::of(number()), proptest::option::of(number())),
        some in any::<[bool; 3]>(),
        first_non_finite in proptest::option::of(any::<u64>()),
        checksum in any::<u64>(),
    ) -> Summary {
        Summary {
            count: counts[0],
            mean: some[0].then_some(reals[0]),
            std: some[1].then_some(reals[1]),
            min: elements.0,
            max: elements.1,
            nan: counts[1],
            pos_inf: counts[2],
            neg_inf: counts[3],
            zeros: counts[4],
            abs_max: some[2].then_some(reals[2]),
            l2: reals[3],
            first_non_finite,
            checksum,
        }
    }
}

fn dtype() -> impl Strategy<Value = DType> {
    prop_oneof![
        Just(DType::F32),
        Just(DType::BF16),
        Just(DType::Bool),
        Just(DType::U64),
        Just(DType::F8E4M3),
        "[a-z_0-9]{1,8}".prop_map(DType::Quantized),
        "torch\\.complex[a-z]{1,8}".prop_map(DType::Other),
    ]
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![".{0,12}", "[a-z.]{0,12}", "(tensor|map|kind|value)"]
}

prop_compose! {
    fn tensor()(
        shape in proptest::collection::vec(0usize..70_000, 0..3),
        dtype in dtype(),
        device in proptest::option::of(word()),
        id in proptest::option::of(0u64..5),
        summary in proptest::option::of(summary()),
        not_summarised in proptest::option::of(word()),
        printed in proptest::option::of([word(), word(), word(), word()]),
        value in proptest::option::of(prop_oneof![
            proptest::collection::vec(word(), 0..3).prop_map(TensorValue::Lines),
            word().prop_map(TensorValue::File),
        ]),
    ) -> TensorRecord {
        TensorRecord {
            shape, dtype, device, id, summary, not_summarised, value,
            printed: printed.map(|[mean, std, min, max]| Printed { mean, std, min, max }),
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        word().prop_map(Value::Text),
        tensor().prop_map(|tensor| Value::Tensor(Arc::new(tensor))),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            proptest::collection::vec((word(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

fn attribution() -> impl Strategy<Value = Attribution> {
    prop_oneof![Just(Attribution::Exact), Just(Attribution::Inferred)]
}

prop_compose! {
    fn operand()(
        label in word(),
        id in any::<u64>(),
        shape in proptest::collection::vec(0usize..70_000, 0..3),
        dtype in dtype(),
        parameter in proptest::option::of(word()),
    ) -> Operand {
        Operand { label, id, shape, dtype, parameter }
    }
}

prop_compose! {
    fn output()(
        label in word(),
        tensor in tensor(),
        alias_of in proptest::option::of(any::<u64>()),
    ) -> Output {
        Output { label, tensor: Arc::new(tensor), alias_of }
    }
}

prop_compose! {
    fn op()(
        names in (word(), word()),
        order in prop_oneof![0u64..20, any::<u64>()],
        inputs in proptest::collection::vec(operand(), 0..3),
        outputs in proptest::collection::vec(output(), 0..3),
        scalars in proptest::collection::vec((word(), word()), 0..3),
        stream in any::<u64>(),
        backward in any::<bool>(),
        attribution in attribution(),
    ) -> Op {
        let (name, device) = names;
        Op { name, order, inputs, outputs, scalars, stream, device, backward, attribution }
    }
}

/// Operations in program order.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 0..4).prop_map(|mut ops| {
        ops.sort_by_key(|op| op.order);
        ops
    })
}

prop_compose! {
    fn call()(
        words in (word(), proptest::option::of(word()), proptest::option::of(word())),
        numbers in any::<[u64; 3]>(),
        inputs in proptest::option::of((
            proptest::collection::vec(value(), 0..3),
            proptest::collection::vec((word(), value()), 0..3),
        )),
        outputs in proptest::option::of(value()),
        time in proptest::option::of((any::<u64>(), proptest::option::of(any::<u64>()))),
        ops in ops(),
        attribution in attribution(),
        complete in any::<bool>(),
        pruned in proptest::collection::vec(word(), 0..2),
    ) -> Node {
        Node {
            path: words.0,
            kind: words.1,
            method: words.2,
            step: numbers[0],
            call: numbers[1],
            order: numbers[2],
            inputs: inputs.map(|(args, kwargs)| Inputs { args, kwargs }),
            outputs,
            children: Vec::new(),
            ops,
            time: time.map(|(start_ns, elapsed_ns)| Time { start_ns, elapsed_ns }),
            attribution,
            complete,
            pruned,
        }
    }
}

fn calls() -> impl Strategy<Value = Node> {
    call().prop_recursive(4, 12, 3, |inner| {
        (call(), proptest::collection::vec(inner, 0..3))
            .prop_map(|(node, children)| Node { children, ..node })
    })
}

prop_compose! {
    pub fn traces()(
        name in word(),
        source in word(),
        roots in proptest::collection::vec(calls(), 0..3),
        ops in ops(),
        complete in any::<bool>(),
        notes in proptest::collection::vec(word(), 0..3),
    ) -> Trace {
        let mut trace = Trace { name, source, roots, ops, complete, notes };
        // A record has no place for calls in another order than that of their operations.
        arrange(&mut trace);
        trace
    }
}
