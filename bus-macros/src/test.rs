//! `#[bus::test]`.

use darling::{Error, FromMeta};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, Path, Type};

use crate::function::{Function, Returns, TEST, at_name, with_errors};
use crate::value::ident;
use crate::{attribute, krate};

#[derive(FromMeta)]
struct Keys {
    #[darling(rename = "crate")]
    krate: Option<Path>,
}

/// A test as the macro alone can judge it.
struct Test {
    krate: Path,
    item: ItemFn,
}

pub(crate) fn attribute(attribute: TokenStream, item: TokenStream) -> TokenStream {
    match read(attribute, item.clone()) {
        Ok(test) => expand(test),
        Err(errors) => with_errors(item, errors),
    }
}

fn read(attribute: TokenStream, item: TokenStream) -> Result<Test, Error> {
    let mut errors = Error::accumulator();
    let keys = errors.handle_in(|| Keys::from_list(&attribute::items(attribute)?));
    let item = errors.handle_in(|| judged(item));
    let (Some(keys), Some(item)) = errors.finish_with((keys, item))? else {
        return Err(Error::custom("`bus-macros` lost an error; please report it"));
    };
    Ok(Test { krate: krate::path(keys.krate.as_ref()), item })
}

/// The function, if it can be a test.
fn judged(item: TokenStream) -> Result<ItemFn, Error> {
    let function = Function::read(item.clone(), &TEST)?;
    let mut errors = Error::accumulator();
    if !function.is_async {
        errors.push(at_name(
            format!(
                "a test in virtual time is an `async fn`: write `async fn {}`, or Rust's own `#[test]`",
                function.name
            ),
            &function,
        ));
    }
    let host = |ty: &Type| last_segment(ty).is_some_and(|name| name == "TestHost");
    let surplus = function.arguments.iter().enumerate().filter(|(at, ty)| *at > 0 || !host(ty));
    errors.extend(surplus.map(|(_, ty)| {
        Error::custom("a test takes nothing, or one `host: TestHost`; build any other host inside of it")
            .with_span(ty)
    }));
    if let Returns::Type(ty) = &function.returns
        && !may_be_returned(ty)
    {
        errors.push(Error::custom("a test returns `()` or `Result<(), E>`").with_span(ty));
    }
    errors.finish()?;
    Ok(syn::parse2(item)?)
}

/// Whether it is `()`, or a `Result` by its name: `Result<()>`, `anyhow::Result<()>`, `MyResult`. What it holds is left
/// to the compiler.
fn may_be_returned(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(unit) if unit.elems.is_empty())
        || last_segment(ty).is_some_and(|name| name.ends_with("Result"))
}

fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// The test, with the user's function inside of it: all attributes (`#[ignore]`, `#[cfg]`, documentation) are about the
/// test.
fn expand(Test { krate, item }: Test) -> TokenStream {
    let ItemFn { attrs, vis, sig, block, .. } = item;
    let name = &sig.ident;
    let run = ident(if sig.inputs.is_empty() { "run" } else { "run_with_host" });
    quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis fn #name() {
            #sig #block
            #krate::__private::#run(#name);
        }
    }
}
