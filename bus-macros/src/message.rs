//! `#[derive(Command)]` and `#[derive(Event)]`.

use darling::{Error, FromDeriveInput};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Path};

use crate::krate;
use crate::value::{Checked, Name, ident};

#[derive(FromDeriveInput)]
#[darling(attributes(command))]
struct Command {
    queue: Option<Name>,
    transport: Option<Name>,
    #[darling(rename = "crate")]
    krate: Option<Path>,
}

#[derive(FromDeriveInput)]
#[darling(attributes(event))]
struct Event {
    topic: Option<Name>,
    transport: Option<Name>,
    #[darling(rename = "crate")]
    krate: Option<Path>,
}

/// What the two derives have in common.
#[derive(Default)]
struct Message {
    /// Its queue or topic.
    name: Option<Name>,
    transport: Option<Name>,
    krate: Option<Path>,
}

/// The words in which the two differ.
struct Kind {
    derive: &'static str,
    constant: &'static str,
    what: &'static str,
    example: &'static str,
}

const COMMAND: Kind =
    Kind { derive: "Command", constant: "QUEUE", what: "queue", example: "#[command(queue = \"my-queue\")]" };
const EVENT: Kind =
    Kind { derive: "Event", constant: "TOPIC", what: "topic", example: "#[event(topic = \"my-topic\")]" };

pub(crate) fn derive_command(item: TokenStream) -> TokenStream {
    derive(item, &COMMAND, |input| {
        let Command { queue, transport, krate } = Command::from_derive_input(input)?;
        Ok(Message { name: queue, transport, krate })
    })
}

pub(crate) fn derive_event(item: TokenStream) -> TokenStream {
    derive(item, &EVENT, |input| {
        let Event { topic, transport, krate } = Event::from_derive_input(input)?;
        Ok(Message { name: topic, transport, krate })
    })
}

fn derive(
    item: TokenStream,
    kind: &Kind,
    parse: fn(&DeriveInput) -> darling::Result<Message>,
) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    if !input.generics.params.is_empty() {
        // Nothing could be implemented, so there is nothing else to say either.
        return Error::custom(format!(
            "a message with generics cannot be {}: each {} carries one type",
            if kind.what == "queue" { "a command" } else { "an event" },
            kind.what
        ))
        .with_span(&input.generics.params)
        .write_errors();
    }
    let (message, errors) = match parse(&input) {
        Ok(message) => validate(message, &input, kind),
        Err(errors) => (Message::default(), Some(errors)),
    };
    expand(&input, kind, &message, errors)
}

fn validate(message: Message, input: &DeriveInput, kind: &Kind) -> (Message, Option<Error>) {
    let missing = message.name.is_none().then(|| {
        Error::custom(format!("`{}` has no {}: write `{}`", input.ident, kind.what, kind.example))
            .with_span(&input.ident)
    });
    (message, missing)
}

/// The impls are written after errors too: without them, each use of the message would be one more error.
fn expand(input: &DeriveInput, kind: &Kind, message: &Message, errors: Option<Error>) -> TokenStream {
    let krate = krate::path(message.krate.as_ref());
    let ty = &input.ident;
    let type_name = ty.to_string();
    let type_name = type_name.trim_start_matches("r#");
    let name = message.name.as_ref().map(|name| name.expand(&krate, kind.what));
    let transport = message.transport.as_ref().map(|name| name.expand(&krate, "transport"));
    let checks = [&name, &transport].into_iter().flatten().map(|Checked { check, .. }| check);
    let name = match &name {
        Some(name) => name.value.clone(),
        None => quote!("invalid"),
    };
    let transport = transport
        .as_ref()
        .map(|Checked { value, .. }| quote!(const TRANSPORT: &'static #krate::__private::str = #value;));
    let (derive, constant) = (ident(kind.derive), ident(kind.constant));
    let errors = errors.map(Error::write_errors);
    let items = krate::quiet(&quote! {
        #(const _: () = #checks;)*
        #[automatically_derived]
        impl #krate::__private::Message for #ty {
            const TYPE: &'static #krate::__private::str = #type_name;
            #transport
        }
        #[automatically_derived]
        impl #krate::__private::#derive for #ty {
            const #constant: &'static #krate::__private::str = #name;
        }
    });
    quote!(#errors #items)
}
