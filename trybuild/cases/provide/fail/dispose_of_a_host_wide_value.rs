//~ "`dispose` is for a message's values: write `#[provide(scoped, dispose = …)]`"
use bus::prelude::*;

struct Pool;

async fn close(_pool: Scoped<Pool>) {}

#[provide(dispose = close)]
fn pool() -> Pool {
    Pool
}

fn main() {}
