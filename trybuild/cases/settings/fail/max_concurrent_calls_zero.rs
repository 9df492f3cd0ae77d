//~ "`max_concurrent_calls` is 0, and nothing would ever be processed"
use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurrent_calls = 0)]
struct Bulk;

fn main() {}
