//! bus
pub mod singleton;
