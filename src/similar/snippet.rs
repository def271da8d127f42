//! The source text of one definition, and two of them compared line by line after renaming.
//!
//! Comments, docstrings and empty lines do not count, and neither do the model's names.

use ruff_python_ast::token::{Token, TokenKind};
use ruff_python_ast::{ModModule, Stmt};
use ruff_python_parser::Parsed;
use ruff_text_size::{Ranged, TextRange};
use rustc_hash::FxHashMap;
use text_diff::{ChangeTag, TextDiff};

use super::naming::{CLASS_WORD, ModelNames};
use super::source::parse;

/// The most lines on either side for which a difference is looked for.
const MAX_LINES: usize = 5_000;

/// A definition's text, parsed by itself if it can be.
pub(crate) struct Snippet {
    text: String,
    parsed: Option<Parsed<ModModule>>,
}

/// One part of a class: a method, an assignment or another statement of its body.
pub(crate) struct Part {
    /// What identifies it in the class: the method's name, the assignment's target, the text.
    pub(crate) key: String,
    /// Whether it is a method.
    pub(crate) is_method: bool,
    /// The name, for a method or a plain assignment.
    pub(crate) name: Option<String>,
    /// Its text as it stands in the file, from the first column of its first line on.
    pub(crate) text: String,
    /// Its lines without comments and docstrings.
    pub(crate) lines: Vec<String>,
}

impl Snippet {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            parsed: parse(text).ok(),
        }
    }

    /// The lines that count, without comments and docstrings.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines_of(TextRange::up_to(text_size(&self.text)))
    }

    /// The text up to the colon of the class statement, without the bases: its decorators.
    pub(crate) fn decorators(&self) -> &str {
        let class = self.class().and_then(|class| class.decorator_list.last());
        class.map_or("", |last| {
            self.text.get(..last.end().to_usize()).unwrap_or_default()
        })
    }

    fn class(&self) -> Option<&ruff_python_ast::StmtClassDef> {
        match self.parsed.as_ref()?.syntax().body.first()? {
            Stmt::ClassDef(class) => Some(class),
            _ => None,
        }
    }

    /// The parts of the class's body; `None` if this is no class.
    pub(crate) fn parts(&self) -> Option<Vec<Part>> {
        let class = self.class()?;
        let parts = class.body.iter().filter_map(|statement| {
            let range = statement.range();
            let lines = self.lines_of(range);
            if lines.is_empty() {
                return None;
            }
            let text = self
                .text
                .get(range.start().to_usize()..range.end().to_usize())?;
            let (name, is_method) = match statement {
                Stmt::FunctionDef(function) => (Some(function.name.to_string()), true),
                Stmt::Assign(assign) => match assign.targets.as_slice() {
                    [ruff_python_ast::Expr::Name(name)] => (Some(name.id.to_string()), false),
                    _ => (None, false),
                },
                Stmt::AnnAssign(assign) => match assign.target.as_ref() {
                    ruff_python_ast::Expr::Name(name) => (Some(name.id.to_string()), false),
                    _ => (None, false),
                },
                _ => (None, false),
            };
            let key = name.clone().unwrap_or_else(|| lines.join("\n"));
            Some(Part {
                key,
                is_method,
                name,
                text: text.to_owned(),
                lines,
            })
        });
        Some(parts.collect())
    }

    /// One line for each logical line of a part of the text: how a formatter broke it does not count.
    fn lines_of(&self, range: TextRange) -> Vec<String> {
        let (from, to) = (range.start().to_usize(), range.end().to_usize());
        let text = |from: usize, to: usize| self.text.get(from..to).unwrap_or_default();
        let mut kept = String::with_capacity(to - from);
        let mut at = from;
        let tokens: &[Token] = self.parsed.as_ref().map_or(&[], |parsed| parsed.tokens());
        let first = tokens.partition_point(|token| token.start() < range.start());
        let mut at_statement_start = true;
        let mut joining = false;
        for (number, token) in tokens.iter().enumerate().skip(first) {
            let (start, end) = (token.start().to_usize(), token.end().to_usize());
            if start >= to {
                break;
            }
            match token.kind() {
                TokenKind::Comment => {
                    if !joining {
                        kept.push_str(text(at, start));
                    }
                    at = end;
                }
                TokenKind::NonLogicalNewline if !at_statement_start => {
                    if !joining {
                        kept.push_str(text(at, start));
                        kept.truncate(kept.trim_end().len());
                        joining = true;
                    }
                    at = end;
                }
                TokenKind::NonLogicalNewline => {}
                TokenKind::String if at_statement_start && is_alone(&tokens[number + 1..]) => {
                    kept.push_str(text(at, start));
                    at = end;
                    at_statement_start = false;
                }
                kind => {
                    if joining {
                        join(&mut kept, kind);
                        at = start;
                        joining = false;
                    }
                    at_statement_start = matches!(
                        kind,
                        TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent
                    );
                }
            }
        }
        kept.push_str(text(at.min(to), to));
        kept.lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// Whether nothing but a comment follows in the statement.
fn is_alone(rest: &[Token]) -> bool {
    rest.first().is_none_or(|next| {
        matches!(
            next.kind(),
            TokenKind::Newline | TokenKind::Comment | TokenKind::EndOfFile
        )
    })
}

/// Ends a line that goes on with a token of `next`: one blank, but none inside a bracket's edges, and
/// no comma before a closing one.
fn join(line: &mut String, next: TokenKind) {
    let closes = matches!(next, TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace);
    if closes && line.ends_with(',') {
        line.pop();
    }
    if !closes && !line.ends_with(['(', '[', '{']) {
        line.push(' ');
    }
}

fn text_size(text: &str) -> ruff_text_size::TextSize {
    // Sources are limited to some megabytes when they are read.
    ruff_text_size::TextSize::new(text.len() as u32)
}

/// Which class of the parent's file each class of the child's file takes the place of.
pub(crate) type Twins = FxHashMap<String, String>;

/// Renames both sides of a comparison to one neutral vocabulary.
///
/// Beyond the models' own names, what stands between them and the common end of the two definitions'
/// roles is a name too: `Text` in `Qwen3VLTextAttention` beside `Qwen3Attention`. And a class that is
/// known to take another one's place has its name.
pub(crate) struct Alignment<'a> {
    child: (&'a ModelNames, Option<ModelNames>),
    parent: (&'a ModelNames, Option<ModelNames>),
    twins: &'a Twins,
}

impl<'a> Alignment<'a> {
    pub(crate) fn new(
        child: (&'a ModelNames, &str),
        parent: (&'a ModelNames, &str),
        twins: &'a Twins,
    ) -> Self {
        let (child_role, parent_role) = (child.0.role(child.1), parent.0.role(parent.1));
        let common = common_suffix(child_role, parent_role);
        let extra = |role: &str| {
            let own = &role[..role.len() - common];
            let starts_with_class = own.starts_with(|c: char| c.is_ascii_uppercase());
            let whole = format!("{CLASS_WORD}{own}");
            (starts_with_class && common > 0).then(|| ModelNames::from_parts(&[&whole], &[]))
        };
        Self {
            child: (child.0, extra(child_role)),
            parent: (parent.0, extra(parent_role)),
            twins,
        }
    }

    pub(crate) fn child(&self, lines: &[String]) -> Vec<String> {
        let renamed = lines.iter().map(|line| {
            let line = replace_words(line, self.twins);
            // What the twins brought in are names of the parent.
            let line = if line.1 {
                self.parent.0.rename(&line.0)
            } else {
                line.0
            };
            Self::rename(&self.child, &line)
        });
        renamed.collect()
    }

    pub(crate) fn parent(&self, lines: &[String]) -> Vec<String> {
        lines
            .iter()
            .map(|line| Self::rename(&self.parent, line))
            .collect()
    }

    fn rename((names, extra): &(&ModelNames, Option<ModelNames>), line: &str) -> String {
        let renamed = names.rename(line);
        extra
            .as_ref()
            .map_or_else(|| renamed.clone(), |extra| extra.rename(&renamed))
    }
}

/// The text with whole identifiers replaced, and whether there was any.
fn replace_words(text: &str, words: &Twins) -> (String, bool) {
    let mut replaced = String::with_capacity(text.len());
    let mut any = false;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        match words.get(word) {
            Some(other) => {
                replaced.push_str(other);
                any = true;
            }
            None => replaced.push_str(word),
        }
        let gap = after.find(is_word).unwrap_or(after.len());
        replaced.push_str(&after[..gap]);
        rest = &after[gap..];
    }
    (replaced, any)
}

/// The length of the common end of two class names that begins with a capital.
fn common_suffix(a: &str, b: &str) -> usize {
    let same = a
        .bytes()
        .rev()
        .zip(b.bytes().rev())
        .take_while(|(a, b)| a == b)
        .count();
    (1..=same)
        .rev()
        .find(|&length| a.as_bytes()[a.len() - length].is_ascii_uppercase())
        .unwrap_or(0)
}

/// The lines that differ: `-` for the parent's, `+` for the child's, in their order.
pub(crate) fn difference(parent: &[String], child: &[String]) -> Vec<String> {
    let parent: Vec<&str> = parent.iter().take(MAX_LINES).map(String::as_str).collect();
    let child: Vec<&str> = child.iter().take(MAX_LINES).map(String::as_str).collect();
    TextDiff::from_slices(&parent, &child)
        .iter_all_changes()
        .filter_map(|change| match change.tag() {
            ChangeTag::Delete => Some(format!("- {}", change.value().trim())),
            ChangeTag::Insert => Some(format!("+ {}", change.value().trim())),
            ChangeTag::Equal => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_docstrings_do_not_count() {
        let snippet = Snippet::new(
            "class A:\n    \"\"\"Doc.\"\"\"  # why\n\n    # comment\n    x = \"kept\"  # y\n    def f(self):\n        'doc'\n        return \"\"\"kept\"\"\"\n",
        );
        assert_eq!(
            snippet.lines(),
            [
                "class A:",
                "    x = \"kept\"",
                "    def f(self):",
                "        return \"\"\"kept\"\"\""
            ]
        );
        let parts = snippet.parts().expect("a class");
        let keys: Vec<&str> = parts.iter().map(|part| part.key.as_str()).collect();
        assert_eq!(keys, ["x", "f"]);
    }

    #[test]
    fn how_a_formatter_broke_a_line_does_not_count() {
        let broken = "x = call(\n    a,  # first\n\n    b=[\n        1,\n        2,\n    ],\n)\ny = (\n    1 +\n    2\n)\n";
        let flat = "x = call(a, b=[1, 2])\ny = (1 + 2)\n";
        assert_eq!(Snippet::new(broken).lines(), Snippet::new(flat).lines());
        assert_eq!(
            Snippet::new(flat).lines(),
            ["x = call(a, b=[1, 2])", "y = (1 + 2)"]
        );
        assert_ne!(
            Snippet::new("x = (\n    1,\n)\n").lines(),
            Snippet::new("x = (2)\n").lines()
        );
    }

    #[test]
    fn what_lies_between_the_name_and_the_common_role_is_a_name() {
        let qwen = ModelNames::from_parts(&["Qwen3VL"], &["qwen3_vl"]);
        let llama = ModelNames::from_parts(&["Llama"], &["llama"]);
        let twins = Twins::from_iter([("Qwen3VLSpecialNorm".to_owned(), "LlamaNorm".to_owned())]);
        let alignment = Alignment::new(
            (&qwen, "Qwen3VLTextAttention"),
            (&llama, "LlamaAttention"),
            &twins,
        );
        let child = alignment
            .child(&["class Qwen3VLTextAttention(Qwen3VLTextBase, Qwen3VLSpecialNorm)".to_owned()]);
        let parent = alignment.parent(&["class LlamaAttention(LlamaBase, LlamaNorm)".to_owned()]);
        assert_eq!(child, parent);
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let lines = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            difference(&lines(&["a", "b", "c"]), &lines(&["a", "x", "c"])),
            ["- b", "+ x"]
        );
    }
}
