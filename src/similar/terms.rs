//! What a definition consists of, as numbers: its renamed tokens, their n-grams and one digest of all.
//!
//! Comments, layout and docstrings do not count. Terms are 64-bit digests rather than texts, so an
//! index holds no code; two different terms share a digest with a probability of about 1e-7 for a
//! million of them.

use ruff_python_ast::token::{Token, TokenKind};
use ruff_text_size::Ranged;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::definitions::Definition;
use super::naming::ModelNames;

/// The lowest bit of a term: set for an identifier, clear for anything else.
const WORD_BIT: u64 = 1;
/// Stands for the model's name inside a term; in no Python source outside a string.
const PLACEHOLDER: &str = "\u{1}";
/// The number of tokens in an n-gram.
const GRAM: usize = 3;
/// The most characters of a string that make it a term of its own rather than just "a string".
const LONGEST_STRING: usize = 80;

/// The terms of one definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// A digest of the whole renamed token sequence: equal for clones and only for them.
    pub exact: u64,
    /// Each distinct term and how often it occurs, in ascending order of the term.
    pub counts: Vec<(u64, u16)>,
}

/// Whether a term is an identifier, the kind that Jaccard similarity counts.
pub fn is_word(term: u64) -> bool {
    term & WORD_BIT != 0
}

/// The terms of the definitions of one module.
pub struct TermReader<'a> {
    source: &'a str,
    tokens: &'a [Token],
    names: &'a ModelNames,
    /// The renamed digest of every distinct token text.
    digests: FxHashMap<&'a str, u64>,
}

impl<'a> TermReader<'a> {
    /// A reader over the tokens that the parser made of `source`.
    pub fn new(source: &'a str, tokens: &'a [Token], names: &'a ModelNames) -> Self {
        Self {
            source,
            tokens,
            names,
            digests: FxHashMap::default(),
        }
    }

    /// The terms of one definition of the module.
    pub fn read(&mut self, definition: &Definition) -> Terms {
        let sequence = self.sequence(definition);
        let mut terms: Vec<u64> = Vec::with_capacity(sequence.len() * 2);
        for &(digest, class) in &sequence {
            match class {
                Class::Word => terms.push(digest | WORD_BIT),
                Class::Literal => terms.push(digest & !WORD_BIT),
                Class::Mark => {}
            }
        }
        for gram in sequence.windows(GRAM) {
            let mut bytes = [0u8; 8 * GRAM];
            for (slot, (digest, _)) in bytes.chunks_exact_mut(8).zip(gram) {
                slot.copy_from_slice(&digest.to_le_bytes());
            }
            terms.push(xxh3_64(&bytes) & !WORD_BIT);
        }
        terms.sort_unstable();
        let mut counts: Vec<(u64, u16)> = Vec::with_capacity(terms.len());
        for term in terms {
            match counts.last_mut() {
                Some((last, count)) if *last == term => *count = count.saturating_add(1),
                _ => counts.push((term, 1)),
            }
        }
        let mut all = Vec::with_capacity(sequence.len() * 8);
        for (digest, _) in &sequence {
            all.extend_from_slice(&digest.to_le_bytes());
        }
        Terms {
            exact: xxh3_64(&all),
            counts,
        }
    }

    /// The digests of the definition's tokens, without comments, layout and docstrings.
    fn sequence(&mut self, definition: &Definition) -> Vec<(u64, Class)> {
        let first = self
            .tokens
            .partition_point(|t| t.start().to_u32() < definition.start);
        let last = self
            .tokens
            .partition_point(|t| t.start().to_u32() < definition.end);
        let tokens = &self.tokens[first..last];
        let mut sequence = Vec::with_capacity(tokens.len());
        let mut at_statement_start = true;
        for (at, token) in tokens.iter().enumerate() {
            match token.kind() {
                TokenKind::Comment | TokenKind::NonLogicalNewline => {}
                TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent => {
                    at_statement_start = true
                }
                TokenKind::String if at_statement_start && ends_statement(&tokens[at + 1..]) => {}
                kind => {
                    at_statement_start = false;
                    sequence.push(self.digest(token, kind));
                }
            }
        }
        sequence
    }

    fn digest(&mut self, token: &Token, kind: TokenKind) -> (u64, Class) {
        let text = &self.source[token.range()];
        let class = match kind {
            TokenKind::Name => Class::Word,
            TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle => Class::Literal,
            kind if kind.is_keyword() => Class::Literal,
            _ => return (xxh3_64_with_seed(&[kind as u8], 1), Class::Mark),
        };
        let names = self.names;
        let digest = *self.digests.entry(text).or_insert_with(|| {
            let mut text = text;
            let mut seed = 0;
            if kind == TokenKind::String {
                // Prefixes and quotes are style; what is quoted is the token.
                text = text
                    .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                    .trim_matches(['"', '\'']);
                seed = 2;
            }
            if text.len() > LONGEST_STRING && kind != TokenKind::Name {
                text = "";
            }
            let mut renamed = String::with_capacity(text.len());
            names.rename_into(text, PLACEHOLDER, PLACEHOLDER, &mut renamed);
            xxh3_64_with_seed(renamed.as_bytes(), seed)
        });
        (digest, class)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// An identifier.
    Word,
    /// A keyword, number or string.
    Literal,
    /// An operator or bracket: part of n-grams only.
    Mark,
}

/// Whether the statement ends here: what comes next is layout or nothing.
fn ends_statement(rest: &[Token]) -> bool {
    rest.iter()
        .find(|t| !matches!(t.kind(), TokenKind::Comment | TokenKind::NonLogicalNewline))
        .is_none_or(|token| {
            matches!(
                token.kind(),
                TokenKind::Newline | TokenKind::Dedent | TokenKind::EndOfFile
            )
        })
}
