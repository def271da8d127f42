//! A tensor as `print(tensor)` of PyTorch 2.9 and later shows it, in scientific notation.
//!
//! After `torch/_tensor_str.py` under `torch.set_printoptions(sci_mode=True, linewidth=120)`, with
//! `precision=4`, `edgeitems=3` and `threshold=1000`. It formats values and computes none.

use std::fmt::Write;

use crate::summary::edge::{EDGE, is_cut};
use crate::summary::{DType, EdgeItems, EdgeValues, TensorView};

/// Characters of a line.
const LINE_WIDTH: usize = 120;

/// What every text begins with, and so how far later lines are indented.
const PREFIX: &str = "tensor(";

/// The lines of `print(tensor)`.
///
/// `device` is what PyTorch prints of the tensor's device (`cuda:0`), absent for the CPU.
pub fn lines(view: &TensorView, device: Option<&str>) -> Vec<String> {
    edge_lines(&EdgeItems::gather(view), device)
}

/// The lines of `print(tensor)`, from the values of those elements that are shown.
pub fn edge_lines(items: &EdgeItems, device: Option<&str>) -> Vec<String> {
    let (text, is_empty) = (contents(items), items.values().is_empty());
    let mut suffixes: Vec<String> = device
        .map(|name| format!("device='{name}'"))
        .into_iter()
        .collect();
    if is_empty && items.shape().len() != 1 {
        suffixes.push(format!("size={}", tuple(items.shape())));
    }
    suffixes.extend(dtype_suffix(items.dtype(), is_empty));
    with_suffixes(text, &suffixes)
        .split('\n')
        .map(str::to_owned)
        .collect()
}

/// The repr of a tensor without dimensions, as of `tensor.mean()`.
pub fn scalar(value: f64, dtype: &DType, device: Option<&str>) -> String {
    let mut suffixes: Vec<String> = device
        .map(|name| format!("device='{name}'"))
        .into_iter()
        .collect();
    suffixes.extend(dtype_suffix(dtype, false));
    with_suffixes(FloatColumn::new([value]).format(value), &suffixes)
}

/// PyTorch names a type that it would not guess from the text.
fn dtype_suffix(dtype: &DType, is_empty: bool) -> Option<String> {
    let guessed = match dtype {
        DType::F32 => true,
        DType::I64 | DType::Bool => !is_empty,
        DType::Other(name) => name == "torch.complex64" && !is_empty,
        _ => false,
    };
    (!guessed).then(|| format!("dtype={}", dtype.torch_name()))
}

/// `_add_suffixes`: each suffix goes on the last line if there is room.
fn with_suffixes(contents: String, suffixes: &[String]) -> String {
    let mut text = format!("{PREFIX}{contents}");
    // PyTorch counts two characters more than there are, or one after a line break.
    let mut width = match text.rfind('\n') {
        Some(at) => text.len() - at + 1,
        None => text.len() + 2,
    };
    for suffix in suffixes {
        if width + suffix.len() + 2 > LINE_WIDTH {
            let _ = write!(text, ",\n{:indent$}{suffix}", "", indent = PREFIX.len());
            width = PREFIX.len() + suffix.len();
        } else {
            let _ = write!(text, ", {suffix}");
            width += suffix.len() + 2;
        }
    }
    text.push(')');
    text
}

/// A shape as Python prints a tuple.
fn tuple(shape: &[usize]) -> String {
    let items: Vec<String> = shape.iter().map(usize::to_string).collect();
    match &items[..] {
        [one] => format!("({one},)"),
        _ => format!("({})", items.join(", ")),
    }
}

/// Everything between `tensor(` and the suffixes.
fn contents(items: &EdgeItems) -> String {
    if items.values().is_empty() {
        return "[]".to_owned();
    }
    let (cells, width) = cells(items.values());
    match items.shape().split_last() {
        None => cells.concat(),
        Some((&length, outer)) => Brackets {
            shape: items.shape(),
            cells: &cells,
            width,
        }
        .write(outer, length),
    }
}

/// `_tensor_str_with_formatter`, without its recursion.
struct Brackets<'a> {
    shape: &'a [usize],
    /// The shown elements, each as its text.
    cells: &'a [String],
    /// Of the widest cell, as PyTorch reckons it.
    width: usize,
}

impl Brackets<'_> {
    fn write(&self, outer: &[usize], length: usize) -> String {
        let shown = |length: usize| {
            if is_cut(self.shape, length) {
                2 * EDGE
            } else {
                length
            }
        };
        let rank = self.shape.len();
        let mut text = "[".repeat(outer.len());
        let mut index = vec![0; outer.len()];
        for row in self.cells.chunks(shown(length)) {
            self.write_row(row, is_cut(self.shape, length), &mut text);
            for (depth, (position, &length)) in index.iter_mut().zip(outer).enumerate().rev() {
                *position += 1;
                if *position < shown(length) {
                    let separator = format!(
                        ",{}{}",
                        "\n".repeat(rank - depth - 1),
                        " ".repeat(PREFIX.len() + depth + 1)
                    );
                    text.push_str(&separator);
                    if is_cut(self.shape, length) && *position == EDGE {
                        text.push_str("...");
                        text.push_str(&separator);
                    }
                    text.push_str(&"[".repeat(outer.len() - depth - 1));
                    break;
                }
                *position = 0;
                text.push(']');
            }
        }
        text
    }

    /// `_vector_str`: the innermost dimension, on as many lines as it needs.
    fn write_row(&self, row: &[String], cut: bool, text: &mut String) {
        let indent = PREFIX.len() + self.shape.len() - 1;
        let per_line = (LINE_WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
        let mut cells: Vec<&str> = row.iter().map(String::as_str).collect();
        if cut {
            cells.insert(EDGE, " ...");
        }
        let lines: Vec<String> = cells.chunks(per_line).map(|line| line.join(", ")).collect();
        text.push('[');
        text.push_str(&lines.join(&format!(",\n{}", " ".repeat(indent + 1))));
        text.push(']');
    }
}

/// Each value's text, and the width that lines are filled by.
fn cells(values: &EdgeValues) -> (Vec<String>, usize) {
    match values {
        EdgeValues::Float(values) => {
            let column = FloatColumn::new(values.iter().copied());
            (
                values.iter().map(|&v| column.format(v)).collect(),
                column.width,
            )
        }
        EdgeValues::Int(values) => padded(values.iter().map(i128::to_string).collect()),
        EdgeValues::Bool(values) => {
            let name = |&value: &bool| if value { "True" } else { "False" }.to_owned();
            padded(values.iter().map(name).collect())
        }
        EdgeValues::Complex(values) => {
            let real = FloatColumn::new(values.iter().map(|v| v[0]));
            let imaginary = FloatColumn::new(values.iter().map(|v| v[1]));
            let cell = |&[re, im]: &[f64; 2]| {
                let im = imaginary.format(im);
                let im = im.trim_start();
                let plus = if im.starts_with(['+', '-']) { "" } else { "+" };
                format!("{}{plus}{im}j", real.format(re))
            };
            (
                values.iter().map(cell).collect(),
                real.width + imaginary.width + 1,
            )
        }
    }
}

fn padded(texts: Vec<String>) -> (Vec<String>, usize) {
    let width = texts.iter().map(String::len).max().unwrap_or(1);
    (
        texts.iter().map(|text| format!("{text:>width$}")).collect(),
        width,
    )
}

/// `_Formatter` for floats: how wide their column is, and whether it is in scientific notation.
struct FloatColumn {
    scientific: bool,
    width: usize,
}

impl FloatColumn {
    /// Only nonzero finite values count; without any, values print as integers do.
    fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let widths = values
            .into_iter()
            .filter(|value| value.is_finite() && *value != 0.0)
            .map(|value| scientific(value).len());
        let width = widths.max();
        Self {
            scientific: width.is_some(),
            width: width.unwrap_or(1),
        }
    }

    fn format(&self, value: f64) -> String {
        let text = match value {
            _ if value.is_nan() => "nan".to_owned(),
            f64::INFINITY => "inf".to_owned(),
            f64::NEG_INFINITY => "-inf".to_owned(),
            _ if self.scientific => scientific(value),
            _ => format!("{value:.0}."),
        };
        format!("{text:>width$}", width = self.width)
    }
}

/// A number as Python's `{:.4e}` writes it, with the exponent's sign and two digits of it at least:
/// `-1.1598e-01`.
pub fn scientific(value: f64) -> String {
    let text = format!("{value:.4e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}
