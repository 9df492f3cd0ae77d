//! What `#[processor]` writes behind the function.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Path, Type};

use super::Processor;
use super::parse::Keys;
use crate::function::{about, argument_names, chain, extractors};
use crate::krate::quiet;
use crate::spanned;
use crate::value::{Checked, FunctionPath, SETTINGS, ident};

/// The registration, and the checks that only the compiler can make. Names begin with `__bus` because items are not
/// hygienic: the user's function, which is called from in here, may be named like anything.
pub(super) fn registration(processor: &Processor) -> TokenStream {
    let Processor { krate, keys, function } = processor;
    let (subscription_check, source) = source(processor);
    let (settings_checks, tuned) = tuned(processor);
    let message = &function.arguments[0];
    let (about, cfgs) = (about(krate, &function.name), &function.cfgs);
    let kind = if processor.keys.singleton.is_present() { "Singleton" } else { "Plain" };
    let (demands, args) = extractors(krate, &function.arguments[1..], kind);
    let tuning = tuning(processor);
    let (outcome, call) = (outcome(processor), call(processor));
    let processor = spanned::call(
        &function.name,
        quote!(#krate::__private::Processor::whose_future_is_send),
        quote!(#about, __BUS_SOURCE, #tuning, #args, #outcome, #call),
    );
    let processor = before_dead_letter(keys, krate, kind, processor);
    let processor = middleware(keys, processor);
    let items = quiet(&quote! {
        #subscription_check
        const __BUS_SOURCE: #krate::__private::Source<#message> = #source;
        const __BUS_TUNED: #krate::__private::Tuned = #tuned;
        #settings_checks
        fn __bus_register() -> #krate::__private::Entry {
            #demands
            #krate::__private::Entry::Processor(#processor)
        }
        #krate::__private::submit! { #krate::__private::Registration(__bus_register) }
    });
    quote!(#(#cfgs)* #items)
}

/// Where the messages come from: this is what demands that the message is a command, or an event.
fn source(processor: &Processor) -> (Option<TokenStream>, TokenStream) {
    let Processor { krate, keys, function } = processor;
    let message = &function.arguments[0];
    match &keys.subscription {
        None => (None, spanned::around(quote!(#krate::__private::Source::<), message, quote!(>::command()))),
        Some(name) => {
            let Checked { check, value } = name.expand(krate, "subscription");
            let name = quote!(#krate::__private::ConstName::new(#value));
            (
                Some(quote!(const _: () = #check;)),
                spanned::around(quote!(#krate::__private::Source::<), message, quote!(>::event(#name))),
            )
        }
    }
}

/// The tuned settings, and the checks of them: of each setting of the type, and of each inline key.
fn tuned(processor: &Processor) -> (TokenStream, TokenStream) {
    let Processor { krate, keys, .. } = processor;
    let singleton = keys.singleton.is_present();
    let mut checks = TokenStream::new();
    let mut tuned = quote!(#krate::__private::Tuned::of::<#krate::__private::Default>());
    if let Some(settings) = &keys.settings {
        let ty = settings.resolved(krate);
        tuned = spanned::around(quote!(#krate::__private::Tuned::of::<), &ty, quote!(>()));
        checks.extend(quote!(const __BUS_TYPE: #krate::__private::Tuned = #tuned;));
        tuned = quote!(__BUS_TYPE);
        for setting in SETTINGS {
            checks.extend(check_of_type(processor, &settings.0, setting, singleton));
        }
    }
    for key in keys.tuned.keys(krate) {
        let (with, value) = (ident(&format!("with_{}", key.key)), &key.value);
        tuned = quote!(#tuned.#with(#value));
        if singleton && not_for_singletons(key.setting) {
            let setting = ident(key.setting);
            let check = spanned::at(
                &key.written,
                quote!(#krate::__private::require(
                    #krate::__private::Tuned::of::<#krate::__private::Default>()
                        .#with(#value)
                        .why_no_singleton(#krate::__private::Setting::#setting),
                    "", "", "; leave it out"
                )),
            );
            checks.extend(quote!(const _: () = #check;));
        } else {
            checks.extend(crate::settings::check(krate, &key));
        }
    }
    (checks, tuned)
}

fn not_for_singletons(setting: &str) -> bool {
    matches!(setting, "MaxConcurrentCalls" | "PrefetchCount")
}

fn check_of_type(processor: &Processor, ty: &Type, setting: &str, singleton: bool) -> TokenStream {
    let krate = &processor.krate;
    let name = compact(ty);
    let before = format!("`{name}`: ");
    let (judge, after) = match singleton && not_for_singletons(setting) {
        true => (
            "why_no_singleton",
            format!("; write `settings = AsSingleton<{name}>`, or leave it out of `{name}`"),
        ),
        false => ("why_invalid", String::new()),
    };
    let (judge, setting) = (ident(judge), ident(setting));
    let check = spanned::at(
        ty,
        quote!(#krate::__private::require(
            __BUS_TYPE.#judge(#krate::__private::Setting::#setting), #before, "", #after
        )),
    );
    quote!(const _: () = #check;)
}

/// A type as a user would write it.
fn compact(ty: &Type) -> String {
    ty.to_token_stream().to_string().replace(' ', "")
}

fn tuning(processor: &Processor) -> TokenStream {
    let Processor { krate, keys, .. } = processor;
    let singleton = keys.singleton.is_present();
    let order = ident(keys.order());
    let inline = !keys.tuned.keys(krate).is_empty();
    let name = match (&keys.settings, inline) {
        (None, false) => "Default".to_owned(),
        (None, true) => "inline".to_owned(),
        (Some(ty), false) => compact(&ty.0),
        (Some(ty), true) => format!("{} and inline", compact(&ty.0)),
    };
    quote!(#krate::__private::Tuning::new(__BUS_TUNED, #singleton, #krate::__private::Order::#order, #name))
}

/// The processor with what it has done before a message is dead-lettered. Points at the name of that function.
fn before_dead_letter(keys: &Keys, krate: &Path, kind: &str, processor: TokenStream) -> TokenStream {
    let Some(FunctionPath(function)) = &keys.before_dead_letter else { return processor };
    let kind = ident(kind);
    let added = spanned::at(
        function,
        quote!(.before_dead_letter::<#krate::__private::#kind, _, _, _>(__BUS_SOURCE, #function)),
    );
    quote!(#processor #added)
}

/// The processor with its own middleware. Points at the name of each.
fn middleware(keys: &Keys, processor: TokenStream) -> TokenStream {
    let all = keys.middleware.iter().flat_map(|middleware| &middleware.0);
    let added = all.map(|one| spanned::call(one, quote!(.middleware), one.to_token_stream()));
    let added: TokenStream = added.collect();
    quote!(#processor #added)
}

/// The demand on what is returned.
fn outcome(processor: &Processor) -> TokenStream {
    let Processor { krate, function, .. } = processor;
    let returned = function.returned();
    quote!(#krate::__private::outcome::<#returned>())
}

/// The call. It points at the function's name, where an error about its future belongs.
fn call(processor: &Processor) -> TokenStream {
    let name = &processor.function.name;
    let arguments = argument_names(processor.function.arguments.len() - 1);
    let pattern = chain(arguments.iter().map(ToTokens::to_token_stream));
    spanned::at(name, quote!(|__bus_message, #pattern| #name(__bus_message, #(#arguments),*)))
}
