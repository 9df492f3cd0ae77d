//~ "`lease` is zero, and every claim would be lost at once"
use bus::prelude::*;

#[derive(Settings)]
#[settings(lease = "0ms")]
struct Bulk;

fn main() {}
