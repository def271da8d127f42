//! What each kind of line holds, apart from values: one struct a kind, written borrowed and read owned.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::number::{Element, Hex, Real};
use crate::{summary::Summary, trace::Printed};

/// A [`Summary`] in a tensor line.
#[derive(Serialize, Deserialize)]
pub(super) struct SummaryLine {
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mean: Option<Real>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    std: Option<Real>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<Element>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<Element>,
    #[serde(default)]
    nan: u64,
    #[serde(default)]
    pos_inf: u64,
    #[serde(default)]
    neg_inf: u64,
    #[serde(default)]
    zeros: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abs_max: Option<Real>,
    l2: Real,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_non_finite: Option<u64>,
    checksum: Hex,
}

impl From<&Summary> for SummaryLine {
    fn from(summary: &Summary) -> Self {
        Self {
            count: summary.count,
            mean: summary.mean.map(Real),
            std: summary.std.map(Real),
            min: summary.min.map(Element),
            max: summary.max.map(Element),
            nan: summary.nan,
            pos_inf: summary.pos_inf,
            neg_inf: summary.neg_inf,
            zeros: summary.zeros,
            abs_max: summary.abs_max.map(Real),
            l2: Real(summary.l2),
            first_non_finite: summary.first_non_finite,
            checksum: Hex(summary.checksum),
        }
    }
}

impl From<SummaryLine> for Summary {
    fn from(line: SummaryLine) -> Self {
        Self {
            count: line.count,
            mean: line.mean.map(|real| real.0),
            std: line.std.map(|real| real.0),
            min: line.min.map(|element| element.0),
            max: line.max.map(|element| element.0),
            nan: line.nan,
            pos_inf: line.pos_inf,
            neg_inf: line.neg_inf,
            zeros: line.zeros,
            abs_max: line.abs_max.map(|real| real.0),
            l2: line.l2.0,
            first_non_finite: line.first_non_finite,
            checksum: line.checksum.0,
        }
    }
}

/// A tensor line.
#[derive(Serialize, Deserialize)]
pub(super) struct TensorLine<'a> {
    /// The line's own number: 0, 1, 2 in the order of the record's tensor lines.
    pub(super) tensor: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u64>,
    pub(super) dtype: Cow<'a, str>,
    pub(super) shape: Cow<'a, [usize]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<SummaryLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_summarised: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) printed: Option<PrintedLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<Cow<'a, [String]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<Cow<'a, str>>,
}

/// What became known of a tensor after its line, with the keys of that line.
#[derive(Serialize, Deserialize)]
pub(super) struct LateLine<'a> {
    /// The number of the tensor line.
    pub(super) tensor: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<SummaryLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_summarised: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) printed: Option<PrintedLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<Cow<'a, [String]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<Cow<'a, str>>,
}

/// The four texts of torch in a tensor line.
#[derive(Serialize, Deserialize)]
pub(super) struct PrintedLine<'a> {
    mean: Cow<'a, str>,
    std: Cow<'a, str>,
    min: Cow<'a, str>,
    max: Cow<'a, str>,
}

impl<'a> From<&'a Printed> for PrintedLine<'a> {
    fn from(printed: &'a Printed) -> Self {
        Self {
            mean: Cow::Borrowed(&printed.mean),
            std: Cow::Borrowed(&printed.std),
            min: Cow::Borrowed(&printed.min),
            max: Cow::Borrowed(&printed.max),
        }
    }
}

impl From<PrintedLine<'_>> for Printed {
    fn from(line: PrintedLine<'_>) -> Self {
        Self {
            mean: line.mean.into_owned(),
            std: line.std.into_owned(),
            min: line.min.into_owned(),
            max: line.max.into_owned(),
        }
    }
}

/// A call begins; `I` is its inputs, borrowed when written and owned when read.
#[derive(Serialize, Deserialize)]
pub(super) struct EnterLine<'a, I> {
    /// The call's number in the record: 0, 1, 2 in the order of the enter lines.
    pub(super) node: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<u64>,
    pub(super) path: Cow<'a, str>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) module_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) step: u64,
    pub(super) call: u64,
    /// Left out where it equals `node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) inferred: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start_ns: Option<u64>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<I>,
}

/// A call returns; `V` is its outputs, borrowed when written and owned when read.
#[derive(Serialize, Deserialize)]
pub(super) struct ExitLine<'a, V> {
    pub(super) node: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) elapsed_ns: Option<u64>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<V>,
    #[serde(default, skip_serializing_if = "no_strings")]
    pub(super) pruned: Cow<'a, [String]>,
    /// False if the call was left by a panic.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub(super) complete: bool,
}

/// An operation; `S` is its scalars, borrowed when written and owned when read.
#[derive(Serialize, Deserialize)]
pub(super) struct OpLine<'a, S> {
    /// The operation's number in the record: 0, 1, 2 in the order of the op lines.
    pub(super) op: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<u64>,
    pub(super) name: Cow<'a, str>,
    /// Left out where it equals `op`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<u64>,
    pub(super) inputs: Vec<OperandLine<'a>>,
    pub(super) outputs: Vec<OutputLine<'a>>,
    pub(super) scalars: S,
    pub(super) stream: u64,
    pub(super) device: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) backward: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) inferred: bool,
}

/// A tensor that an operation reads.
#[derive(Serialize, Deserialize)]
pub(super) struct OperandLine<'a> {
    pub(super) label: Cow<'a, str>,
    pub(super) id: u64,
    pub(super) shape: Cow<'a, [usize]>,
    pub(super) dtype: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parameter: Option<Cow<'a, str>>,
}

/// A tensor that an operation makes.
#[derive(Serialize, Deserialize)]
pub(super) struct OutputLine<'a> {
    pub(super) label: Cow<'a, str>,
    /// The number of the tensor line.
    pub(super) tensor: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) alias_of: Option<u64>,
}

/// Which call the operations of earlier lines were made in.
#[derive(Serialize, Deserialize)]
pub(super) struct OpsLine {
    pub(super) node: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) inferred: bool,
    /// Ranges of the numbers of op lines: the first number and how many.
    pub(super) ops: Vec<[u64; 2]>,
}

/// Something a person should know.
#[derive(Serialize, Deserialize)]
pub(super) struct NoteLine<'a> {
    pub(super) text: Cow<'a, str>,
}

/// The session ended.
#[derive(Serialize, Deserialize)]
pub(super) struct FinishLine {
    pub(super) complete: bool,
}

/// `Option::default` without asking `T: Default` of the derive.
fn none<T>() -> Option<T> {
    None
}

fn no_strings(list: &[String]) -> bool {
    list.is_empty()
}

fn yes() -> bool {
    true
}

fn is_true(complete: &bool) -> bool {
    *complete
}
