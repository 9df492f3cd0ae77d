//~ "`lease` takes a time in quotes"
//~ errors: 2
use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurrent_calls = 0, prefetch_cont = 2, lease = 5)]
struct Bulk;

fn main() {}
