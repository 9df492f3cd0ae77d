//! The keys of `#[processor(…)]`.

use darling::ast::NestedMeta;
use darling::util::Flag;
use darling::{Error, FromMeta};
use syn::{Expr, GenericArgument, LitStr, Meta, Path, PathArguments, Type};

use crate::value::{FunctionPath, Name, Tuned, wrong};

/// What stands in the parentheses.
#[derive(FromMeta)]
pub(super) struct Keys {
    pub(super) subscription: Option<Name>,
    pub(super) singleton: Flag,
    pub(super) settings: Option<SettingsType>,
    order: Option<Order>,
    pub(super) before_dead_letter: Option<FunctionPath>,
    pub(super) middleware: Option<MiddlewarePaths>,
    #[darling(flatten)]
    pub(super) tuned: Tuned,
    #[darling(rename = "crate")]
    pub(super) krate: Option<Path>,
}

impl Keys {
    pub(super) fn read(items: Vec<NestedMeta>) -> Result<Self, Error> {
        let keys = Keys::from_list(&items)?;
        match &keys.order {
            Some(order) if !keys.singleton.is_present() => Err(Error::custom(
                "`order` is for singletons, which process one message after another: add `singleton`, or leave it out",
            )
            .with_span(&order.written)),
            _ => Ok(keys),
        }
    }

    /// The variant of `bus::settings::Order`.
    pub(super) fn order(&self) -> &'static str {
        match &self.order {
            Some(Order { strict: true, .. }) => "Strict",
            _ => "Relaxed",
        }
    }
}

/// `order = "strict"` or `"relaxed"`.
struct Order {
    strict: bool,
    written: LitStr,
}

impl FromMeta for Order {
    fn from_meta(item: &Meta) -> Result<Self, Error> {
        let text = match item {
            Meta::NameValue(pair) => LitStr::from_expr(&pair.value).ok(),
            _ => None,
        };
        match text {
            Some(written) if written.value() == "strict" => Ok(Order { strict: true, written }),
            Some(written) if written.value() == "relaxed" => Ok(Order { strict: false, written }),
            _ => Err(wrong(item, "`\"strict\"` or `\"relaxed\"`", "\"strict\"")),
        }
    }
}

/// The names of middleware, as expressions: one, or a list.
pub(super) struct MiddlewarePaths(pub(super) Vec<Expr>);

impl FromMeta for MiddlewarePaths {
    fn from_meta(item: &Meta) -> Result<Self, Error> {
        let wanted = "the name of a middleware, or a list of names";
        let Meta::NameValue(pair) = item else { return Err(wrong(item, wanted, "[audit, measure]")) };
        let all: Vec<&Expr> = match &pair.value {
            Expr::Array(list) => list.elems.iter().collect(),
            one => vec![one],
        };
        let mut errors = Error::accumulator();
        for one in all.iter().filter(|one| !matches!(one, Expr::Path(_))) {
            errors.push(
                Error::custom(format!("`middleware` takes {wanted}: write `middleware = [audit, measure]`"))
                    .with_span(one),
            );
        }
        errors.finish_with(MiddlewarePaths(all.into_iter().cloned().collect()))
    }
}

/// A settings type, each bare `Default` in it meant as `bus::settings::Default`.
pub(super) struct SettingsType(pub(super) Type);

impl FromMeta for SettingsType {
    fn from_meta(item: &Meta) -> Result<Self, Error> {
        match item {
            Meta::NameValue(pair) => match &pair.value {
                Expr::Verbatim(tokens) => Ok(SettingsType(syn::parse2(tokens.clone())?)),
                _ => Err(wrong(item, "a type", "Bulk")),
            },
            _ => Err(wrong(item, "a type", "Bulk")),
        }
    }
}

impl SettingsType {
    /// The type, found where the generated code can find it.
    pub(super) fn resolved(&self, krate: &Path) -> Type {
        let mut ty = self.0.clone();
        resolve_default(&mut ty, krate);
        ty
    }
}

/// In settings, `Default` can only mean the settings of that name; in Rust it means the standard library's trait.
fn resolve_default(ty: &mut Type, krate: &Path) {
    let Type::Path(path) = ty else { return };
    if path.qself.is_none() && path.path.is_ident("Default") {
        let span = path.path.segments[0].ident.span();
        let default = syn::Ident::new("Default", span);
        *ty = syn::parse_quote!(#krate::__private::#default);
        return;
    }
    for segment in &mut path.path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            for argument in &mut arguments.args {
                if let GenericArgument::Type(inner) = argument {
                    resolve_default(inner, krate);
                }
            }
        }
    }
}
