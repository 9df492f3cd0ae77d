//~ "`#[provide]` stands on a free function, and this is none"
use bus::prelude::*;

#[provide]
struct Catalog;

fn main() {}
