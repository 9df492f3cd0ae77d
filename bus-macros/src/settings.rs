//! `#[derive(Settings)]`.

use darling::{Error, FromDeriveInput};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Path};

use crate::value::{Tuned, TunedKey, ident};
use crate::{krate, spanned};

#[derive(Default, FromDeriveInput)]
#[darling(attributes(settings))]
struct Settings {
    #[darling(flatten)]
    tuned: Tuned,
    #[darling(rename = "crate")]
    krate: Option<Path>,
}

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    // After an error the trait is implemented all the same, else each use of the type would be one more error.
    let (settings, errors) = match Settings::from_derive_input(&input) {
        Ok(settings) => (settings, None),
        Err(errors) => (Settings::default(), Some(errors)),
    };
    expand(&input, &settings, errors)
}

fn expand(input: &DeriveInput, settings: &Settings, errors: Option<Error>) -> TokenStream {
    let krate = krate::path(settings.krate.as_ref());
    let keys = settings.tuned.keys(&krate);
    let checks = keys.iter().map(|key| check(&krate, key));
    let constants = keys.iter().map(|key| constant(&krate, key));
    let (ty, errors) = (&input.ident, errors.map(Error::write_errors));
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let items = krate::quiet(&quote! {
        #(#checks)*
        #[automatically_derived]
        impl #generics #krate::__private::Settings for #ty #arguments #bounds {
            #(#constants)*
        }
    });
    quote!(#errors #items)
}

/// The judgement of what was written, pointing at it: whether it can be read, and whether its value makes sense.
pub(crate) fn check(krate: &Path, key: &TunedKey) -> TokenStream {
    let TunedKey { fault, readable, .. } = key;
    let sensible = spanned::at(&key.written, quote!(#krate::__private::require(#fault, "", "", "")));
    quote!(#(const _: () = #readable;)* const _: () = #sensible;)
}

fn constant(krate: &Path, key: &TunedKey) -> TokenStream {
    let TunedKey { ty, value, fault, .. } = key;
    let name = ident(key.constant);
    quote! {
        const #name: #krate::__private::Option<#ty> = #krate::__private::unless(#fault, #value);
    }
}
