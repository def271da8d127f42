//! The types of a model's parts, read from its `Debug` text: what tells a `Relu` from a `Gelu` where
//! neither has a parameter or a field that is a module.
//!
//! The text is bounded and only ever a hint: whatever does not parse is unknown. Burn prints a
//! parameter as its number and a tensor as its kind, so that no element is read and no lazy parameter
//! initialised by it.

use std::{
    fmt::{self, Debug, Write},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The most text that is looked at; the largest models print a few hundred kilobytes.
const MAX_TEXT: usize = 8 << 20;
/// The deepest nesting that is followed.
const MAX_DEPTH: usize = 64;
/// The most values that are kept.
const MAX_VALUES: usize = 1 << 18;
/// The most names that are told of one value.
const MAX_MENTIONS: usize = 16;

/// A parsed `Debug` text; empty where it said nothing.
#[derive(Debug, Default)]
pub(crate) struct DebugText {
    values: Vec<Value>,
}

/// A value with a name or with parts: `Gelu`, `Linear { .. }`, `Some(..)`, `[..]`.
#[derive(Debug, Default)]
struct Value {
    name: String,
    fields: Vec<(String, usize)>,
    items: Vec<Option<usize>>,
}

/// Keeps the first [`MAX_TEXT`] bytes and then stops the formatting.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_TEXT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

impl DebugText {
    /// What `value` says of itself. A `Debug` that fails, panics or never ends says what it said by
    /// then.
    pub(crate) fn of(value: &impl Debug) -> Self {
        let mut text = Bounded::default();
        let _ = catch_unwind(AssertUnwindSafe(|| write!(text, "{value:?}")));
        Self::parse(&text.0)
    }

    /// The values in `text`, the whole one first.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parser = Parser {
            rest: text,
            values: Vec::new(),
        };
        let _ = parser.value(0);
        Self {
            values: parser.values,
        }
    }

    /// The type of the value at `path`, dotted from the whole, and the names of types and variants
    /// inside it.
    pub(crate) fn describe(&self, path: &str) -> Option<(&str, Vec<&str>)> {
        let mut at = 0;
        for segment in path.split('.').filter(|segment| !segment.is_empty()) {
            at = self.inside(self.unwrapped(at)?, segment)?;
        }
        let at = self.unwrapped(at)?;
        let value = self.values.get(at)?;
        let mut mentions = Vec::new();
        let mut inside: Vec<usize> = vec![at];
        while let Some(next) = inside.pop() {
            let value = self.values.get(next)?;
            let parts = value.fields.iter().map(|(_, part)| *part);
            inside.extend(parts.chain(value.items.iter().flatten().copied()));
            if next != at && !value.name.is_empty() {
                mentions.push(value.name.as_str());
            }
            if mentions.len() == MAX_MENTIONS {
                break;
            }
        }
        Some((&value.name, mentions))
    }

    /// The value below `Some`: an option is no level of a path.
    fn unwrapped(&self, mut at: usize) -> Option<usize> {
        while let Value { name, items, .. } = self.values.get(at)?
            && name == "Some"
        {
            at = (*items.first()?)?;
        }
        Some(at)
    }

    fn inside(&self, at: usize, segment: &str) -> Option<usize> {
        let value = self.values.get(at)?;
        let field = segment.strip_prefix("r#").unwrap_or(segment);
        if let Some((_, part)) = value.fields.iter().find(|(name, _)| name == field) {
            return Some(*part);
        }
        if let Ok(index) = segment.parse::<usize>() {
            return *value.items.get(index)?;
        }
        // The variant of an enum is a level of a module's path.
        (value.name == segment)
            .then(|| *value.items.first()?)
            .flatten()
    }
}

struct Parser<'t> {
    rest: &'t str,
    values: Vec<Value>,
}

impl<'t> Parser<'t> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn peek(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn identifier(&mut self) -> &'t str {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name
    }

    /// One value up to the comma or bracket after it, which stays. The outer `None` ends the parse,
    /// the inner one is a value without a name or parts.
    fn value(&mut self, depth: usize) -> Option<Option<usize>> {
        if depth > MAX_DEPTH || self.values.len() >= MAX_VALUES {
            return None;
        }
        self.skip_spaces();
        let mut at = None;
        if self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        {
            let name = self.identifier();
            let index = self.values.len();
            self.values.push(Value {
                name: name.to_owned(),
                ..Value::default()
            });
            at = Some(index);
            if self.rest.starts_with(" {") {
                self.rest = &self.rest[2..];
                self.fields(index, depth)?;
            } else if self.eat(b'(') {
                self.items(index, depth, b')')?;
            }
        } else if let Some(open @ (b'[' | b'(')) = self.peek() {
            self.rest = &self.rest[1..];
            let index = self.values.len();
            self.values.push(Value::default());
            at = Some(index);
            let close = if open == b'[' { b']' } else { b')' };
            self.items(index, depth, close)?;
        }
        self.skip_rest()?;
        Some(at)
    }

    fn items(&mut self, of: usize, depth: usize, close: u8) -> Option<()> {
        loop {
            self.skip_spaces();
            if self.eat(close) {
                return Some(());
            }
            let item = self.value(depth + 1)?;
            self.values[of].items.push(item);
            self.skip_spaces();
            if !self.eat(b',') && self.peek() != Some(close) {
                return None;
            }
        }
    }

    fn fields(&mut self, of: usize, depth: usize) -> Option<()> {
        loop {
            self.skip_spaces();
            if self.eat(b'}') {
                return Some(());
            }
            let name = self.identifier();
            if !name.is_empty() && self.rest.starts_with(": ") {
                self.rest = &self.rest[2..];
                if let Some(part) = self.value(depth + 1)? {
                    self.values[of].fields.push((name.to_owned(), part));
                }
            } else {
                self.skip_rest()?;
            }
            self.skip_spaces();
            if !self.eat(b',') && self.peek() != Some(b'}') {
                return None;
            }
        }
    }

    /// Goes to the next comma or closing bracket of this level.
    fn skip_rest(&mut self) -> Option<()> {
        let mut open = 0_usize;
        let mut bytes = self.rest.bytes().enumerate();
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => loop {
                    match bytes.next()?.1 {
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                },
                // A character, a quotation mark perhaps.
                b'\'' => match bytes.next()?.1 {
                    b'\\' => drop(bytes.nth(1)),
                    _ => drop(bytes.next()),
                },
                b'[' | b'(' | b'{' => open += 1,
                b']' | b')' | b'}' if open > 0 => open -= 1,
                b',' | b']' | b')' | b'}' if open == 0 => {
                    self.rest = &self.rest[at..];
                    return Some(());
                }
                _ => {}
            }
        }
        self.rest = "";
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "Net { emb: Embedding { weight: Param: 53so - ParamMapper { load: false, \
        save: false } }, text: \"a } \\\" , b\", act: Activation { function: GeluTanh }, pool: Some(Pool { \
        size: [2, 2] }), layers: [Relu, Gelu { approximate: true }], one: Gelu(Gelu { approximate: \
        false }), marker: PhantomData<a::B<c>, d>, none: None, last: Tanh }";

    fn kind(path: &str) -> Option<String> {
        DebugText::parse(BLOCK)
            .describe(path)
            .map(|(kind, _)| kind.to_owned())
    }

    #[test]
    fn every_level_of_a_path_is_found() {
        assert_eq!(kind("").as_deref(), Some("Net"));
        assert_eq!(kind("emb").as_deref(), Some("Embedding"));
        assert_eq!(kind("pool").as_deref(), Some("Pool"));
        assert_eq!(kind("layers.0").as_deref(), Some("Relu"));
        assert_eq!(kind("layers.1").as_deref(), Some("Gelu"));
        assert_eq!(kind("one.Gelu").as_deref(), Some("Gelu"));
        assert_eq!(kind("last").as_deref(), Some("Tanh"));
        assert_eq!(kind("layers.2"), None);
        assert_eq!(kind("missing"), None);
    }

    #[test]
    fn the_names_inside_a_value_are_told() {
        let text = DebugText::parse(BLOCK);
        assert_eq!(text.describe("act"), Some(("Activation", vec!["GeluTanh"])));
    }

    #[test]
    fn deep_and_torn_texts_end_the_parse_without_harm() {
        let deep = "A(".repeat(100_000);
        assert!(DebugText::parse(&deep).values.len() <= MAX_DEPTH + 2);
        for end in 0..BLOCK.len() {
            if let Some(torn) = BLOCK.get(..end) {
                DebugText::parse(torn).describe("layers.1");
            }
        }
    }

    #[test]
    fn a_debug_that_does_not_end_is_cut() {
        struct Endless;
        impl Debug for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("Endless, ")?;
                }
            }
        }
        let text = DebugText::of(&Endless);
        assert_eq!(text.describe("").map(|(kind, _)| kind), Some("Endless"));
    }
}
