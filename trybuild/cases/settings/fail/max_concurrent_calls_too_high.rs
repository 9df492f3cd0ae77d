//~ "`max_concurrent_calls` is too high; write 1 to 1000000"
use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurrent_calls = 99999999999999999999)]
struct Bulk;

fn main() {}
