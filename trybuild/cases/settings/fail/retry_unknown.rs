//~ "`retry` is `retry(immediate)`, `retry(fixed = "5s")` or `retry(exponential(first = "1s", max = "5m"))`"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry = "sometimes")]
struct Bulk;

fn main() {}
