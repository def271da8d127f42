//! What is remembered of a run: a tree of module calls with their tensors, whatever wrote or recorded it.
//!
//! It is plain data: it knows neither Burn nor any file format.

mod arrange;
mod non_finite;
mod op;
mod prune;
mod timeline;

pub use arrange::arrange;
pub use non_finite::{FirstNonFinite, NonFiniteKind, Step, WatchedTensor};
pub use op::{Op, Operand, Output};
pub use prune::prune;
pub use timeline::{Part, Timeline};

use std::sync::Arc;

use crate::summary::{DType, Summary};

/// One recorded run of a model, ours or PyTorch's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The model's class, which also names its files.
    pub name: String,
    /// What wrote the trace: `burnscope 0.1.0`, `transformers`.
    pub source: String,
    /// The root calls in time order: one for a forward pass, one a step for decoding.
    pub roots: Vec<Node>,
    /// The operations that belong to no root call, in program order.
    pub ops: Vec<Op>,
    /// False if the run ended by a panic or a crash, so that records may be missing.
    pub complete: bool,
    /// What was left out or not measured, in words for a person.
    pub notes: Vec<String>,
}

/// One call of one module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Dotted path from the root, which is the class name: `LlamaForCausalLM.model.norm`.
    pub path: String,
    /// The module's type where it is known: `Linear`.
    pub kind: Option<String>,
    /// The method that was called: `forward`.
    pub method: Option<String>,
    /// Which root call this belongs to, from 0.
    pub step: u64,
    /// Which call of this path within the root call, from 0.
    pub call: u64,
    /// Place in the order in which calls began, over the whole session, from 0.
    pub order: u64,
    /// What the call was given; `None` where the source did not say.
    pub inputs: Option<Inputs>,
    /// What the call returned; `None` where the source did not say or the call did not return.
    pub outputs: Option<Value>,
    /// The module calls made inside, in call order.
    pub children: Vec<Node>,
    /// The operations that the call itself made, outside `children`, in program order; empty where
    /// operations are not seen.
    pub ops: Vec<Op>,
    /// Nanoseconds from the session's start to the call, and the call's duration.
    pub time: Option<Time>,
    /// How the record came to be attributed to its module.
    pub attribution: Attribution,
    /// False if the call never returned.
    pub complete: bool,
    /// Layers that pruning removed after this node, as paths.
    pub pruned: Vec<String>,
}

/// When a call ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// Nanoseconds from the session's start to the call's.
    pub start_ns: u64,
    /// Nanoseconds that the call took, tracing included; `None` if it never returned.
    pub elapsed_ns: Option<u64>,
}

/// How sure it is that a record belongs to its module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribution {
    /// The call itself was seen.
    #[default]
    Exact,
    /// Concluded from parameters and data flow.
    Inferred,
}

/// A call's inputs, as Python tells them apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Named arguments in order.
    pub kwargs: Vec<(String, Value)>,
}

/// An argument or result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor; shared, since one module's output is the next one's input.
    Tensor(Arc<TensorRecord>),
    /// A tuple, list or array.
    List(Vec<Value>),
    /// A struct or dictionary, in order.
    Map(Vec<(String, Value)>),
    /// Anything else, as text.
    Text(String),
}

impl Trace {
    /// Every call, each before the calls that it made.
    pub fn calls(&self) -> Vec<&Node> {
        fn collect<'t>(node: &'t Node, calls: &mut Vec<&'t Node>) {
            calls.push(node);
            node.children.iter().for_each(|child| collect(child, calls));
        }
        let mut calls = Vec::new();
        self.roots.iter().for_each(|root| collect(root, &mut calls));
        calls
    }

    /// Every operation in program order, under whatever call it is recorded.
    pub fn operations(&self) -> Vec<&Op> {
        let of_calls = self.calls().into_iter().flat_map(|call| &call.ops);
        let mut operations: Vec<&Op> = self.ops.iter().chain(of_calls).collect();
        operations.sort_by_key(|op| op.order);
        operations
    }
}

impl Node {
    /// The module's name below the module of another call, `layers.0`; `self` for a method of the
    /// same module, the whole path for a module elsewhere.
    pub fn name_below(&self, parent: &Node) -> &str {
        match self.path.strip_prefix(&parent.path) {
            Some("") => "self",
            Some(rest) => rest.strip_prefix('.').unwrap_or(&self.path),
            None => &self.path,
        }
    }
}

impl Inputs {
    /// Positional and named arguments, in this order.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.args
            .iter()
            .chain(self.kwargs.iter().map(|(_, value)| value))
    }
}

impl Value {
    /// Every tensor in the value, in order.
    pub fn tensors(&self) -> Vec<&TensorRecord> {
        match self {
            Self::Tensor(tensor) => vec![tensor],
            Self::List(values) => values.iter().flat_map(Self::tensors).collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(_, value)| value.tensors())
                .collect(),
            Self::Text(_) => Vec::new(),
        }
    }
}

/// What is kept of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorRecord {
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
    /// Where it was: `cpu`, `cuda:0`; `None` where the source does not say.
    pub device: Option<String>,
    /// The session's number for this tensor: equal numbers mean the same tensor.
    pub id: Option<u64>,
    /// Its numbers at full precision.
    pub summary: Option<Summary>,
    /// Why there is no summary.
    pub not_summarised: Option<String>,
    /// Its statistics as PyTorch prints them.
    pub printed: Option<Printed>,
    /// The elements: printed or in a file.
    pub value: Option<TensorValue>,
}

/// PyTorch's text of a tensor's statistics, as `tensor(1.0000e+00)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// `repr(tensor.mean())`.
    pub mean: String,
    /// `repr(tensor.std())`.
    pub std: String,
    /// `repr(tensor.min())`.
    pub min: String,
    /// `repr(tensor.max())`.
    pub max: String,
}

/// Where a tensor's elements can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorValue {
    /// The lines of `print(tensor)`.
    Lines(Vec<String>),
    /// A safetensors file with the tensor under the key `data`: its name in the trace's folder.
    /// Untrusted where the trace was read: open it with [`DumpReader`](crate::format::dump::DumpReader).
    File(String),
}
