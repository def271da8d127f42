//! Texts longer than a model takes, divided at the ends of statements.
//!
//! It decides where to divide; it knows no tokenizer, only how many tokens a piece has.

use ruff_python_ast::Stmt;
use ruff_python_ast::statement_visitor::{StatementVisitor, walk_stmt};
use ruff_text_size::Ranged;

use crate::similar::source::parse;

/// The pieces of a text, each of at most `most` tokens unless a single statement has more.
///
/// `count` says how many tokens a piece has. A text that is no Python is divided at its lines.
pub fn divide<'a>(text: &'a str, most: usize, count: &dyn Fn(&str) -> usize) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut length = 0;
    for (from, to) in ranges(text) {
        let tokens = count(&text[from..to]);
        if length > 0 && length + tokens > most {
            pieces.push(&text[start..from]);
            start = from;
            length = 0;
        }
        length += tokens;
    }
    if start < text.len() || pieces.is_empty() {
        pieces.push(&text[start..]);
    }
    pieces
}

/// The text from each statement's line to the next one's, without gaps.
fn ranges(text: &str) -> Vec<(usize, usize)> {
    let mut starts = statement_starts(text)
        .unwrap_or_else(|| text.match_indices('\n').map(|(at, _)| at + 1).collect());
    starts.push(0);
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&start| start < text.len());
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().copied().zip(ends).collect()
}

/// The starts of the lines on which a statement begins, at any depth.
fn statement_starts(text: &str) -> Option<Vec<usize>> {
    struct Starts<'a>(&'a str, Vec<usize>);
    impl<'a> StatementVisitor<'a> for Starts<'_> {
        fn visit_stmt(&mut self, statement: &'a Stmt) {
            let at = statement.start().to_usize();
            self.1
                .push(self.0[..at].rfind('\n').map_or(0, |newline| newline + 1));
            walk_stmt(self, statement);
        }
    }
    let parsed = parse(text).ok()?;
    let mut starts = Starts(text, Vec::new());
    starts.visit_body(&parsed.syntax().body);
    Some(starts.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    #[test]
    fn a_text_is_divided_between_statements_and_nothing_is_lost() {
        let text = "class A:\n    def f(self):\n        x = call(\n            1,\n            2,\n        )\n        return x\n    y = 1\n";
        let pieces = divide(text, 6, &words);
        assert_eq!(pieces.concat(), text);
        assert!(pieces.len() > 1);
        for piece in &pieces {
            assert!(words(piece) <= 6, "{piece:?}");
            assert!(
                !piece.trim_start().starts_with(['1', '2', ')']),
                "divided inside a statement: {piece:?}"
            );
        }
        assert_eq!(divide(text, 1000, &words), [text]);
    }

    #[test]
    fn a_statement_that_is_too_long_stands_alone() {
        let text = "a = 1\nb = [1, 2, 3, 4, 5, 6, 7, 8]\nc = 2\n";
        assert_eq!(
            divide(text, 4, &words),
            ["a = 1\n", "b = [1, 2, 3, 4, 5, 6, 7, 8]\n", "c = 2\n"]
        );
    }

    #[test]
    fn what_is_no_python_is_divided_at_its_lines() {
        assert_eq!(divide("a ( b\nc d\ne", 3, &words), ["a ( b\n", "c d\ne"]);
        assert_eq!(divide("", 3, &words), [""]);
    }
}
