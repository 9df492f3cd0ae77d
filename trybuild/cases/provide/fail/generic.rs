//~ "a provider cannot be generic"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog<T: Send>() -> Vec<T> {
    Vec::new()
}

fn main() {}
