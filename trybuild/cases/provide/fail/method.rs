//~ "a provider is a free function: move it out of the `impl`"
use bus::prelude::*;

struct Catalog;

impl Catalog {
    #[provide]
    async fn other(&self) -> Catalog {
        Catalog
    }
}

fn main() {}
