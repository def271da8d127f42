//! The attribute and the derive that make a model's methods visible to burnscope.
//!
//! Use them through the `burnscope` crate, whose documentation has runnable examples; this crate
//! holds only the syntax. `attr` reads the attributes, `expand` writes a method, `call` rewrites the
//! calls inside it, `derive` writes `Traced`.

mod attr;
mod call;
mod derive;
mod expand;

use proc_macro::TokenStream;

/// Makes methods of a module visible to an active tracing session.
///
/// On an `impl` block every method whose name begins with `forward` becomes a module scope; on a
/// single method, that method, whatever its name. A scope records the method's inputs by parameter
/// name, its output, and, in call order, every call `module.forward*(…)` in its body, annotated or
/// not.
///
/// Inside, `#[burnscope(…)]` refines:
///
/// * on a method `skip`: leave it as it is;
/// * on a parameter `skip`: do not record it; `positional`: record it without its name, as Python
///   does for `layer(x)`; `name = "…"`: record it under another name.
///
/// `#[burnscope::trace(crate = path)]` names the crate where it was renamed.
#[proc_macro_attribute]
pub fn trace(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::trace(arguments.into(), item.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Lets a struct or enum be an argument or result of a traced method, recorded field by field.
///
/// A field of any type is allowed: what is neither a tensor nor `Traced` is recorded by its `Debug`
/// text. `#[burnscope(skip)]` on a field leaves it out, `#[burnscope(name = "…")]` renames it. A type
/// parameter must be `Traced`. `#[burnscope(crate = path)]` on the type names the crate where it was
/// renamed.
#[proc_macro_derive(Traced, attributes(burnscope))]
pub fn derive_traced(item: TokenStream) -> TokenStream {
    derive::traced(item.into())
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
