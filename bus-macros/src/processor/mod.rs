//! `#[processor]`.

mod expand;
mod parse;

use darling::Error;
use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

use crate::function::{Function, PROCESSOR, at_name, with_errors};
use crate::{attribute, krate};
use parse::Keys;

/// A processor as the macro alone can judge it.
struct Processor {
    krate: Path,
    keys: Keys,
    function: Function,
}

pub(crate) fn attribute(attribute: TokenStream, item: TokenStream) -> TokenStream {
    match read(attribute, item.clone()) {
        Ok(processor) => {
            let registration = expand::registration(&processor);
            quote!(#item #registration)
        }
        Err(errors) => with_errors(item, errors),
    }
}

fn read(attribute: TokenStream, item: TokenStream) -> Result<Processor, Error> {
    let mut errors = Error::accumulator();
    let keys = errors.handle_in(|| Keys::read(attribute::items(attribute)?));
    let function = errors.handle_in(|| function(item));
    let (Some(keys), Some(function)) = errors.finish_with((keys, function))? else {
        return Err(Error::custom("`bus-macros` lost an error; please report it"));
    };
    Ok(Processor { krate: krate::path(keys.krate.as_ref()), keys, function })
}

fn function(item: TokenStream) -> Result<Function, Error> {
    let function = Function::read(item, &PROCESSOR)?;
    let mut errors = Error::accumulator();
    if !function.is_async {
        errors.push(at_name(
            format!("a processor is an `async fn`: write `async fn {}`", function.name),
            &function,
        ));
    }
    if function.arguments.is_empty() {
        errors.push(at_name(
            format!(
                "a processor takes its message as the first argument: write `async fn {}(message: MyCommand)`",
                function.name
            ),
            &function,
        ));
    }
    errors.finish_with(function)
}
