//! `#[provide]`, `#[provide(scoped)]` and `#[provide(scoped, dispose = …)]`.

use darling::ast::NestedMeta;
use darling::util::Flag;
use darling::{Error, FromMeta};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Path, Type};

use crate::function::{
    Function, PROVIDER, Returns, about, argument_names, at_name, chain, extractors, with_errors,
};
use crate::value::{FunctionPath, ident};
use crate::{attribute, krate, spanned};

#[derive(FromMeta)]
struct Keys {
    scoped: Flag,
    dispose: Option<FunctionPath>,
    #[darling(rename = "crate")]
    krate: Option<Path>,
}

impl Keys {
    fn read(items: &[NestedMeta]) -> Result<Self, Error> {
        let keys = Keys::from_list(items)?;
        match &keys.dispose {
            Some(FunctionPath(function)) if !keys.scoped.is_present() => Err(Error::custom(
                "`dispose` is for a message's values: write `#[provide(scoped, dispose = …)]`; what the whole host shares \
                 is dropped with it, or put away by a plugin",
            )
            .with_span(function)),
            _ => Ok(keys),
        }
    }
}

/// A provider as the macro alone can judge it.
struct Provider {
    krate: Path,
    scoped: bool,
    dispose: Option<FunctionPath>,
    function: Function,
    product: Type,
}

pub(crate) fn attribute(attribute: TokenStream, item: TokenStream) -> TokenStream {
    match read(attribute, item.clone()) {
        Ok(provider) => {
            let registration = registration(&provider);
            quote!(#item #registration)
        }
        Err(errors) => with_errors(item, errors),
    }
}

fn read(attribute: TokenStream, item: TokenStream) -> Result<Provider, Error> {
    let mut errors = Error::accumulator();
    let keys = errors.handle_in(|| Keys::read(&attribute::items(attribute)?));
    let function = errors.handle_in(|| function(item));
    let (Some(keys), Some((function, product))) = errors.finish_with((keys, function))? else {
        return Err(Error::custom("`bus-macros` lost an error; please report it"));
    };
    Ok(Provider {
        krate: krate::path(keys.krate.as_ref()),
        scoped: keys.scoped.is_present(),
        dispose: keys.dispose,
        function,
        product,
    })
}

fn function(item: TokenStream) -> Result<(Function, Type), Error> {
    let function = Function::read(item, &PROVIDER)?;
    match &function.returns {
        Returns::Type(ty) => {
            let product = (**ty).clone();
            Ok((function, product))
        }
        Returns::Nothing => Err(at_name(
            format!("a provider returns what it provides: write `fn {}(…) -> MyValue`", function.name),
            &function,
        )),
    }
}

fn registration(provider: &Provider) -> TokenStream {
    let Provider { krate, scoped, dispose, function, product } = provider;
    let (about, cfgs) = (about(krate, &function.name), &function.cfgs);
    let constructor =
        ident(if *scoped { "for_message_whose_future_is_send" } else { "for_host_whose_future_is_send" });
    let provides = ident(if is_result(product) { "provides_result" } else { "provides" });
    let disposed_by = ident(if is_result(product) { "result_disposed_by" } else { "disposed_by" });
    let disposed = dispose.as_ref().map(|FunctionPath(function)| {
        spanned::call(function, quote!(.#disposed_by), function.to_token_stream())
    });
    let (demands, args) = arguments(provider);
    let call = call(provider);
    let provider = spanned::call(
        &function.name,
        quote!(#krate::__private::Provider::#constructor),
        quote!(#about, #krate::__private::#provides::<#product>() #disposed, #args, #call),
    );
    let items = krate::quiet(&quote! {
        fn __bus_register() -> #krate::__private::Entry {
            #demands
            #krate::__private::Entry::Provider(#provider)
        }
        #krate::__private::submit! { #krate::__private::Registration(__bus_register) }
    });
    quote!(#(#cfgs)* #items)
}

/// The arguments, as statements that demand that each can be one, and as a chain.
fn arguments(provider: &Provider) -> (TokenStream, TokenStream) {
    let Provider { krate, function, .. } = provider;
    if provider.scoped {
        return extractors(krate, &function.arguments, "Plain");
    }
    let links = function.arguments.iter().map(|ty| quote!(#krate::__private::host_arg::<#ty>()));
    (TokenStream::new(), chain(links))
}

/// The call. It points at the function's name, where an error about its future belongs.
fn call(provider: &Provider) -> TokenStream {
    let Provider { krate, function, .. } = provider;
    let name = &function.name;
    let arguments = argument_names(function.arguments.len());
    let pattern = chain(arguments.iter().map(ToTokens::to_token_stream));
    let call = match function.is_async {
        true => quote!(#name(#(#arguments),*)),
        false => quote!(#krate::__private::ready(#name(#(#arguments),*))),
    };
    spanned::at(name, quote!(|#pattern| #call))
}

/// Whether the type is a `Result`, by its name: `Result<T>`, `anyhow::Result<T>`, `io::Result<T>`, `MyResult`.
fn is_result(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().is_some_and(|s| s.ident.to_string().ends_with("Result"))
        }
        _ => false,
    }
}
