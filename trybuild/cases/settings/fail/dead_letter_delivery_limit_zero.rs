//~ "`dead_letter_delivery_limit` is 0, and no message would get an attempt"
use bus::prelude::*;

#[derive(Settings)]
#[settings(dead_letter_delivery_limit = 0)]
struct Bulk;

fn main() {}
