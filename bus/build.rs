//! Nothing to build: cargo asks for a build script where `links` is set.

fn main() {}
