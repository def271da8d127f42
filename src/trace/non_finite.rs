//! The first step of a run that made a NaN or an infinity: what it was, what it read and what it made.
//!
//! It looks for nothing itself.

use std::fmt;

use crate::summary::{DType, Number, Summary};

/// The first operation or module call that made a NaN or an infinity out of tensors without one.
///
/// [`Display`](fmt::Display) tells it in words.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FirstNonFinite {
    /// Whether it is an operation or a module call: operations are seen on CubeCL devices alone.
    pub step: Step,
    /// What it made.
    pub made: NonFiniteKind,
    /// Burn's name of the operation (`Log`), or the method that was called (`forward`).
    pub name: String,
    /// The operation's or the call's `order` in the trace.
    pub number: u64,
    /// The path of the call that the operation belongs to, or of the call itself; `None` where it
    /// belongs to none.
    pub path: Option<String>,
    /// Whether the operation is part of a backward pass.
    pub backward: bool,
    /// The operation's other arguments.
    pub scalars: Vec<(String, String)>,
    /// What it read.
    pub inputs: Vec<WatchedTensor>,
    /// What it made.
    pub outputs: Vec<WatchedTensor>,
    /// How many operations or calls before it could not be judged, because some tensor's numbers are
    /// not known. One of these may have been the first.
    pub not_judged: u64,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A single operation of a CubeCL device.
    Operation,
    /// A whole module call.
    Call,
}

/// What came out where it had not gone in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonFiniteKind {
    /// A NaN, out of tensors and scalars without a NaN: they may have had infinities, as an attention
    /// mask has.
    Nan,
    /// An infinity, out of finite tensors and scalars.
    Infinity,
}

impl fmt::Display for NonFiniteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nan => "NaN",
            Self::Infinity => "infinity",
        })
    }
}

/// A tensor that a step read or made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WatchedTensor {
    /// Its name among the arguments or results: `lhs`, `out`.
    pub label: String,
    /// The session's number of it.
    pub id: Option<u64>,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
    /// The full path of the parameter that it is.
    pub parameter: Option<String>,
    /// Its numbers.
    pub summary: Option<Summary>,
    /// Whether `summary` is that of the tensor that this one is a part or another arrangement of.
    pub of_whole: bool,
}

impl fmt::Display for FirstNonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, verb) = match self.step {
            Step::Operation => ("operation", "operations"),
            Step::Call => ("call", "calls"),
        };
        write!(
            f,
            "the first {} is made by {what} {}",
            self.made, self.number
        )?;
        match (self.step, &self.path) {
            (Step::Operation, Some(path)) => write!(f, ", {} in {path}", self.name)?,
            (Step::Operation, None) => write!(f, ", {} outside any module call", self.name)?,
            (Step::Call, path) => {
                write!(f, ", {}.{}", path.as_deref().unwrap_or_default(), self.name)?
            }
        }
        if self.backward {
            f.write_str(", in the backward pass")?;
        }
        tensors(f, "reads", &self.inputs)?;
        for (index, (name, value)) in self.scalars.iter().enumerate() {
            let before = if index == 0 { "; with " } else { ", " };
            write!(f, "{before}{name} = {value}")?;
        }
        tensors(f, "makes", &self.outputs)?;
        if self.step == Step::Call {
            f.write_str(
                ". Operations are not seen on this device: the cause is in this call, outside the \
                 calls within it, or in its parameters",
            )?;
        }
        if self.not_judged > 0 {
            write!(
                f,
                ". {} {verb} before it could not be judged: numbers of their tensors are missing",
                self.not_judged
            )?;
        }
        Ok(())
    }
}

fn tensors(f: &mut fmt::Formatter<'_>, verb: &str, tensors: &[WatchedTensor]) -> fmt::Result {
    for (index, tensor) in tensors.iter().enumerate() {
        let before = if index == 0 {
            format!("; it {verb} ")
        } else {
            " and ".to_owned()
        };
        write!(
            f,
            "{before}{}{} {:?} {}",
            tensor.label,
            tensor
                .parameter
                .as_ref()
                .map(|path| format!(" ({path})"))
                .unwrap_or_default(),
            tensor.shape,
            tensor.dtype,
        )?;
        if let Some(summary) = &tensor.summary {
            let of_whole = if tensor.of_whole {
                "part of a tensor: "
            } else {
                ""
            };
            write!(f, " ({of_whole}{})", Words(summary))?;
        }
    }
    Ok(())
}

/// A summary in a few words.
struct Words<'s>(&'s Summary);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.0;
        let counts = [
            (summary.nan, "NaN"),
            (summary.pos_inf, "+Inf"),
            (summary.neg_inf, "-Inf"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if counts.is_empty() {
            f.write_str("all finite")?;
        } else {
            write!(f, "{} of {}", counts.join(", "), summary.count)?;
            if let Some(first) = summary.first_non_finite {
                write!(f, ", the first at {first}")?;
            }
        }
        if let (Some(min), Some(max)) = (number(summary.min), number(summary.max))
            && summary.nan == 0
        {
            write!(f, ", {min} to {max}")?;
        }
        Ok(())
    }
}

fn number(number: Option<Number>) -> Option<String> {
    Some(match number? {
        Number::Int(value) => value.to_string(),
        Number::UInt(value) => value.to_string(),
        Number::Float(value) => format!("{value:e}"),
    })
}
