//! Rewrites the calls `module.forward*(…)` inside a traced body so that each is recorded.
//!
//! The rewritten call evaluates the same expressions once each; arguments that are more than a
//! variable or a field are evaluated before the receiver is looked at.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Expr, ExprMethodCall, ExprReference, ExprRepeat, ImplItemFn, Macro, Member, Pat, Path, Token,
    parse::Parser, parse_quote, punctuated::Punctuated, visit::Visit, visit_mut::VisitMut,
};

/// Visits a body and replaces the calls in it.
pub struct CallRewriter<'a> {
    krate: &'a Path,
    /// Methods whose calls on `self` are left alone.
    skipped: &'a [String],
    /// Every name that is a variable somewhere in the method.
    variables: HashSet<String>,
    /// Variables that hold what an enum module wraps: `match self { Self::Relu(relu) => … }`. The enum is
    /// the module there; a call on its variant is its own computation.
    variants: HashSet<String>,
    /// Loop variables and the field they run over: `for layer in &self.layers`.
    bindings: Vec<(String, String)>,
}

impl<'a> CallRewriter<'a> {
    pub fn new(krate: &'a Path, skipped: &'a [String], method: &ImplItemFn) -> Self {
        Self {
            krate,
            skipped,
            variables: variables(method),
            variants: HashSet::new(),
            bindings: Vec::new(),
        }
    }

    /// What the source calls the module: a field's name, with an index where one is written out.
    fn hint(&self, receiver: &Expr) -> String {
        match receiver {
            Expr::Path(path) => {
                let name = path
                    .path
                    .get_ident()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                match self
                    .bindings
                    .iter()
                    .rev()
                    .find(|(variable, _)| *variable == name)
                {
                    Some((_, field)) => field.clone(),
                    None => name,
                }
            }
            Expr::Field(field) => {
                let own = match &field.member {
                    Member::Named(name) => crate::derive::unraw(&name.to_string()),
                    Member::Unnamed(index) => index.index.to_string(),
                };
                match &*field.base {
                    Expr::Path(path) if path.path.is_ident("self") => own,
                    base => match self.hint(base) {
                        prefix if prefix.is_empty() => own,
                        prefix => format!("{prefix}.{own}"),
                    },
                }
            }
            Expr::Index(index) => match &*index.index {
                Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Int(number),
                    ..
                }) => {
                    format!("{}.{}", self.hint(&index.expr), number.base10_digits())
                }
                _ => self.hint(&index.expr),
            },
            Expr::MethodCall(call) => self.hint(&call.receiver),
            Expr::Reference(reference) => self.hint(&reference.expr),
            Expr::Paren(inner) => self.hint(&inner.expr),
            Expr::Try(inner) => self.hint(&inner.expr),
            Expr::Unary(inner) => self.hint(&inner.expr),
            _ => String::new(),
        }
    }

    fn is_recorded(&self, call: &ExprMethodCall) -> bool {
        let method = call.method.to_string();
        let on_self = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self"));
        let on_variant = root(&call.receiver).is_some_and(|name| self.variants.contains(&name));
        method.starts_with("forward") && !on_variant && !(on_self && self.skipped.contains(&method))
    }

    fn bind(&mut self, pattern: &Pat, source: &Expr) {
        let field = self.hint(source);
        if field.is_empty() {
            return;
        }
        let mut variable = pattern;
        loop {
            variable = match variable {
                // `for (i, layer) in self.layers.iter().enumerate()`
                Pat::Tuple(tuple) => match tuple.elems.last() {
                    Some(last) => last,
                    None => return,
                },
                Pat::Reference(reference) => &reference.pat,
                // `if let Some(norm) = &self.norm`
                Pat::TupleStruct(tuple) => match tuple.elems.last() {
                    Some(last) => last,
                    None => return,
                },
                _ => break,
            };
        }
        if let Pat::Ident(ident) = variable {
            self.bindings.push((ident.ident.to_string(), field));
        }
    }

    /// The expression to look at where `expression` can be looked at before the call without moving,
    /// borrowing for long, or running anything: a variable, a field, an element, a borrow of one.
    fn place(&self, expression: &Expr) -> Option<TokenStream> {
        match expression {
            Expr::Reference(ExprReference { expr, .. }) if self.is_place(expr) => {
                Some(quote!(#expr))
            }
            expression if self.is_place(expression) => Some(quote!(#expression)),
            _ => None,
        }
    }

    fn is_place(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path
                .path
                .get_ident()
                .is_some_and(|name| self.variables.contains(&name.to_string())),
            Expr::Lit(_) => true,
            Expr::Field(field) => self.is_place(&field.base),
            Expr::Index(index) => self.is_place(&index.expr) && self.is_place(&index.index),
            Expr::Paren(inner) => self.is_place(&inner.expr),
            Expr::Unary(unary) => {
                matches!(unary.op, syn::UnOp::Deref(_)) && self.is_place(&unary.expr)
            }
            _ => false,
        }
    }

    fn rewrite(&self, call: ExprMethodCall, awaited: bool) -> Expr {
        let krate = self.krate;
        let method = call.method.to_string();
        let hint = self.hint(&call.receiver);
        let mut hoisted: Vec<Expr> = Vec::new();
        let mut names = Vec::new();
        let mut arguments: Vec<Expr> = Vec::new();
        let mut captures: Vec<TokenStream> = Vec::new();
        let call_arguments: Vec<&Expr> = call.args.iter().collect();
        for (index, argument) in call_arguments.iter().copied().enumerate() {
            // A variable that a later argument mentions may be changed by it: its value is taken first.
            let changed = root(argument).is_some_and(|name| {
                call_arguments[index + 1..]
                    .iter()
                    .any(|later| self.place(later).is_none() && mentions(later, &name))
            });
            let shown = match self.place(argument) {
                Some(place) if !changed => {
                    arguments.push(argument.clone());
                    quote!(&#place)
                }
                // A closure's type often follows from the parameter: it must stay where it is.
                _ if matches!(argument, Expr::Closure(_)) => {
                    arguments.push(argument.clone());
                    quote!(&#krate::__private::Literally("<closure>"))
                }
                _ => {
                    let name = format_ident!("__burnscope_arg_{}", names.len());
                    hoisted.push(argument.clone());
                    arguments.push(parse_quote!(#name));
                    names.push(name.clone());
                    quote!(&#name)
                }
            };
            captures.push(quote! {
                __burnscope_inputs.positional(|__burnscope_recorder| {
                    (&&#krate::__private::ValueProbe(#shown)).capture(__burnscope_recorder)
                });
            });
        }
        // A receiver that is more than a place is evaluated once, into a binding.
        let (bound, receiver): (Option<&Expr>, Expr) = match self.place(&call.receiver) {
            Some(_) => (None, (*call.receiver).clone()),
            None => (Some(&call.receiver), parse_quote!(__burnscope_receiver)),
        };
        let ExprMethodCall {
            attrs,
            method: ident,
            turbofish,
            ..
        } = &call;
        let run = quote!(#receiver.#ident #turbofish(#(#arguments),*));
        // Never runs: it tells the compiler the types of the arguments, which may follow from nothing
        // but the call (`None`, `x.into()`, a generic function), before they are looked at.
        let types = (!names.is_empty()).then(|| {
            quote! {
                #[allow(unreachable_code, clippy::diverging_sub_expression, clippy::let_underscore_future)]
                if false {
                    let _ = #run;
                    ::core::unreachable!()
                }
            }
        });
        let run = if awaited {
            quote!(#krate::__private::in_scope(__burnscope_call.as_ref(), #run).await)
        } else {
            quote!({
                let __burnscope_entered = #krate::__private::enter(__burnscope_call.as_ref());
                #run
            })
        };
        let mut body = quote! {{
            #types
            let __burnscope_call = if #krate::__private::active() {
                #krate::__private::enter_call(
                    (&&&#krate::__private::ModuleProbe(&#receiver)).identify(),
                    #method,
                    #hint,
                    |__burnscope_inputs| { #(#captures)* },
                )
            } else {
                ::core::option::Option::None
            };
            let __burnscope_out = #run;
            if let ::core::option::Option::Some(__burnscope_call) = __burnscope_call {
                __burnscope_call.returned(|__burnscope_recorder| {
                    (&&#krate::__private::ValueProbe(&__burnscope_out)).capture(__burnscope_recorder)
                });
            }
            __burnscope_out
        }};
        // `match` keeps temporaries alive as long as the call itself would have, and nests in the order
        // of the source: the receiver, then the arguments.
        if !hoisted.is_empty() {
            body = quote!((match (#(#hoisted,)*) { (#(#names,)*) => #body }));
        }
        if let Some(expression) = bound {
            body = quote!((match #expression { __burnscope_receiver => #body }));
        }
        parse_quote!(#(#attrs)* #body)
    }
}

/// Collects the names that patterns bind.
struct Names(HashSet<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.insert(pattern.ident.to_string());
        syn::visit::visit_pat_ident(self, pattern);
    }
}

/// The variable that a place begins with.
fn root(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Field(field) => root(&field.base),
        Expr::Index(index) => root(&index.expr),
        Expr::Paren(inner) => root(&inner.expr),
        Expr::Reference(inner) => root(&inner.expr),
        Expr::Unary(unary) => root(&unary.expr),
        _ => None,
    }
}

/// Whether a name occurs anywhere in an expression, macros included.
fn mentions(expression: &Expr, name: &str) -> bool {
    fn within(tokens: TokenStream, name: &str) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => ident == name,
            proc_macro2::TokenTree::Group(group) => within(group.stream(), name),
            _ => false,
        })
    }
    within(quote!(#expression), name)
}

/// The names that a method's parameters and patterns bind. A name that is none of them is a function
/// or a constant: its type may follow from the call it is passed to, so it is evaluated before.
fn variables(method: &ImplItemFn) -> HashSet<String> {
    let mut names = Names(HashSet::from(["self".to_owned()]));
    names.visit_impl_item_fn(method);
    names.0
}

impl VisitMut for CallRewriter<'_> {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        let known = self.bindings.len();
        match expression {
            Expr::Match(choice)
                if root(&choice.expr).is_some_and(|name| name == "self")
                    && !matches!(&*choice.expr, Expr::Field(_)) =>
            {
                for arm in &choice.arms {
                    let mut names = Names(HashSet::new());
                    names.visit_pat(&arm.pat);
                    self.variants.extend(names.0);
                }
            }
            Expr::ForLoop(repeat) => self.bind(&repeat.pat.clone(), &repeat.expr.clone()),
            Expr::If(branch) => {
                if let Expr::Let(condition) = &*branch.cond {
                    self.bind(&condition.pat.clone(), &condition.expr.clone());
                }
            }
            _ => {}
        }
        syn::visit_mut::visit_expr_mut(self, expression);
        match expression {
            Expr::Await(wait) => {
                // The call inside was left alone below: the scope must last until the future is ready.
                if let Expr::MethodCall(call) = &*wait.base
                    && self.is_recorded(call)
                {
                    *expression = self.rewrite(call.clone(), true);
                }
            }
            Expr::MethodCall(call) if self.is_recorded(call) => {
                *expression = self.rewrite(call.clone(), false)
            }
            _ => {}
        }
        self.bindings.truncate(known);
    }

    fn visit_expr_await_mut(&mut self, wait: &mut syn::ExprAwait) {
        match &mut *wait.base {
            Expr::MethodCall(call) if self.is_recorded(call) => {
                syn::visit_mut::visit_expr_method_call_mut(self, call);
            }
            base => self.visit_expr_mut(base),
        }
    }

    /// The expressions in the standard library's own macros are ordinary arguments.
    fn visit_macro_mut(&mut self, call: &mut Macro) {
        const EXPRESSION_LISTS: [&str; 19] = [
            "vec",
            "assert",
            "assert_eq",
            "assert_ne",
            "debug_assert",
            "debug_assert_eq",
            "dbg",
            "format",
            "print",
            "println",
            "eprint",
            "eprintln",
            "debug_assert_ne",
            "panic",
            "todo",
            "unimplemented",
            "unreachable",
            "write",
            "writeln",
        ];
        if call
            .path
            .get_ident()
            .is_none_or(|name| EXPRESSION_LISTS.iter().all(|known| name != known))
        {
            return;
        }
        // `vec![element; count]`
        if let Ok(mut repeat) = syn::parse2::<ExprRepeat>({
            let tokens = &call.tokens;
            quote!([#tokens])
        }) {
            self.visit_expr_mut(&mut repeat.expr);
            let ExprRepeat { expr, len, .. } = &repeat;
            call.tokens = quote!(#expr; #len);
            return;
        }
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(mut arguments) = parser.parse2(call.tokens.clone()) {
            for argument in &mut arguments {
                self.visit_expr_mut(argument);
            }
            call.tokens = quote!(#arguments);
        }
    }

    /// A function, impl or module inside the body is not part of it.
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
}
