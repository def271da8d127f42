//! Writes `impl Traced` for a struct or enum.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, Path, Result, parse_quote, spanned::Spanned};

use crate::attr::{Refinement, Word};

pub fn traced(item: TokenStream) -> Result<TokenStream> {
    let mut input: DeriveInput = syn::parse2(item)?;
    let krate = Refinement::read(&input.attrs, &[Word::Crate])?.krate;
    let krate: Path = krate.unwrap_or_else(|| parse_quote!(::burnscope));
    let name = input.ident.clone();
    let arms = match &input.data {
        Data::Struct(data) => vec![arm(&krate, quote!(Self), &data.fields)?],
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let ident = &variant.ident;
                if matches!(variant.fields, Fields::Unit) {
                    let text = ident.to_string();
                    return Ok(
                        quote!(Self::#ident => #krate::capture::Captured::Text(#text.to_owned())),
                    );
                }
                arm(&krate, quote!(Self::#ident), &variant.fields)
            })
            .collect::<Result<_>>()?,
        Data::Union(data) => {
            return Err(syn::Error::new(
                data.union_token.span(),
                "a union cannot be traced",
            ));
        }
    };
    // As derives of the standard library do: a generic field is recorded as what it is.
    for parameter in input.generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#krate::capture::Traced));
    }
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let body = if arms.is_empty() {
        quote!(match *self {})
    } else {
        quote!(match self { #(#arms,)* })
    };
    Ok(quote! {
        impl #impl_generics #krate::capture::Traced for #name #type_generics #where_clause {
            fn traced(&self, recorder: &mut #krate::capture::Recorder<'_>) -> #krate::capture::Captured {
                #[allow(unused_imports)]
                use #krate::__private::probes::*;
                #body
            }
        }
    })
}

/// One match arm: a struct with names becomes a map, a tuple struct a list.
fn arm(krate: &Path, constructor: TokenStream, fields: &Fields) -> Result<TokenStream> {
    let mut patterns = Vec::new();
    let mut steps = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let refinement = Refinement::read(&field.attrs, &[Word::Skip, Word::Name])?;
        let binding = format_ident!("__field_{index}");
        match &field.ident {
            Some(ident) if refinement.skip => patterns.push(quote!(#ident: _)),
            None if refinement.skip => patterns.push(quote!(_)),
            Some(ident) => patterns.push(quote!(#ident: #binding)),
            None => patterns.push(quote!(#binding)),
        }
        if refinement.skip {
            continue;
        }
        let key = refinement
            .name
            .or_else(|| field.ident.as_ref().map(|ident| unraw(&ident.to_string())))
            .unwrap_or_else(|| index.to_string());
        steps.push(quote! {
            __entries.push((
                #key.to_owned(),
                (&&#krate::__private::ValueProbe(#binding)).capture(recorder),
            ));
        });
    }
    let value = match fields {
        Fields::Named(_) => quote!(#krate::capture::Captured::Map(__entries)),
        _ => quote! {
            #krate::capture::Captured::List(__entries.into_iter().map(|(_, value)| value).collect())
        },
    };
    let pattern = match fields {
        Fields::Named(_) => quote!(#constructor { #(#patterns),* }),
        Fields::Unnamed(_) => quote!(#constructor(#(#patterns),*)),
        Fields::Unit => quote!(#constructor),
    };
    Ok(quote! {
        #pattern => {
            #[allow(unused_mut)]
            let mut __entries: ::std::vec::Vec<(::std::string::String, #krate::capture::Captured)> =
                ::std::vec::Vec::new();
            #(#steps)*
            #value
        }
    })
}

/// `r#type` is the field `type`.
pub fn unraw(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_owned()
}
