//~ "a provider returns `T` or `Result<T, E>`, not `std::result::Result<Catalog, NoError>`"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog() -> Result<Catalog, NoError> {
    Err(NoError)
}

struct NoError;

fn main() {}
