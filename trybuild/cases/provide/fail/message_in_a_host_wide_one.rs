//~ "`bus::MessageId` cannot be an argument of a provider for the whole host"
use bus::prelude::*;

struct Catalog;

#[provide]
async fn catalog(_id: MessageId) -> Catalog {
    Catalog
}

fn main() {}
