//! An operation of Burn's stream in words: its name, its tensors under their names, its other arguments.

use burn_ir::{IrVisitorMut, OperationIr, ScalarIr, TensorId, TensorIr};
use serde_json::Value;

/// An operation about to run, as its device was asked for it.
#[derive(Clone, Debug)]
pub(super) struct Description {
    /// Burn's name: `Matmul`.
    pub(super) name: String,
    pub(super) inputs: Vec<(String, TensorIr)>,
    pub(super) outputs: Vec<(String, TensorIr)>,
    pub(super) scalars: Vec<(String, String)>,
    /// Whether it only describes memory anew where the device can do so.
    pub(super) relabels: Relabels,
}

/// What an operation that shares its operand's memory does to the order of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relabels {
    /// It makes new elements.
    No,
    /// The same elements in the same order.
    InOrder,
    /// Fewer, repeated, or in another order.
    Otherwise,
}

/// Operations that may share their operand's memory (their kernels copy where it cannot be shared).
const RELABELLING: [(&str, Relabels); 7] = [
    ("Reshape", Relabels::InOrder),
    // A cast to the same element type.
    ("Cast", Relabels::InOrder),
    ("SwapDims", Relabels::Otherwise),
    ("Permute", Relabels::Otherwise),
    ("Expand", Relabels::Otherwise),
    ("Slice", Relabels::Otherwise),
    ("Unfold", Relabels::Otherwise),
];

impl Description {
    /// `None` for what is no operation on tensors: the end of a tensor.
    pub(super) fn of(operation: &OperationIr) -> Option<Self> {
        if matches!(operation, OperationIr::Drop(_)) {
            return None;
        }
        // Burn's own serialised form has the names of the arguments; it is the same for every one of
        // some two hundred operations, the ones of later versions included.
        let mut serialised = serde_json::to_value(operation).unwrap_or(Value::Null);
        restore(&mut serialised, &mut not_finite(operation).into_iter());
        let (name, arguments) = unwrap_variants(&serialised);
        let name = match operation {
            OperationIr::Custom(custom) => custom.id.clone(),
            _ => name.to_owned(),
        };
        let mut named = Named::default();
        named.collect("", arguments);
        let label = |position: usize, tensor: &TensorIr| {
            let id = tensor.id.value();
            let of_tensor = |(label, known): &&(String, u64)| *known == id && !label.is_empty();
            // One tensor may be several arguments: `x * x` has `lhs` and `rhs`.
            let labels: Vec<&str> = named
                .tensors
                .iter()
                .filter(of_tensor)
                .map(|(label, _)| label.as_str())
                .collect();
            labels
                .get(position)
                .or(labels.last())
                .map_or_else(|| "out".to_owned(), |label| (*label).to_owned())
        };
        let labelled = |tensors: Vec<&TensorIr>| -> Vec<(String, TensorIr)> {
            let mut before: Vec<TensorId> = Vec::new();
            tensors
                .into_iter()
                .map(|tensor| {
                    let position = before.iter().filter(|id| **id == tensor.id).count();
                    before.push(tensor.id);
                    (label(position, tensor), tensor.clone())
                })
                .collect()
        };
        let relabels = RELABELLING
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(Relabels::No, |(_, relabels)| *relabels);
        Some(Self {
            inputs: labelled(operation.inputs().collect()),
            outputs: labelled(operation.outputs().collect()),
            scalars: named.scalars,
            relabels,
            name,
        })
    }
}

/// The infinities and NaNs among an operation's scalars: JSON has `null` for all of them.
fn not_finite(operation: &OperationIr) -> Vec<f64> {
    #[derive(Default)]
    struct Scalars(Vec<f64>);
    impl IrVisitorMut for Scalars {
        fn visit_scalar_mut(&mut self, scalar: &mut ScalarIr) {
            if let ScalarIr::Float(value) = scalar
                && !value.is_finite()
            {
                self.0.push(*value);
            }
        }
    }
    let mut scalars = Scalars::default();
    // Burn has a visitor for writing alone; it goes in the order in which it serialises.
    operation.clone().visit_mut(&mut scalars);
    scalars.0
}

/// Writes the numbers that JSON has no word for in place of its `null`.
fn restore(value: &mut Value, lost: &mut impl Iterator<Item = f64>) {
    match value {
        Value::Object(entries) => {
            for (key, inner) in entries {
                if key == "Float" && inner.is_null() {
                    if let Some(number) = lost.next() {
                        *inner = Value::String(number.to_string());
                    }
                } else {
                    restore(inner, lost);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, lost)),
        _ => {}
    }
}

/// Goes through `{"NumericFloat": ["F32", {"Add": {..}}]}` to `Add` and its arguments.
fn unwrap_variants(mut value: &Value) -> (&str, &Value) {
    let mut name = "";
    loop {
        let inner = match value {
            Value::Array(items) => items.last(),
            Value::Object(entries) if entries.len() == 1 => {
                let entry = entries.iter().next();
                entry
                    .filter(|(key, _)| key.starts_with(|c: char| c.is_ascii_uppercase()))
                    .map(|(key, inner)| {
                        name = key;
                        inner
                    })
            }
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            None => return (name, value),
        }
    }
}

/// The longest text kept of an argument, in bytes.
const TEXT_LIMIT: usize = 256;

/// Arguments by their names.
#[derive(Default)]
struct Named {
    tensors: Vec<(String, u64)>,
    scalars: Vec<(String, String)>,
}

impl Named {
    fn collect(&mut self, label: &str, value: &Value) {
        match value {
            Value::Object(entries) => {
                if let Some(id) = tensor_id(value) {
                    self.tensors.push((label.to_owned(), id));
                } else if let Some(text) = plain(value) {
                    self.scalar(label, text);
                } else if label.is_empty() {
                    for (key, inner) in entries {
                        self.collect(key, inner);
                    }
                } else {
                    for (key, inner) in entries {
                        self.collect(&format!("{label}.{key}"), inner);
                    }
                }
            }
            Value::Array(items) if items.iter().any(|item| tensor_id(item).is_some()) => {
                for (index, item) in items.iter().enumerate() {
                    self.collect(&format!("{label}.{index}"), item);
                }
            }
            Value::Null => {}
            other => {
                let text = plain(other).unwrap_or_else(|| other.to_string());
                self.scalar(label, text);
            }
        }
    }

    fn scalar(&mut self, label: &str, mut text: String) {
        // Sizes are told by the tensors' shapes.
        if label.is_empty() || label == "accumulator_len" {
            return;
        }
        if text.len() > TEXT_LIMIT {
            text.truncate(text.floor_char_boundary(TEXT_LIMIT));
            text.push('…');
        }
        self.scalars.push((label.to_owned(), text));
    }
}

fn tensor_id(value: &Value) -> Option<u64> {
    let entries = value.as_object()?;
    entries.get("shape")?;
    entries.get("status")?;
    entries.get("id")?.get("value")?.as_u64()
}

/// A value as Burn's users write it: `0.5` of `{"Float": 0.5}`, `0:4` of a slice, `Normal(0.0, 1.0)` of
/// a variant. `None` of a struct.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("None".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(items) => Some(format!("[{}]", list(items)?)),
        Value::Object(entries) => {
            if let (3, Some(start), Some(end), Some(step)) = (
                entries.len(),
                entries.get("start").and_then(Value::as_i64),
                entries.get("end"),
                entries.get("step").and_then(Value::as_i64),
            ) {
                let end = end.as_i64().map_or(String::new(), |end| end.to_string());
                return Some(match step {
                    1 => format!("{start}:{end}"),
                    step => format!("{start}:{end}:{step}"),
                });
            }
            let (name, inner) = entries.iter().next().filter(|_| entries.len() == 1)?;
            match (name.as_str(), inner) {
                ("Float" | "Int" | "UInt" | "Bool", inner) => plain(inner),
                (name, Value::Array(items)) => Some(format!("{name}({})", list(items)?)),
                (name, inner) if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                    Some(format!("{name}({})", plain(inner)?))
                }
                _ => None,
            }
        }
    }
}

fn list(items: &[Value]) -> Option<String> {
    let items: Option<Vec<String>> = items.iter().map(plain).collect();
    Some(items?.join(", "))
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;
    use burn_ir::{
        BinaryOpIr, CatOpIr, ClampOpIr, NumericOperationIr, OperationIr, ScalarIr, ScalarOpIr,
        SwapDimsOpIr, TensorStatus,
    };

    use super::*;

    fn tensor(id: u64) -> TensorIr {
        TensorIr {
            id: TensorId::new(id),
            shape: vec![2, 3].into(),
            status: TensorStatus::ReadOnly,
            dtype: DType::F32,
        }
    }

    fn labels(tensors: &[(String, TensorIr)]) -> Vec<(&str, u64)> {
        tensors
            .iter()
            .map(|(label, tensor)| (label.as_str(), tensor.id.value()))
            .collect()
    }

    #[test]
    fn arguments_have_burns_names() {
        let add = OperationIr::NumericFloat(
            DType::F32,
            NumericOperationIr::Mul(BinaryOpIr {
                lhs: tensor(4),
                rhs: tensor(4),
                out: tensor(5),
            }),
        );
        let described = Description::of(&add).unwrap();
        assert_eq!(described.name, "Mul");
        assert_eq!(labels(&described.inputs), [("lhs", 4), ("rhs", 4)]);
        assert_eq!(labels(&described.outputs), [("out", 5)]);
        assert_eq!(described.scalars, []);
    }

    #[test]
    fn scalars_are_told_and_lists_numbered() {
        let scaled = OperationIr::NumericFloat(
            DType::F32,
            NumericOperationIr::AddScalar(ScalarOpIr {
                lhs: tensor(1),
                rhs: ScalarIr::Float(0.5),
                out: tensor(2),
            }),
        );
        let described = Description::of(&scaled).unwrap();
        assert_eq!(described.name, "AddScalar");
        assert_eq!(described.scalars, [("rhs".to_owned(), "0.5".to_owned())]);

        let clamped = OperationIr::NumericFloat(
            DType::F32,
            NumericOperationIr::Clamp(ClampOpIr {
                tensor: tensor(1),
                min: ScalarIr::Float(f64::NEG_INFINITY),
                max: ScalarIr::Float(f64::INFINITY),
                out: tensor(2),
            }),
        );
        let described = Description::of(&clamped).unwrap();
        let expected = [("min", "-inf"), ("max", "inf")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(described.scalars, expected);

        let joined = OperationIr::BaseFloat(burn_ir::BaseOperationIr::Cat(CatOpIr {
            tensors: vec![tensor(1), tensor(2)],
            dim: 1,
            out: tensor(3),
        }));
        let described = Description::of(&joined).unwrap();
        assert_eq!(described.name, "Cat");
        assert_eq!(
            labels(&described.inputs),
            [("tensors.0", 1), ("tensors.1", 2)]
        );
        assert_eq!(described.scalars, [("dim".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn arguments_read_as_they_are_written() {
        let text = |json| plain(&serde_json::from_str(json).unwrap());
        for (json, expected) in [
            (r#"{"Float": 0.5}"#, Some("0.5")),
            (
                r#"[{"start":0,"end":2,"step":1},{"start":1,"end":null,"step":2}]"#,
                Some("[0:2, 1::2]"),
            ),
            (r#"{"Normal": [0.0, 1.0]}"#, Some("Normal(0.0, 1.0)")),
            (r#"{"Constant": {"Float": 2.0}}"#, Some("Constant(2.0)")),
            (r#""Reflect""#, Some("Reflect")),
            (r#"{"stride": [1, 1], "groups": 2}"#, None),
        ] {
            assert_eq!(text(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn operations_that_relabel_memory_are_known() {
        let swapped = OperationIr::BaseFloat(burn_ir::BaseOperationIr::SwapDims(SwapDimsOpIr {
            input: tensor(1),
            out: tensor(2),
            dim1: 0,
            dim2: 1,
        }));
        let described = Description::of(&swapped).unwrap();
        assert_eq!(described.relabels, Relabels::Otherwise);
        assert!(Description::of(&OperationIr::Drop(tensor(1))).is_none());
    }
}
