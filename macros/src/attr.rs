//! The arguments of `#[burnscope::trace(…)]` and the `#[burnscope(…)]` attributes inside it.

use syn::{Attribute, LitStr, Path, Result, meta::ParseNestedMeta, parse_quote};

/// The arguments of the attribute itself.
pub struct TraceArguments {
    /// Where the burnscope crate is.
    pub krate: Path,
}

impl TraceArguments {
    pub fn parse(tokens: proc_macro2::TokenStream) -> Result<Self> {
        let mut krate: Path = parse_quote!(::burnscope);
        let parser = syn::meta::parser(|meta: ParseNestedMeta| {
            if meta.path.is_ident("crate") {
                krate = meta.value()?.parse()?;
                Ok(())
            } else {
                Err(meta.error("expected `crate = path`"))
            }
        });
        syn::parse::Parser::parse2(parser, tokens)?;
        Ok(Self { krate })
    }
}

/// A word that a `#[burnscope(…)]` attribute may hold; which ones depends on what it is put on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Skip,
    Positional,
    Name,
    Crate,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Self::Skip => "`skip`",
            Self::Positional => "`positional`",
            Self::Name => "`name = \"…\"`",
            Self::Crate => "`crate = path`",
        }
    }
}

/// What a `#[burnscope(…)]` attribute asks for its parameter, field, method or type.
#[derive(Default)]
pub struct Refinement {
    pub skip: bool,
    pub positional: bool,
    pub name: Option<String>,
    pub krate: Option<Path>,
}

impl Refinement {
    /// Reads and removes the `burnscope` attributes among `attributes`.
    pub fn take(attributes: &mut Vec<Attribute>, allowed: &[Word]) -> Result<Self> {
        let refinement = Self::read(attributes, allowed)?;
        attributes.retain(|attribute| !attribute.path().is_ident("burnscope"));
        Ok(refinement)
    }

    /// Reads the `burnscope` attributes among `attributes`.
    pub fn read(attributes: &[Attribute], allowed: &[Word]) -> Result<Self> {
        let mut refinement = Self::default();
        for attribute in attributes
            .iter()
            .filter(|attribute| attribute.path().is_ident("burnscope"))
        {
            attribute.parse_nested_meta(|meta| {
                let is =
                    |word: Word, name: &str| allowed.contains(&word) && meta.path.is_ident(name);
                if is(Word::Skip, "skip") {
                    refinement.skip = true;
                } else if is(Word::Positional, "positional") {
                    refinement.positional = true;
                } else if is(Word::Name, "name") {
                    refinement.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if is(Word::Crate, "crate") {
                    refinement.krate = Some(meta.value()?.parse()?);
                } else {
                    let words: Vec<&str> = allowed.iter().map(|word| word.text()).collect();
                    let one_of = if words.len() > 1 { "one of " } else { "" };
                    return Err(meta.error(format!("expected {one_of}{}", words.join(", "))));
                }
                Ok(())
            })?;
        }
        Ok(refinement)
    }
}
