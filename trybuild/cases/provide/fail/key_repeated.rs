//~ "Duplicate field `scoped`"
use bus::prelude::*;

struct Catalog;

#[provide(scoped, scoped)]
async fn catalog() -> Catalog {
    Catalog
}

fn main() {}
