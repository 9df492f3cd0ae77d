//! The functions that our attributes stand on.

use darling::Error;
use darling::error::Accumulator;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::visit::Visit;
use syn::{Attribute, FnArg, Ident, ItemFn, ReturnType, Type};

use crate::value::ident;

/// A free function whose arguments have types that can be named.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) is_async: bool,
    pub(crate) arguments: Vec<Type>,
    pub(crate) returns: Returns,
    /// Its `#[cfg(…)]`: where it is not compiled, neither is what we write about it.
    pub(crate) cfgs: Vec<Attribute>,
}

/// What a function returns.
pub(crate) enum Returns {
    Nothing,
    Type(Box<Type>),
}

/// What a function is to be, as errors put it.
pub(crate) struct Role {
    /// `#[processor]`
    pub(crate) attribute: &'static str,
    /// `a processor`
    pub(crate) noun: &'static str,
    /// What follows after "move it out of the `impl`".
    pub(crate) instead_of_self: &'static str,
}

pub(crate) const PROCESSOR: Role = Role {
    attribute: "#[processor]",
    noun: "a processor",
    instead_of_self: " and take what it needs as `Dep<T>`",
};
pub(crate) const PROVIDER: Role =
    Role { attribute: "#[provide]", noun: "a provider", instead_of_self: PROCESSOR.instead_of_self };
pub(crate) const TEST: Role = Role { attribute: "#[bus::test]", noun: "a test", instead_of_self: "" };

impl Function {
    /// Reads the item.
    pub(crate) fn read(item: TokenStream, role: &Role) -> Result<Self, Error> {
        let function: ItemFn = syn::parse2(item.clone()).map_err(|_| {
            Error::custom(format!("`{}` stands on a free function, and this is none", role.attribute))
                .with_span(&first(&item))
        })?;
        let mut errors = Error::accumulator();
        refuse_modifiers(&function, role, &mut errors);
        let arguments = arguments(&function, role.noun, &mut errors);
        errors.finish()?;
        Ok(Function {
            name: function.sig.ident,
            is_async: function.sig.asyncness.is_some(),
            arguments,
            returns: match function.sig.output {
                ReturnType::Default => Returns::Nothing,
                ReturnType::Type(_, ty) => Returns::Type(ty),
            },
            cfgs: function.attrs.into_iter().filter(|a| a.path().is_ident("cfg")).collect(),
        })
    }

    /// The return type, to be given to a generic function; `_` where it has no name.
    pub(crate) fn returned(&self) -> TokenStream {
        match &self.returns {
            Returns::Nothing => crate::spanned::at(&self.name, quote!(())),
            Returns::Type(ty) if has_impl_trait(ty) => quote!(_),
            Returns::Type(ty) => ty.to_token_stream(),
        }
    }
}

fn first(item: &TokenStream) -> TokenStream {
    item.clone().into_iter().take(1).collect()
}

fn refuse_modifiers(function: &ItemFn, role: &Role, errors: &mut Accumulator) {
    let (sig, noun) = (&function.sig, role.noun);
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        let at: TokenStream = match sig.generics.params.is_empty() {
            true => sig.generics.where_clause.to_token_stream(),
            false => sig.generics.params.to_token_stream(),
        };
        errors.push(
            Error::custom(format!(
                "{noun} cannot be generic: nobody names its types when it is called; write them out"
            ))
            .with_span(&at),
        );
    }
    if let Some(abi) = &sig.abi {
        errors.push(
            Error::custom(format!("{noun} is an ordinary Rust function: leave `extern` out")).with_span(abi),
        );
    }
    if matches!(&sig.inputs.first(), Some(FnArg::Receiver(_))) {
        errors.push(
            Error::custom(format!(
                "{noun} is a free function: move it out of the `impl`{}",
                role.instead_of_self
            ))
            .with_span(&sig.inputs[0]),
        );
    }
}

fn arguments(function: &ItemFn, noun: &str, errors: &mut Accumulator) -> Vec<Type> {
    let mut types = Vec::new();
    for input in &function.sig.inputs {
        let FnArg::Typed(argument) = input else { continue };
        if has_impl_trait(&argument.ty) {
            errors.push(
                Error::custom(format!(
                    "{noun} cannot be generic: write the argument's type instead of `impl …`"
                ))
                .with_span(&argument.ty),
            );
        }
        types.push((*argument.ty).clone());
    }
    types
}

fn has_impl_trait(ty: &Type) -> bool {
    struct Finder(bool);
    impl<'ast> Visit<'ast> for Finder {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut finder = Finder(false);
    finder.visit_type(ty);
    finder.0
}

/// `(A, (B, ()))`, from the expressions or patterns for A and B.
pub(crate) fn chain(links: impl DoubleEndedIterator<Item = TokenStream>) -> TokenStream {
    links.rfold(quote!(()), |rest, link| quote!((#link, #rest)))
}

/// Names for `count` arguments.
pub(crate) fn argument_names(count: usize) -> Vec<Ident> {
    (0..count).map(|i| ident(&format!("__bus_{i}"))).collect()
}

/// Where the function stands, as an expression.
pub(crate) fn about(krate: &syn::Path, name: &Ident) -> TokenStream {
    let text = name.to_string();
    let text = text.trim_start_matches("r#");
    quote!(#krate::__private::About::new(
        &#name,
        #text,
        #krate::__private::module_path!(),
        #krate::__private::file!(),
        #krate::__private::line!(),
    ))
}

/// The arguments of a processor of that kind, as statements that demand extractors and as a chain.
pub(crate) fn extractors(krate: &syn::Path, types: &[Type], kind: &str) -> (TokenStream, TokenStream) {
    let kind = ident(kind);
    let demands = types.iter().map(|ty| {
        let after = quote!(, #krate::__private::#kind>());
        crate::spanned::around(quote!(#krate::__private::extractor::<), ty, after)
    });
    let links = types.iter().map(|ty| {
        let probe = quote!(#krate::__private::Probe::<#ty, #krate::__private::#kind>::NEW);
        quote!((&#probe).link())
    });
    let statements = quote! {
        #[allow(unused_imports, reason = "a processor without further arguments needs neither")]
        use #krate::__private::{LinkToExtractor as _, LinkToNothing as _};
        #(#demands;)*
    };
    (statements, chain(links))
}

/// The user's item with its errors and nothing else.
pub(crate) fn with_errors(item: TokenStream, errors: Error) -> TokenStream {
    let errors = errors.write_errors();
    quote!(#item #errors)
}

/// Where to point for what a function as a whole lacks: its name.
pub(crate) fn at_name(message: String, function: &Function) -> Error {
    Error::custom(message).with_span(&function.name.span())
}
