//~ "`dispose` takes the name of a function: write `dispose = close`"
use bus::prelude::*;

struct Work;

#[provide(scoped, dispose = "close")]
fn work() -> Work {
    Work
}

fn main() {}
