//~ "Did you mean `max_concurrent_calls`?"
use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurent_calls = 8)]
struct Bulk;

fn main() {}
