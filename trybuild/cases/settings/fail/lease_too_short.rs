//~ "`lease` is below 100ms"
use bus::prelude::*;

#[derive(Settings)]
#[settings(lease = "99ms")]
struct Bulk;

fn main() {}
