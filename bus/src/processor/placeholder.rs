//! Stands in for what other branches bring: delete this file when `crate::sender::Bus` and `crate::singleton::Term` are
//! there, and name those where this is named (`extract.rs`, `provide.rs`, `prelude.rs`).

/// `crate::sender::Bus`, once it is merged.
#[derive(Clone, Debug)]
pub struct Bus;

/// `crate::singleton::Term`, once it is merged.
#[derive(Clone, Debug)]
pub struct Term;
