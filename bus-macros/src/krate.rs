//! Where generated code finds `bus`, and what keeps it quiet.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Path, parse_quote};

/// The path of `bus` in the crate that is being compiled: what `crate = path` says, else the name it has there.
pub(crate) fn path(given: Option<&Path>) -> Path {
    if let Some(path) = given {
        return path.clone();
    }
    // `bus` itself calls itself by its outside name too, so that this holds in its own examples. Where no `Cargo.toml`
    // can be read, it is the name it has most probably.
    let name = match crate_name("bus") {
        Ok(FoundCrate::Name(name)) => format_ident!("{name}"),
        Ok(FoundCrate::Itself) | Err(_) => format_ident!("bus"),
    };
    parse_quote!(::#name)
}

/// Our items, in a scope that adds no name to the user's module, and that no lint is heard of from: much of it carries
/// the user's spans, so that the compiler would take it for the user's.
pub(crate) fn quiet(items: &TokenStream) -> TokenStream {
    quote! {
        #[allow(
            deprecated,
            unused_qualifications,
            clippy::absolute_paths,
            reason = "a deprecated function is registered like any other, and all names are written out in full"
        )]
        const _: () = { #items };
    }
}
