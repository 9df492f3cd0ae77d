//~ "a test takes nothing, or one `host: TestHost`"
use bus::prelude::*;

#[bus::test]
async fn orders_are_placed(_bus: Bus) {}

fn main() {}
