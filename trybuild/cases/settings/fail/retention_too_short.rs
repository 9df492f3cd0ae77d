//~ "`retention` is below 1m"
use bus::prelude::*;

#[derive(Settings)]
#[settings(retention = "59s")]
struct Kept;

fn main() {}
