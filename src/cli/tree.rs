//! A trace as a tree of lines in the terminal: modules, shapes, numbers.

use std::fmt::Write;

use burnscope::{
    format::torch_repr::scientific,
    summary::{Number, Summary},
    trace::{Attribution, Node, TensorRecord, Trace, Value},
};
use wildmatch::WildMatch;

use super::output::{BAD, FAINT, STRONG, printable, styled};

/// What of a trace to show.
#[derive(clap::Args, Default)]
pub struct TreeArguments {
    /// Show no more than N levels of modules
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub depth: Option<u16>,
    /// Show only modules whose whole path matches, and the way to them; `*` stands for any characters;
    /// may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub filter: Vec<String>,
    /// Show what each module was given, too
    #[arg(long)]
    pub show_inputs: bool,
    /// Show how long each call took
    #[arg(long)]
    pub show_time: bool,
}

/// One line, in columns.
struct Line {
    /// Branches of the tree and the module's name.
    tree: String,
    /// Its visible width.
    width: usize,
    kind: String,
    tensor: String,
    numbers: String,
}

/// The whole tree, ready to print.
pub fn render(trace: &Trace, arguments: &TreeArguments) -> String {
    let filters: Vec<WildMatch> = arguments
        .filter
        .iter()
        .map(|pattern| WildMatch::new(pattern))
        .collect();
    let mut renderer = Renderer {
        arguments,
        filters: &filters,
        lines: Vec::new(),
    };
    for root in trace.roots.iter().filter(|root| shown(root, &filters)) {
        let path = printable(&root.path);
        let mut name = styled(STRONG, &path);
        let mut width = path.chars().count();
        if trace.roots.len() > 1 {
            let step = format!(" #{}", root.step);
            width += step.chars().count();
            name += &styled(FAINT, step);
        }
        let place = Place {
            branch: "",
            below: "",
            depth: 1,
        };
        renderer.node(root, &name, width, &place);
    }
    let lines = renderer.lines;
    let tree = lines.iter().map(|line| line.width).max().unwrap_or(0);
    let kind = lines
        .iter()
        .map(|line| line.kind.chars().count())
        .max()
        .unwrap_or(0);
    let tensor = lines
        .iter()
        .map(|line| line.tensor.chars().count())
        .max()
        .unwrap_or(0)
        .min(40);
    let mut text = String::new();
    for line in lines {
        let mut row = format!("{}{}", line.tree, " ".repeat(tree - line.width));
        // Writing to a string does not fail.
        let _ = write!(
            row,
            "  {}  {:tensor$}  {}",
            styled(FAINT, format!("{:kind$}", line.kind)),
            line.tensor,
            line.numbers
        );
        text += row.trim_end();
        text.push('\n');
    }
    text
}

fn shown(node: &Node, filters: &[WildMatch]) -> bool {
    filters.is_empty()
        || filters.iter().any(|filter| filter.matches(&node.path))
        || node.children.iter().any(|child| shown(child, filters))
}

/// The lines so far, and what to show.
struct Renderer<'a> {
    arguments: &'a TreeArguments,
    filters: &'a [WildMatch],
    lines: Vec<Line>,
}

/// Where in the tree a node's line stands.
struct Place<'a> {
    /// The branches that lead to its name.
    branch: &'a str,
    /// The branches that go on below it.
    below: &'a str,
    depth: usize,
}

impl Renderer<'_> {
    /// Adds the lines of a node, whose name is `width` characters wide, and of what is below it.
    fn node(&mut self, node: &Node, name: &str, width: usize, place: &Place<'_>) {
        let Place {
            branch,
            below,
            depth,
        } = *place;
        let (arguments, filters) = (self.arguments, self.filters);
        let mut marks = Vec::new();
        if node.call > 0 {
            // As in the names of tensor files.
            marks.push(format!("~call{}", node.call));
        }
        if node
            .method
            .as_deref()
            .is_some_and(|method| method != "forward")
        {
            marks.push(printable(node.method.as_deref().unwrap_or_default()));
        }
        if node.attribution == Attribution::Inferred {
            marks.push("inferred".to_owned());
        }
        if arguments.show_time
            && let Some(elapsed) = node.time.and_then(|time| time.elapsed_ns)
        {
            marks.push(format!("{:.2?}", std::time::Duration::from_nanos(elapsed)));
        }
        let mark = if marks.is_empty() {
            String::new()
        } else {
            format!(" ({})", marks.join(", "))
        };
        let width = branch.chars().count() + width + mark.chars().count();
        let tree = format!("{}{name}{}", styled(FAINT, branch), styled(FAINT, &mark));
        let children: Vec<&Node> = match arguments.depth {
            Some(limit) if depth >= usize::from(limit) => Vec::new(),
            _ => node
                .children
                .iter()
                .filter(|child| shown(child, filters))
                .collect(),
        };
        let mut tensors = Vec::new();
        if arguments.show_inputs
            && let Some(inputs) = &node.inputs
        {
            for (index, value) in inputs.args.iter().enumerate() {
                collect(&mut tensors, &format!("← {index}: "), value);
            }
            for (key, value) in &inputs.kwargs {
                collect(&mut tensors, &format!("← {}: ", printable(key)), value);
            }
        }
        match &node.outputs {
            Some(value) => collect(
                &mut tensors,
                if arguments.show_inputs { "→ " } else { "" },
                value,
            ),
            None if !node.complete => tensors.push((styled(BAD, "did not return"), None)),
            None => {}
        }
        let kind = printable(node.kind.as_deref().unwrap_or_default());
        let rest = if children.is_empty() {
            below.to_owned()
        } else {
            format!("{below}│")
        };
        let mut tensors = tensors.into_iter();
        let (tensor, numbers) = tensors
            .next()
            .map(|(label, tensor)| columns(label, tensor))
            .unwrap_or_default();
        self.lines.push(Line {
            tree,
            width,
            kind,
            tensor,
            numbers,
        });
        for (label, tensor) in tensors {
            let (tensor, numbers) = columns(label, tensor);
            self.lines.push(Line {
                tree: styled(FAINT, &rest),
                width: rest.chars().count(),
                kind: String::new(),
                tensor,
                numbers,
            });
        }
        let last = children.len().saturating_sub(1);
        for (index, child) in children.into_iter().enumerate() {
            let name = printable(child.name_below(node));
            let (branch, further) = if index == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let place = Place {
                branch: &format!("{below}{branch}"),
                below: &format!("{below}{further}"),
                depth: depth + 1,
            };
            self.node(child, &name, name.chars().count(), &place);
        }
    }
}

/// Every tensor of a value with its place in it.
fn collect<'t>(
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

fn columns(label: String, tensor: Option<&TensorRecord>) -> (String, String) {
    let Some(tensor) = tensor else {
        // A state stands where the numbers would, an argument where the tensor would.
        return match label.starts_with('←') {
            true => (label, String::new()),
            false => (String::new(), label),
        };
    };
    let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
    (
        format!("{label}{}[{}]", tensor.dtype, shape.join(", ")),
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
