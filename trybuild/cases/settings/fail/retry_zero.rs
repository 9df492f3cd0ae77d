//~ "`retry` waits for no time at all; write `retry = "immediate"` if that is meant"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry(fixed = "0s"))]
struct Bulk;

fn main() {}
