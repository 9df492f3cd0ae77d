//~ "type mismatch in function arguments"
use bus::prelude::*;

struct Work;
struct Pool;

async fn close(_pool: Scoped<Pool>) {}

#[provide(scoped, dispose = close)]
fn work() -> Work {
    Work
}

fn main() {}
