//! A bound on how deeply a Python file nests, found from its tokens without parsing it.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

use super::{Limits, SyntaxFault};

/// Bounds the depth of the tree that the parser would build, from the tokens alone.
///
/// A recursive parser, and the destruction of its tree, need stack in proportion to the depth of the
/// tree; a hostile file of a few kilobytes (`-----…1`, `((((…`, `a.b.b.b…`) would overflow it.
///
/// A syntax tree gets deeper by a bracket, an operator, a keyword of an expression or a block. What a
/// comma or the end of a statement separates lies side by side, save the parameters of a lambda.
pub(super) fn check_nesting(source: &str, limits: &Limits) -> Result<(), SyntaxFault> {
    #[derive(Default, Clone, Copy)]
    struct Level {
        operators: usize,
        lambdas: usize,
        /// A string with replacement fields; these lie side by side.
        string: bool,
    }
    let mut lexer = lexer::lex(source, Mode::Module);
    let mut levels = vec![Level::default()];
    let mut depth = 0usize;
    let mut blocks = 0usize;
    loop {
        let kind = lexer.next_token();
        let top = levels.len() - 1;
        match kind {
            TokenKind::EndOfFile => return Ok(()),
            TokenKind::Indent => {
                blocks += 1;
                if blocks > limits.indentation {
                    return Err(SyntaxFault::whole("has too many levels of indentation"));
                }
            }
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi => {
                levels.clear();
                levels.push(Level::default());
                depth = 0;
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                levels[top].operators += 1;
                depth += 1;
                levels.push(Level {
                    string: matches!(kind, TokenKind::FStringStart | TokenKind::TStringStart),
                    ..Level::default()
                });
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd
                if top > 0 =>
            {
                let closed = levels[top];
                depth -= closed.operators + closed.lambdas;
                levels.pop();
                let around = &mut levels[top - 1];
                if around.string {
                    depth -= around.operators;
                    around.operators = 0;
                }
            }
            TokenKind::Comma => {
                depth -= levels[top].operators;
                levels[top].operators = 0;
            }
            TokenKind::Lambda => {
                levels[top].lambdas += 1;
                depth += 1;
            }
            kind if kind.is_operator() || kind.is_keyword() => {
                levels[top].operators += 1;
                depth += 1;
            }
            _ => {}
        }
        if depth > limits.expression_depth {
            return Err(SyntaxFault::whole("has an expression nested too deeply"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        file_bytes: 16 << 20,
        expression_depth: 1_000,
        indentation: 100,
    };

    fn check(source: &str) -> Result<(), SyntaxFault> {
        check_nesting(source, &LIMITS)
    }

    #[test]
    fn nesting_that_would_overflow_a_stack_is_refused() {
        let deep: [(&str, String); 10] = [
            (
                "brackets",
                format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000)),
            ),
            ("unary", format!("x = {}1", "-".repeat(5000))),
            ("not", format!("x = {}1", "not ".repeat(5000))),
            ("sum", format!("x = 1{}", " + 1".repeat(5000))),
            ("lambda", format!("x = {}1", "lambda a, b: ".repeat(5000))),
            (
                "lambda without a comma",
                format!("x = {}1", "lambda: ".repeat(5000)),
            ),
            ("attributes", format!("x = a{}", ".b".repeat(5000))),
            ("calls", format!("x = a{}", "()".repeat(5000))),
            (
                "conditional",
                format!("x = {}1", "1 if a else ".repeat(5000)),
            ),
            (
                "f-string",
                format!("x = f\"{{{}1{}}}\"", "(".repeat(5000), ")".repeat(5000)),
            ),
        ];
        for (name, source) in deep {
            let fault = check(&source).expect_err(name);
            assert!(
                fault.message.contains("nested too deeply"),
                "{name}: {}",
                fault.message
            );
        }
        let mut blocks = String::new();
        for level in 0..150 {
            blocks.push_str(&" ".repeat(level));
            blocks.push_str("if a:\n");
        }
        blocks.push_str(&" ".repeat(150));
        blocks.push_str("pass\n");
        assert!(
            check(&blocks)
                .expect_err("blocks")
                .message
                .contains("indentation")
        );
    }

    #[test]
    fn long_but_flat_code_parses() {
        let table = format!("x = [{}]", "a.b + 1, ".repeat(50_000));
        check(&table).expect("a long table");
        let lines = "x = f(a)[0].b - 1\n".repeat(50_000);
        check(&lines).expect("many statements");
    }

    #[test]
    fn every_way_to_nest_is_counted() {
        let many = LIMITS.expression_depth + 10;
        for text in [
            "(".repeat(many),
            format!("x = {}1", "-".repeat(many)),
            format!("x = {}1", "not ".repeat(many)),
            format!("x = {}1", "lambda: ".repeat(many)),
            format!("x = a{}", ".b".repeat(many)),
            format!("x = a{}", "()".repeat(many)),
            format!("x = a{}", "[0]".repeat(many)),
            format!("x = 1{}", " + 1".repeat(many)),
            format!("x = 1{}", " if a else 1".repeat(many)),
            format!("x = f\"{{{}1}}\"", "-".repeat(many)),
            format!("x = f\"{{'\\\"'}}\" + {}1", "-".repeat(many)),
            format!("x = f\"{{'{{\"'}}\" + {}1", "-".repeat(many)),
            (0..many)
                .map(|n| format!("{}if x:\n", " ".repeat(n)))
                .collect(),
        ] {
            assert!(check(&text).is_err(), "{}", &text[..40]);
        }
    }

    #[test]
    fn long_but_flat_text_passes() {
        for text in [
            format!("x = [{}]", "-1.5, ".repeat(50_000)),
            "x = a.b(c)[0] + 1\n".repeat(50_000),
            format!("x = \"\"\"{}\"\"\"", "(((( -- ".repeat(10_000)),
            format!("x = {{{}}}", "'a': (1, [2]), ".repeat(50_000)),
            "# ((((((\n".repeat(50_000),
            format!("x = f\"\"\"{}{{a}}\"\"\"", "((-- {{ {b.c} ".repeat(10_000)),
        ] {
            assert_eq!(check(&text), Ok(()), "{}", &text[..40]);
        }
    }
}
