//~ "Missing field `max`"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry(exponential(first = "5m")))]
struct Bulk;

fn main() {}
