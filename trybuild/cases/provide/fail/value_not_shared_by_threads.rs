//~ "cannot be shared between threads safely"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog() -> std::cell::Cell<u8> {
    std::cell::Cell::new(1)
}

fn main() {}
