//! The values that keys of our attributes take. Each says in its error what to write.

use darling::{Error, FromMeta, Result};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Expr, Lit, LitInt, LitStr, Meta, Path};

/// `"rebuild-cache"`: a name, judged by a constant function of `bus` in the generated code.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) LitStr);

impl FromMeta for Name {
    fn from_meta(item: &Meta) -> Result<Self> {
        match literal(item) {
            Some(Lit::Str(text)) => Ok(Name(text.clone())),
            _ => Err(wrong(item, "a name in quotes", "\"my-name\"")),
        }
    }
}

impl Name {
    /// A check of the name, and the name as an expression that is valid in any case. `what` is a noun: `queue`.
    pub(crate) fn expand(&self, krate: &Path, what: &str) -> Checked {
        let literal = &self.0;
        let (before, between) = (format!("{:?}", literal.value()), format!(" cannot name a {what}: "));
        Checked {
            check: crate::spanned::at(
                literal,
                quote!(#krate::__private::require(
                    #krate::__private::why_invalid(#literal), #before, #between, #krate::__private::NAME_RULE
                )),
            ),
            value: quote!(#krate::__private::valid_name(#literal)),
        }
    }
}

/// A check, to be put into a constant, and a value that does not fail once more where the check fails.
pub(crate) struct Checked {
    pub(crate) check: TokenStream,
    pub(crate) value: TokenStream,
}

/// `8`: a whole number. What is too large for the type is left to be judged too large by its rule.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    literal: LitInt,
    value: u32,
}

impl FromMeta for Count {
    fn from_meta(item: &Meta) -> Result<Self> {
        match literal(item) {
            Some(Lit::Int(literal))
                if literal.suffix().is_empty() && !literal.base10_digits().starts_with('-') =>
            {
                let value = literal.base10_parse::<u128>().unwrap_or(u128::MAX);
                Ok(Count { literal: literal.clone(), value: u32::try_from(value).unwrap_or(u32::MAX) })
            }
            _ => Err(wrong(item, "a whole number", "8")),
        }
    }
}

/// `"30s"`: a duration, read by a constant function of `bus` in the generated code.
#[derive(Clone, Debug)]
pub(crate) struct Time(LitStr);

impl FromMeta for Time {
    fn from_meta(item: &Meta) -> Result<Self> {
        match literal(item) {
            Some(Lit::Str(text)) => Ok(Time(text.clone())),
            _ => Err(wrong(item, "a time in quotes", "\"30s\"")),
        }
    }
}

impl Time {
    fn expand(&self, krate: &Path) -> Checked {
        let literal = &self.0;
        let before = format!("{:?}", literal.value());
        Checked {
            check: crate::spanned::at(
                literal,
                quote!(#krate::__private::require(
                    #krate::__private::duration::why_invalid(#literal),
                    #before, " is no duration: ", #krate::__private::duration::RULE
                )),
            ),
            value: quote!(#krate::__private::valid_duration(#literal)),
        }
    }
}

/// `retry(immediate)`, `retry(fixed = "5s")`, `retry(exponential(first = "1s", max = "5m"))`.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    item: Meta,
    policy: Policy,
}

#[derive(Clone, Debug, FromMeta)]
enum Policy {
    Immediate,
    Fixed(Time),
    Exponential { first: Time, max: Time },
}

impl FromMeta for Retry {
    fn from_meta(item: &Meta) -> Result<Self> {
        let named = matches!(literal(item), Some(Lit::Str(text)) if text.value() == "immediate");
        match item {
            Meta::List(list) if !list.tokens.is_empty() => {}
            Meta::NameValue(_) if named => {}
            _ => {
                return Err(Error::custom(
                    "`retry` is `retry(immediate)`, `retry(fixed = \"5s\")` or \
                     `retry(exponential(first = \"1s\", max = \"5m\"))`",
                )
                .with_span(item));
            }
        }
        Ok(Retry { item: item.clone(), policy: Policy::from_meta(item)? })
    }
}

impl Retry {
    /// The policy, and the checks of the times in it.
    fn expand(&self, krate: &Path) -> (TokenStream, Vec<TokenStream>) {
        let retry = quote!(#krate::__private::Retry);
        match &self.policy {
            Policy::Immediate => (quote!(#retry::Immediate), Vec::new()),
            Policy::Fixed(time) => {
                let Checked { check, value } = time.expand(krate);
                (quote!(#retry::Fixed(#value)), vec![check])
            }
            Policy::Exponential { first, max } => {
                let (first, max) = (first.expand(krate), max.expand(krate));
                let (first_value, max_value) = (first.value, max.value);
                (
                    quote!(#retry::Exponential { first: #first_value, max: #max_value }),
                    vec![first.check, max.check],
                )
            }
        }
    }
}

/// The name of a function, as an expression.
pub(crate) struct FunctionPath(pub(crate) Expr);

impl FromMeta for FunctionPath {
    fn from_meta(item: &Meta) -> Result<Self> {
        match item {
            Meta::NameValue(pair) if matches!(pair.value, Expr::Path(_)) => {
                Ok(FunctionPath(pair.value.clone()))
            }
            _ if item.path().is_ident("dispose") => Err(wrong(item, "the name of a function", "close")),
            _ => Err(wrong(item, "the name of a function", "tell_support")),
        }
    }
}

/// The keys that tune a processor, in `#[settings(…)]` and in `#[processor(…)]`.
#[derive(Clone, Debug, Default, FromMeta)]
pub(crate) struct Tuned {
    max_concurrent_calls: Option<Count>,
    prefetch_count: Option<Count>,
    message_lock_timeout: Option<Time>,
    dead_letter_delivery_limit: Option<Count>,
    lease: Option<Time>,
    retry: Option<Retry>,
    retention: Option<Time>,
}

/// One key that has been given, ready to be written out.
pub(crate) struct TunedKey {
    /// `max_concurrent_calls`
    pub(crate) key: &'static str,
    /// `MAX_CONCURRENT_CALLS`
    pub(crate) constant: &'static str,
    /// `MaxConcurrentCalls`
    pub(crate) setting: &'static str,
    /// The constant's type.
    pub(crate) ty: TokenStream,
    /// What the user wrote, to point at.
    pub(crate) written: TokenStream,
    /// The value.
    pub(crate) value: TokenStream,
    /// Why the value is refused, as an expression.
    pub(crate) fault: TokenStream,
    /// Whether what was written can be read at all.
    pub(crate) readable: Vec<TokenStream>,
}

impl Tuned {
    /// The keys that have been given.
    pub(crate) fn keys(&self, krate: &Path) -> Vec<TunedKey> {
        let calls = self.max_concurrent_calls.as_ref();
        let prefetch = self.prefetch_count.as_ref();
        let timeout = self.message_lock_timeout.as_ref();
        let limit = self.dead_letter_delivery_limit.as_ref();
        let lease = self.lease.as_ref();
        let retry = self.retry.as_ref();
        let retention = self.retention.as_ref();
        [
            calls.map(|count| count.key(krate, MAX_CONCURRENT_CALLS, "usize", "why_invalid_calls")),
            prefetch.map(|count| count.key(krate, PREFETCH_COUNT, "usize", "why_invalid_prefetch")),
            timeout.map(|time| time.key(krate, MESSAGE_LOCK_TIMEOUT, "why_invalid_timeout")),
            limit.map(|count| count.key(krate, DEAD_LETTER_DELIVERY_LIMIT, "u32", "why_invalid_limit")),
            lease.map(|time| time.key(krate, LEASE, "why_invalid_lease")),
            retry.map(|retry| retry.key(krate)),
            retention.map(|time| time.key(krate, RETENTION, "why_invalid_retention")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A setting's key, constant and variant of `bus::settings::Setting`.
type Setting = (&'static str, &'static str, &'static str);
const MAX_CONCURRENT_CALLS: Setting = ("max_concurrent_calls", "MAX_CONCURRENT_CALLS", "MaxConcurrentCalls");
const PREFETCH_COUNT: Setting = ("prefetch_count", "PREFETCH_COUNT", "PrefetchCount");
const MESSAGE_LOCK_TIMEOUT: Setting = ("message_lock_timeout", "MESSAGE_LOCK_TIMEOUT", "MessageLockTimeout");
const DEAD_LETTER_DELIVERY_LIMIT: Setting =
    ("dead_letter_delivery_limit", "DEAD_LETTER_DELIVERY_LIMIT", "DeadLetterDeliveryLimit");
const LEASE: Setting = ("lease", "LEASE", "Lease");
const RETRY: Setting = ("retry", "RETRY", "Retry");
const RETENTION: Setting = ("retention", "RETENTION", "Retention");

/// All settings, as `Setting`'s variants.
pub(crate) const SETTINGS: [&str; 7] = [
    MAX_CONCURRENT_CALLS.2,
    PREFETCH_COUNT.2,
    MESSAGE_LOCK_TIMEOUT.2,
    DEAD_LETTER_DELIVERY_LIMIT.2,
    LEASE.2,
    RETRY.2,
    RETENTION.2,
];

impl Count {
    fn key(&self, krate: &Path, setting: Setting, ty: &str, rule: &str) -> TunedKey {
        let (ty, rule) = (ident(ty), ident(rule));
        let number = proc_macro2::Literal::u32_unsuffixed(self.value);
        let (key, constant, setting) = setting;
        TunedKey {
            key,
            constant,
            setting,
            ty: quote!(#krate::__private::#ty),
            written: self.literal.to_token_stream(),
            value: quote!(#number),
            fault: quote!(#krate::__private::#rule(#number)),
            readable: Vec::new(),
        }
    }
}

impl Time {
    fn key(&self, krate: &Path, (key, constant, setting): Setting, rule: &str) -> TunedKey {
        let (rule, Checked { check, value }) = (ident(rule), self.expand(krate));
        TunedKey {
            key,
            constant,
            setting,
            ty: quote!(#krate::__private::Duration),
            written: self.0.to_token_stream(),
            fault: quote!(#krate::__private::#rule(#value)),
            value,
            readable: vec![check],
        }
    }
}

impl Retry {
    fn key(&self, krate: &Path) -> TunedKey {
        let (key, constant, setting) = RETRY;
        let (value, readable) = self.expand(krate);
        TunedKey {
            key,
            constant,
            setting,
            ty: quote!(#krate::__private::Retry),
            written: self.item.to_token_stream(),
            fault: quote!(#krate::__private::Retry::why_invalid(#value)),
            value,
            readable,
        }
    }
}

pub(crate) fn ident(name: &str) -> syn::Ident {
    syn::Ident::new(name, proc_macro2::Span::mixed_site())
}

/// The literal in `key = literal`.
fn literal(item: &Meta) -> Option<&Lit> {
    let Meta::NameValue(pair) = item else { return None };
    match &pair.value {
        Expr::Lit(literal) => Some(&literal.lit),
        _ => None,
    }
}

/// The error for a key whose value is not what it takes.
pub(crate) fn wrong(item: &Meta, wants: &str, example: &str) -> Error {
    let key = item.path().get_ident().map(ToString::to_string).unwrap_or_default();
    let span = match item {
        Meta::NameValue(pair) => pair.value.span(),
        _ => item.span(),
    };
    Error::custom(format!("`{key}` takes {wants}: write `{key} = {example}`")).with_span(&span)
}
