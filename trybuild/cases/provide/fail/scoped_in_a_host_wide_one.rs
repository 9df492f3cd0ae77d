//~ "`bus::Scoped<String>` cannot be an argument of a provider for the whole host"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog(_id: Scoped<String>) -> Catalog {
    Catalog
}

fn main() {}
