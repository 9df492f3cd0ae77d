//~ "a provider returns what it provides: write `fn catalog(…) -> MyValue`"
use bus::prelude::*;

struct Catalog;

#[provide]
fn catalog() {}

fn main() {}
