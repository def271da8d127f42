//! A trace as a tree of lines in the terminal: modules, shapes, numbers.

mod op;
mod tensor;

use std::fmt::Write;

use burnscope::trace::{Attribution, Node, Part, Timeline, Trace};
use wildmatch::WildMatch;

use self::tensor::{collect, columns};
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
    /// List every operation under the call that made it, in program order
    ///
    /// Calls made meanwhile stand between the operations. A line has the operation's number in program
    /// order and its name; what it was given; what it made. `%7` is a tensor: the same number is the
    /// same tensor, on the modules' lines, too, so that a value can be followed from the operation
    /// that made it to those that read it. A parameter has its path after the number. `alias of %7`
    /// has the memory of %7, only described anew. `backward` is a backward pass, `inferred` belongs to
    /// its module by conclusion. Only the record of a run on a GPU device has operations.
    #[arg(long)]
    pub ops: bool,
    /// Show how long each call took
    #[arg(long)]
    pub show_time: bool,
}

/// One line, in columns.
#[derive(Default)]
struct Line {
    /// Branches of the tree and the module's name.
    tree: String,
    /// Its visible width.
    width: usize,
    /// The module's type, or what an operation was given.
    kind: String,
    is_op: bool,
    tensor: String,
    numbers: String,
}

impl Line {
    /// What the column must hold: an operation may have many operands, and then its own line alone
    /// is out of step.
    fn kind_width(&self) -> usize {
        let width = self.kind.chars().count();
        if self.is_op { width.min(40) } else { width }
    }
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
        timeline: arguments.ops.then(|| Timeline::new(trace)),
        lines: Vec::new(),
    };
    let place = Place {
        branch: "",
        below: "",
        depth: 1,
    };
    let parts = match &renderer.timeline {
        Some(timeline) => timeline.roots(),
        None => trace.roots.iter().map(Part::Call).collect(),
    };
    for part in parts {
        match part {
            Part::Op(op) if filters.is_empty() => renderer.op(op, None, &place),
            Part::Call(root) if shown(root, &filters) => {
                let path = printable(&root.path);
                let mut name = styled(STRONG, &path);
                let mut width = path.chars().count();
                if trace.roots.len() > 1 {
                    let step = format!(" #{}", root.step);
                    width += step.chars().count();
                    name += &styled(FAINT, step);
                }
                renderer.node(root, &name, width, &place);
            }
            Part::Op(_) | Part::Call(_) => {}
        }
    }
    let lines = renderer.lines;
    let tree = lines.iter().map(|line| line.width).max().unwrap_or(0);
    let kind = lines.iter().map(Line::kind_width).max().unwrap_or(0);
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

/// Whether there is an operation to list.
pub fn has_ops(trace: &Trace) -> bool {
    fn made_any(node: &Node) -> bool {
        !node.ops.is_empty() || node.children.iter().any(made_any)
    }
    !trace.ops.is_empty() || trace.roots.iter().any(made_any)
}

/// Whether the filters want the node itself, and not only something inside it.
fn wanted(node: &Node, filters: &[WildMatch]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| filter.matches(&node.path))
}

fn shown(node: &Node, filters: &[WildMatch]) -> bool {
    wanted(node, filters) || node.children.iter().any(|child| shown(child, filters))
}

/// The lines so far, and what to show.
struct Renderer<'a> {
    arguments: &'a TreeArguments,
    filters: &'a [WildMatch],
    /// Where operations are listed.
    timeline: Option<Timeline<'a>>,
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

impl<'a> Renderer<'a> {
    /// Adds the lines of a node, whose name is `width` characters wide, and of what is below it.
    fn node(&mut self, node: &'a Node, name: &str, width: usize, place: &Place<'_>) {
        let Place {
            branch,
            below,
            depth,
        } = *place;
        let arguments = self.arguments;
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
        let mark = mark(&marks);
        let width = branch.chars().count() + width + mark.chars().count();
        let tree = format!("{}{name}{}", styled(FAINT, branch), styled(FAINT, &mark));
        let parts = self.parts(node, depth);
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
        let rest = if parts.is_empty() {
            below.to_owned()
        } else {
            format!("{below}│")
        };
        let line = Line {
            tree,
            width,
            kind,
            ..Line::default()
        };
        let tensors = tensors
            .iter()
            .map(|(label, tensor)| columns(label, *tensor, arguments.ops));
        self.lines(line, &rest, tensors);
        let last = parts.len().saturating_sub(1);
        for (index, part) in parts.into_iter().enumerate() {
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
            match part {
                Part::Op(op) => self.op(op, Some(node), &place),
                Part::Call(child) => {
                    let name = printable(child.name_below(node));
                    self.node(child, &name, name.chars().count(), &place);
                }
            }
        }
    }

    /// What of the inside of a call at this depth is shown, in order.
    fn parts(&self, node: &'a Node, depth: usize) -> Vec<Part<'a>> {
        let limit = self.arguments.depth.map(usize::from);
        let inside = limit.is_none_or(|limit| depth < limit);
        let mut parts = match &self.timeline {
            Some(timeline) => timeline.parts(node),
            None => node.children.iter().map(Part::Call).collect(),
        };
        parts.retain(|part| match part {
            Part::Op(_) => wanted(node, self.filters),
            Part::Call(child) => inside && shown(child, self.filters),
        });
        parts
    }

    /// Adds a line with the columns of the first tensor, and below it one for each of the others,
    /// which go on with these branches.
    fn lines(
        &mut self,
        first: Line,
        branches: &str,
        tensors: impl IntoIterator<Item = (String, String)>,
    ) {
        let mut tensors = tensors.into_iter();
        let (tensor, numbers) = tensors.next().unwrap_or_default();
        self.lines.push(Line {
            tensor,
            numbers,
            ..first
        });
        self.lines.extend(tensors.map(|(tensor, numbers)| Line {
            tree: styled(FAINT, branches),
            width: branches.chars().count(),
            tensor,
            numbers,
            ..Line::default()
        }));
    }
}

/// What is to be said of a call or an operation behind its name.
fn mark(marks: &[String]) -> String {
    match marks {
        [] => String::new(),
        marks => format!(" ({})", marks.join(", ")),
    }
}
