//! What every message passes, one file a layer.

pub mod before_dead_letter;
pub mod dead_letter;
pub mod deadline;
pub mod panics;
pub mod redact;
pub mod scope;
pub mod span;
