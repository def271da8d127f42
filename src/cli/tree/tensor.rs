//! A tensor's columns in the tree: what it is, and its numbers.

use std::fmt::Write;

use burnscope::{
    format::torch_repr::scientific,
    summary::{Number, Summary},
    trace::{TensorRecord, Value},
};

use crate::cli::output::{BAD, FAINT, printable, styled};

/// Every tensor of a value with its place in it.
pub(super) fn collect<'t>(
    tensors: &mut Vec<(String, Option<&'t TensorRecord>)>,
    label: &str,
    value: &'t Value,
) {
    match value {
        Value::Tensor(tensor) => tensors.push((label.to_owned(), Some(tensor))),
        Value::List(values) => {
            for (index, value) in values.iter().enumerate() {
                collect(tensors, &format!("{label}{index}: "), value);
            }
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                collect(tensors, &format!("{label}{}: ", printable(key)), value);
            }
        }
        // An argument that is no tensor may be what is wrong: a scale, a missing mask.
        Value::Text(text) if label.starts_with('←') => {
            tensors.push((format!("{label}{}", printable(text)), None));
        }
        Value::Text(_) => {}
    }
}

/// The columns of the tensor and of its numbers; `numbered` puts the session's number of the tensor
/// before it.
pub(super) fn columns(
    label: &str,
    tensor: Option<&TensorRecord>,
    numbered: bool,
) -> (String, String) {
    let Some(tensor) = tensor else {
        // A state stands where the numbers would, an argument where the tensor would.
        return match label.starts_with('←') {
            true => (label.to_owned(), String::new()),
            false => (String::new(), label.to_owned()),
        };
    };
    let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
    let id = match tensor.id {
        Some(id) if numbered => format!("%{id} "),
        _ => String::new(),
    };
    let dtype = printable(&tensor.dtype.to_string());
    (
        format!("{label}{id}{dtype}[{}]", shape.join(", ")),
        numbers(tensor),
    )
}

/// The statistics of a tensor: as PyTorch prints them where they are known in that form, so that two
/// traces side by side agree to the letter, at full precision otherwise.
fn numbers(tensor: &TensorRecord) -> String {
    let flags = tensor.summary.as_ref().map(non_finite).unwrap_or_default();
    if let Some(printed) = &tensor.printed {
        let bare = |text: &str| {
            let inner = text
                .strip_prefix("tensor(")
                .and_then(|text| text.strip_suffix(')'))
                .unwrap_or(text);
            printable(inner.split(',').next().unwrap_or(inner))
        };
        return format!(
            "mean {:>11}  std {:>10}  min {:>11}  max {:>11}{flags}",
            bare(&printed.mean),
            bare(&printed.std),
            bare(&printed.min),
            bare(&printed.max)
        );
    }
    match (&tensor.summary, &tensor.not_summarised) {
        (Some(summary), _) => summary_numbers(summary) + &flags,
        (None, Some(reason)) => styled(FAINT, format!("not summarised: {}", printable(reason))),
        (None, None) => String::new(),
    }
}

/// How many elements are NaN or infinite, and where the first one is; nothing where there are none.
fn non_finite(summary: &Summary) -> String {
    let mut text = String::new();
    for (count, what) in [
        (summary.nan, "NaN"),
        (summary.pos_inf, "+Inf"),
        (summary.neg_inf, "-Inf"),
    ] {
        if count > 0 {
            // Writing to a string does not fail.
            let _ = write!(text, "  {}", styled(BAD, format!("{count} {what}")));
        }
    }
    if let Some(first) = summary.first_non_finite {
        let _ = write!(text, " {}", styled(BAD, format!("first at {first}")));
    }
    text
}

fn summary_numbers(summary: &Summary) -> String {
    let (Some(mean), Some(min), Some(max)) = (summary.mean, summary.min, summary.max) else {
        return styled(FAINT, "empty");
    };
    let mut text = format!("mean {:>11}", scientific(mean));
    if let Some(std) = summary.std {
        let _ = write!(text, "  std {:>10}", scientific(std));
    }
    let _ = write!(text, "  min {:>11}  max {:>11}", number(min), number(max));
    text
}

fn number(number: Number) -> String {
    match number {
        Number::Int(value) => value.to_string(),
        Number::UInt(value) => value.to_string(),
        Number::Float(value) => scientific(value),
    }
}
