//~ "only a singleton has a `Term`"
use bus::prelude::*;

struct Catalog;

#[provide(scoped)]
async fn catalog(_term: Term) -> Catalog {
    Catalog
}

fn main() {}
