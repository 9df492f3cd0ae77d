//! Where generated code finds `bus`.

use proc_macro_crate::{FoundCrate, crate_name};
use quote::format_ident;
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
