//~ "Did you mean `scoped`?"
use bus::prelude::*;

struct Catalog;

#[provide(scopd)]
async fn catalog() -> Catalog {
    Catalog
}

fn main() {}
