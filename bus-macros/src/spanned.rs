//! Code that points at the user's code.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// `ours` with the place of `theirs` in the source: errors about it point there.
///
/// The first token gets the place where `theirs` begins and all others the place where it ends, since the compiler shows what lies from
/// the first token of an expression to its last (stable Rust cannot join two spans).
pub(crate) fn at(theirs: &impl ToTokens, ours: TokenStream) -> TokenStream {
    let mut tokens = theirs.to_token_stream().into_iter().map(|token| token.span());
    let begin = tokens.next().unwrap_or_else(Span::call_site);
    let end = tokens.last().unwrap_or(begin);
    let mut first = true;
    ours.into_iter()
        .map(|token| {
            let span = if std::mem::take(&mut first) { begin } else { end };
            place(token, span)
        })
        .collect()
}

fn place(mut token: TokenTree, span: Span) -> TokenTree {
    if let TokenTree::Group(group) = token {
        let inner = group.stream().into_iter().map(|token| place(token, span)).collect();
        token = TokenTree::Group(Group::new(group.delimiter(), inner));
    }
    token.set_span(span);
    token
}
