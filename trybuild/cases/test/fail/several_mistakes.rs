//~ "a test in virtual time is an `async fn`"
//~ errors: 3
use bus::prelude::*;

#[bus::test]
fn orders_are_placed(_bus: Bus) -> u32 {
    7
}

fn main() {}
