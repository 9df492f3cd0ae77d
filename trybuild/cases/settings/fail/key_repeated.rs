//~ "Duplicate field `lease`"
use bus::prelude::*;

#[derive(Settings)]
#[settings(lease = "30s", lease = "40s")]
struct Bulk;

fn main() {}
