//~ "NoError"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog() -> Result<Catalog, NoError> {
    Err(NoError)
}

struct NoError;

fn main() {}
