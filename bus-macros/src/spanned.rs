//! Code that points at the user's code.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// `ours` with the place of `theirs` in the source: errors about it point there.
///
/// The first token gets the place where `theirs` begins and all others the place where it ends, since the compiler shows
/// what lies from the first token of an expression to its last (stable Rust cannot join two spans).
pub(crate) fn at(theirs: &impl ToTokens, ours: TokenStream) -> TokenStream {
    let (begin, end) = ends(theirs);
    let mut first = true;
    ours.into_iter().map(|token| place(token, if std::mem::take(&mut first) { begin } else { end })).collect()
}

/// `before`, `theirs` and `after`, in which all of ours points at `theirs`. What the user wrote keeps its own places, so
/// that an error in it (a type that does not exist) is the same error as in the user's own code, and is shown once.
pub(crate) fn around(before: TokenStream, theirs: &impl ToTokens, after: TokenStream) -> TokenStream {
    let (begin, end) = ends(theirs);
    let mut all: TokenStream = before.into_iter().map(|token| place(token, begin)).collect();
    theirs.to_tokens(&mut all);
    all.extend(after.into_iter().map(|token| place(token, end)));
    all
}

/// A call of `function` that as a whole points at `theirs`; the arguments keep their own places.
pub(crate) fn call(theirs: &impl ToTokens, function: TokenStream, arguments: TokenStream) -> TokenStream {
    let (_, end) = ends(theirs);
    let mut all = at(theirs, function);
    let mut group = Group::new(Delimiter::Parenthesis, arguments);
    group.set_span(end);
    all.extend([TokenTree::Group(group)]);
    all
}

fn ends(theirs: &impl ToTokens) -> (Span, Span) {
    let mut tokens = theirs.to_token_stream().into_iter().map(|token| token.span());
    let begin = tokens.next().unwrap_or_else(Span::call_site);
    (begin, tokens.last().unwrap_or(begin))
}

fn place(mut token: TokenTree, span: Span) -> TokenTree {
    if let TokenTree::Group(group) = token {
        let inner = group.stream().into_iter().map(|token| place(token, span)).collect();
        token = TokenTree::Group(Group::new(group.delimiter(), inner));
    }
    token.set_span(span);
    token
}
