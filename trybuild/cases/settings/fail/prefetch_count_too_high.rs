//~ "`prefetch_count` is too high; write 0 to 1000000"
use bus::prelude::*;

#[derive(Settings)]
#[settings(prefetch_count = 1000001)]
struct Bulk;

fn main() {}
