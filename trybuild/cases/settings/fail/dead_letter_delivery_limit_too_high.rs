//~ "`dead_letter_delivery_limit` is too high; write 1 to 1000000"
use bus::prelude::*;

#[derive(Settings)]
#[settings(dead_letter_delivery_limit = 1000001)]
struct Bulk;

fn main() {}
