//~ "`retry` begins with a longer time than its longest"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retry(exponential(first = "5m", max = "1s")))]
struct Bulk;

fn main() {}
