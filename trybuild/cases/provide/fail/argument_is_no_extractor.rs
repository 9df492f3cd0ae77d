//~ "`String` cannot be an argument of a processor"
use bus::prelude::*;

struct Catalog;

#[provide(scoped)]
async fn catalog(_id: String) -> Catalog {
    Catalog
}

fn main() {}
