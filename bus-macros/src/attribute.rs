//! Reading `key = value, key(…), key` lists.

use darling::ast::NestedMeta;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, Meta, MetaNameValue, Token, Type};

/// The items of an attribute.
///
/// They are read one by one, because a type is no expression: in `settings = AsSingleton<Bulk>`, Rust's own reading
/// of attributes sees a comparison without an end.
pub(crate) fn items(tokens: TokenStream) -> darling::Result<Vec<NestedMeta>> {
    let parser = |input: ParseStream<'_>| {
        let mut items = Vec::new();
        while !input.is_empty() {
            items.push(item(input)?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(items)
    };
    parser.parse2(tokens).map_err(Into::into)
}

fn item(input: ParseStream<'_>) -> syn::Result<NestedMeta> {
    let ahead = input.fork();
    let takes_a_type =
        ahead.call(Ident::parse_any).is_ok_and(|key| key == "settings") && ahead.peek(Token![=]);
    if !takes_a_type {
        return input.parse();
    }
    let path = input.parse()?;
    let eq_token = input.parse()?;
    let ty: Type = input.parse().map_err(|e| {
        syn::Error::new(e.span(), "`settings` takes a type: write `settings = Bulk` or `settings = Default`")
    })?;
    let value = Expr::Verbatim(ty.to_token_stream());
    Ok(NestedMeta::Meta(Meta::NameValue(MetaNameValue { path, eq_token, value })))
}
