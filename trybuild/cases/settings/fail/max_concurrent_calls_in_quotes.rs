//~ "`max_concurrent_calls` takes a whole number: write `max_concurrent_calls = 8`"
use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurrent_calls = "8")]
struct Bulk;

fn main() {}
