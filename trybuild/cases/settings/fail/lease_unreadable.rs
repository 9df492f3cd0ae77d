//~ ""1h30m" is no duration: it has no such unit"
use bus::prelude::*;

#[derive(Settings)]
#[settings(lease = "1h30m")]
struct Bulk;

fn main() {}
