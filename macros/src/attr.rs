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

/// What a `#[burnscope(…)]` attribute asks for its parameter, field or method.
#[derive(Default)]
pub struct Refinement {
    pub skip: bool,
    pub positional: bool,
    pub name: Option<String>,
}

impl Refinement {
    /// Reads and removes the `burnscope` attributes among `attributes`.
    pub fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let refinement = Self::read(attributes)?;
        attributes.retain(|attribute| !attribute.path().is_ident("burnscope"));
        Ok(refinement)
    }

    /// Reads the `burnscope` attributes among `attributes`.
    pub fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut refinement = Self::default();
        for attribute in attributes
            .iter()
            .filter(|attribute| attribute.path().is_ident("burnscope"))
        {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    refinement.skip = true;
                } else if meta.path.is_ident("positional") {
                    refinement.positional = true;
                } else if meta.path.is_ident("name") {
                    refinement.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else {
                    return Err(meta.error("expected `skip`, `positional` or `name = \"…\"`"));
                }
                Ok(())
            })?;
        }
        Ok(refinement)
    }
}
