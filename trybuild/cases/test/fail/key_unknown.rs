//~ "Unknown field: `start_paused`"
#[bus::test(start_paused = true)]
async fn orders_are_placed() {}

fn main() {}
