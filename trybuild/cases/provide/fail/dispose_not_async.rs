//~ "this cannot dispose of a `Work`"
use bus::prelude::*;

struct Work;

fn close(_work: Scoped<Work>) {}

#[provide(scoped, dispose = close)]
fn work() -> Result<Work> {
    Ok(Work)
}

fn main() {}
