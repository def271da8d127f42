//! One operation on tensors, as a device was asked for it.

use std::sync::Arc;

use super::{Attribution, TensorRecord};
use crate::summary::DType;

/// One operation: what it was given, what it made, and where it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Op {
    /// Burn's name for it: `Matmul`, `AddScalar`, `Conv2d`.
    pub name: String,
    /// Place in program order over the whole session, from 0. The operations of one thread keep the
    /// thread's order; those of several threads are in the order in which a device took them.
    pub order: u64,
    /// The tensors it reads.
    pub inputs: Vec<Operand>,
    /// The tensors it makes.
    pub outputs: Vec<Output>,
    /// Its other arguments under Burn's names: `dim`, `rhs` of an `AddScalar`, `options`.
    pub scalars: Vec<(String, String)>,
    /// The thread that asked for it, as a small number from 0.
    pub stream: u64,
    /// Where it ran: `cuda:0`.
    pub device: String,
    /// Whether it is part of a backward pass.
    pub backward: bool,
    /// How it came to be attributed to the call that it is recorded under.
    pub attribution: Attribution,
}

/// A tensor that an operation reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Its name among the operation's arguments: `lhs`, `weight`.
    pub label: String,
    /// The session's number of the tensor: that of the [`Output`] that it was, if one was recorded.
    pub id: u64,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
    /// The full path of the parameter that it is or is another form of: reshaped, transposed, cast.
    pub parameter: Option<String>,
}

/// A tensor that an operation makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name among the operation's results: `out`, `out_indices`.
    pub label: String,
    /// Shape, element type, number and summary.
    pub tensor: Arc<TensorRecord>,
    /// The number of the operand whose memory it shares, where the operation only describes that
    /// memory anew. It then has no summary of its own, unless its elements are the operand's in the
    /// same order.
    pub alias_of: Option<u64>,
}
