//! Writes the traced form of a method: a scope around its body, the calls inside made visible.

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, FnArg, GenericParam, Ident, ImplItem, ImplItemFn, ItemImpl, Pat, Path,
    Result, ReturnType, Signature, Type, parse_quote, spanned::Spanned, visit_mut::VisitMut,
};

use crate::{
    attr::{Refinement, TraceArguments, Word},
    call::CallRewriter,
    derive::unraw,
};

/// What may be said of a parameter.
const PARAMETER: [Word; 3] = [Word::Skip, Word::Positional, Word::Name];

pub fn trace(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = TraceArguments::parse(arguments)?;
    let block = syn::parse2::<ItemImpl>(item.clone());
    let is_block = item
        .clone()
        .into_iter()
        .any(|token| matches!(token, TokenTree::Ident(ident) if ident == "impl"));
    if let (Err(error), true) = (&block, is_block) {
        // The parser knows better what is wrong than that it is no method.
        return Err(error.clone());
    }
    if let Ok(mut block) = block {
        let trait_path = block.trait_.as_ref().map(|(_, path, _)| path.clone());
        let skipped = skipped_methods(&block)?;
        let mut traced = 0;
        for item in &mut block.items {
            let ImplItem::Fn(method) = item else { continue };
            let asked = take_trace_attribute(&arguments.krate, &mut method.attrs);
            let refinement = Refinement::take(&mut method.attrs, &[Word::Skip])?;
            let forward = method.sig.ident.to_string().starts_with("forward");
            // An associated function has no module to belong to.
            let has_self = method.sig.receiver().is_some();
            if refinement.skip || !(asked || (forward && has_self)) {
                // Left as it is, but for what only this attribute understands.
                for argument in &mut method.sig.inputs {
                    if let FnArg::Typed(argument) = argument {
                        Refinement::take(&mut argument.attrs, &PARAMETER)?;
                    }
                }
            }
            if !refinement.skip && (asked || (forward && has_self)) {
                traced_method(&arguments.krate, trait_path.as_ref(), &skipped, method)?;
                traced += 1;
            } else if refinement.skip {
                // A skipped method counts as a decision, not as a mistake.
                traced += 1;
            }
        }
        if traced == 0 {
            return Err(Error::new(
                block.self_ty.span(),
                "nothing to trace here: no method's name begins with `forward`; \
                 put `#[burnscope::trace]` on the method itself to trace it whatever its name",
            ));
        }
        return Ok(quote!(#block));
    }
    let mut method: ImplItemFn = syn::parse2(item.clone()).map_err(|_| {
        Error::new(
            item.span(),
            "`#[burnscope::trace]` goes on an `impl` block or on a method in one",
        )
    })?;
    traced_method(&arguments.krate, None, &[], &mut method)?;
    Ok(quote!(#method))
}

/// The methods of a block that are marked `skip`: calls of them on `self` are not recorded either.
fn skipped_methods(block: &ItemImpl) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    for item in &block.items {
        if let ImplItem::Fn(method) = item
            && Refinement::read(&method.attrs, &[Word::Skip])?.skip
        {
            skipped.push(method.sig.ident.to_string());
        }
    }
    Ok(skipped)
}

/// Removes `#[trace]`, `#[burnscope::trace]` or the renamed crate's, which the block's own attribute
/// does for it; another crate's `trace` stays.
fn take_trace_attribute(krate: &Path, attributes: &mut Vec<Attribute>) -> bool {
    let text = |path: &Path| quote!(#path).to_string().replace([' ', '\n'], "");
    let ours = [
        "trace".to_owned(),
        "burnscope::trace".to_owned(),
        "::burnscope::trace".to_owned(),
        format!("{}::trace", text(krate)),
    ];
    let before = attributes.len();
    attributes.retain(|attribute| !ours.contains(&text(attribute.path())));
    attributes.len() < before
}

fn traced_method(
    krate: &Path,
    trait_path: Option<&Path>,
    skipped: &[String],
    method: &mut ImplItemFn,
) -> Result<()> {
    // Made before parameters lose their patterns, which bind variables.
    let mut calls = CallRewriter::new(krate, skipped, method);
    let signature = &mut method.sig;
    if let Some(constness) = &signature.constness {
        return Err(Error::new(
            constness.span(),
            "a `const fn` cannot be traced",
        ));
    }
    let Some(receiver) = signature.receiver() else {
        return Err(Error::new(
            signature.ident.span(),
            "only a method can be traced: it needs `self` to know which module it belongs to",
        ));
    };
    let by_value = receiver.reference.is_none() && receiver.colon_token.is_none();
    let shared = receiver.reference.is_some() && receiver.mutability.is_none();
    let this = if by_value {
        quote!(&self)
    } else {
        quote!(&*self)
    };

    let Parameters {
        names,
        unpack,
        capture,
        conditional,
    } = parameters(krate, signature)?;
    let name = signature.ident.to_string();
    let ident = signature.ident.clone();
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    let never = contains(&signature.output, |ty| matches!(ty, Type::Never(_)));
    let impl_trait = contains(&signature.output, |ty| matches!(ty, Type::ImplTrait(_)));
    let borrowing =
        impl_trait || contains(&signature.output, |ty| matches!(ty, Type::Reference(_))) || {
            let text = quote!(#output).to_string();
            text.contains('\'')
        };
    let annotation = (!impl_trait && !never).then(|| quote!(: #output));
    let closure_output = (!impl_trait).then(|| quote!(-> #output));

    let mut body = method.block.clone();
    calls.visit_block_mut(&mut body);
    let statements = &body.stmts;

    // A run without gradients is a run of the module's gradient-free copy. It is not possible where
    // the result borrows from the module, or where the call changes it.
    let owner = match trait_path {
        Some(path) => quote!(<Self as #path>),
        None => quote!(Self),
    };
    // Parameters that the arguments do not fix must be named again; the compiler names those of
    // `impl Trait` itself and takes no list then.
    let generics: Vec<TokenStream> = signature
        .generics
        .params
        .iter()
        .filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
            GenericParam::Lifetime(_) => None,
        })
        .map(|ident| quote!(#ident))
        .collect();
    let impl_arguments = signature.inputs.iter().any(|argument| match argument {
        FnArg::Typed(argument) => matches!(&*argument.ty, Type::ImplTrait(_)),
        FnArg::Receiver(_) => false,
    });
    let turbofish = (!generics.is_empty() && !impl_arguments).then(|| quote!(::<#(#generics),*>));
    let again = quote!(#owner::#ident #turbofish(&__burnscope_copy, #(#names),*));
    let (again, scope_body) = if signature.asyncness.is_some() {
        (
            // A future that contains itself needs an indirection.
            quote!(::std::boxed::Box::pin(#again).await),
            quote! {
                let __burnscope_out #annotation = #krate::__private::in_scope(
                    __burnscope_scope.as_ref(),
                    async move { #(#unpack)* #(#statements)* },
                ).await;
            },
        )
    } else {
        (
            again,
            quote! {
                let __burnscope_out #annotation = {
                    let __burnscope_entered = #krate::__private::enter(__burnscope_scope.as_ref());
                    #krate::__private::once(move || #closure_output { #(#unpack)* #(#statements)* })
                };
            },
        )
    };
    let gradient_free = (shared && !borrowing && !conditional).then(|| {
        quote! {
            if let ::core::option::Option::Some(__burnscope_copy) =
                (&&&#krate::__private::ModuleProbe(#this)).without_gradients()
            {
                return #again;
            }
        }
    });
    method.block = parse_quote!({
        #[allow(unused_imports)]
        use #krate::__private::probes::*;
        let __burnscope_scope = if #krate::__private::active() {
            #gradient_free
            #krate::__private::enter_scope(
                (&&&#krate::__private::ModuleProbe(#this)).identify(),
                #name,
                |__burnscope_inputs| { #(#capture)* },
            )
        } else {
            ::core::option::Option::None
        };
        #scope_body
        if let ::core::option::Option::Some(__burnscope_scope) = __burnscope_scope {
            __burnscope_scope.returned(|__burnscope_recorder| {
                (&&#krate::__private::ValueProbe(&__burnscope_out)).capture(__burnscope_recorder)
            });
        }
        __burnscope_out
    });
    method
        .attrs
        .push(parse_quote!(#[allow(clippy::let_and_return, clippy::needless_borrow)]));
    Ok(())
}

/// A method's parameters beside `self`, split into what each needs.
struct Parameters {
    /// The names under which the body's closure receives them.
    names: Vec<Ident>,
    /// `let` statements that take patterns apart inside the body.
    unpack: Vec<TokenStream>,
    /// Statements that record them.
    capture: Vec<TokenStream>,
    /// Whether some are there under a condition only, so that they cannot be passed on.
    conditional: bool,
}

fn parameters(krate: &Path, signature: &mut Signature) -> Result<Parameters> {
    let mut parameters = Parameters {
        names: Vec::new(),
        unpack: Vec::new(),
        capture: Vec::new(),
        conditional: false,
    };
    for (index, argument) in signature.inputs.iter_mut().enumerate() {
        let FnArg::Typed(argument) = argument else {
            continue;
        };
        let refinement = Refinement::take(&mut argument.attrs, &PARAMETER)?;
        let conditions: Vec<Attribute> = argument
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("cfg"))
            .cloned()
            .collect();
        parameters.conditional |= !conditions.is_empty();
        let (ident, mut label) = match &*argument.pat {
            Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
                let ident = pattern.ident.clone();
                if pattern.mutability.is_some() {
                    // The scope only reads it; the body makes it mutable.
                    parameters
                        .unpack
                        .push(quote!(#(#conditions)* let mut #ident = #ident;));
                }
                (ident.clone(), Some(unraw(&ident.to_string())))
            }
            pattern => {
                let ident = format_ident!("__burnscope_arg_{index}");
                parameters
                    .unpack
                    .push(quote!(#(#conditions)* let #pattern = #ident;));
                (ident, None)
            }
        };
        *argument.pat = parse_quote!(#ident);
        parameters.names.push(ident.clone());
        if refinement.skip {
            continue;
        }
        if refinement.name.is_some() {
            label = refinement.name;
        }
        let value = quote! {
            |__burnscope_recorder| (&&#krate::__private::ValueProbe(&#ident)).capture(__burnscope_recorder)
        };
        parameters.capture.push(match label {
            Some(label) if !refinement.positional => {
                quote!(#(#conditions)* __burnscope_inputs.named(#label, #value);)
            }
            _ => quote!(#(#conditions)* __burnscope_inputs.positional(#value);),
        });
    }
    Ok(parameters)
}

fn contains(output: &ReturnType, wanted: impl Fn(&Type) -> bool) -> bool {
    struct Finder<F> {
        wanted: F,
        found: bool,
    }
    impl<F: Fn(&Type) -> bool> VisitMut for Finder<F> {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            self.found |= (self.wanted)(ty);
            syn::visit_mut::visit_type_mut(self, ty);
        }
    }
    let mut finder = Finder {
        wanted,
        found: false,
    };
    finder.visit_return_type_mut(&mut output.clone());
    finder.found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(arguments: TokenStream, item: TokenStream) -> String {
        trace(arguments, item)
            .map(|tokens| format!("no error but {tokens}"))
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn wrong_uses_say_what_to_do() {
        let nothing = TokenStream::new;
        let cases = [
            (
                error(
                    nothing(),
                    quote!(
                        struct Net;
                    ),
                ),
                "`#[burnscope::trace]` goes on an `impl` block or on a method in one",
            ),
            (
                error(nothing(), quote!(impl Net { fn new() -> Self { Net } })),
                "nothing to trace here: no method's name begins with `forward`; \
                 put `#[burnscope::trace]` on the method itself to trace it whatever its name",
            ),
            (
                error(
                    nothing(),
                    quote!(
                        fn encode(x: u8) -> u8 {
                            x
                        }
                    ),
                ),
                "only a method can be traced: it needs `self` to know which module it belongs to",
            ),
            (
                error(nothing(), quote!(impl Net { const fn forward(&self) {} })),
                "a `const fn` cannot be traced",
            ),
            (
                error(
                    nothing(),
                    quote!(impl Net { fn forward(&self, #[burnscope(what)] x: u8) {} }),
                ),
                "expected one of `skip`, `positional`, `name = \"…\"`",
            ),
            (
                error(
                    nothing(),
                    quote!(impl Net { #[burnscope(positional)] fn forward(&self) {} }),
                ),
                "expected `skip`",
            ),
            (
                error(quote!(all), quote!(impl Net {})),
                "expected `crate = path`",
            ),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn constructors_and_skipped_methods_are_left_alone() {
        let block = quote! {
            impl Net {
                fn forward_size() -> usize { 1 }
                #[burnscope(skip)]
                fn forward_raw(&self) -> u8 { self.forward_raw() }
                fn forward(&self) -> u8 { self.forward_raw() }
            }
        };
        let written = trace(TokenStream::new(), block).unwrap().to_string();
        assert!(
            written.contains("fn forward_size () -> usize { 1 }"),
            "{written}"
        );
        assert!(
            written.contains("fn forward_raw (& self) -> u8 { self . forward_raw () }"),
            "{written}"
        );
        assert!(!written.contains("enter_call"), "{written}");
        assert_eq!(written.matches("enter_scope").count(), 1);
    }
}
