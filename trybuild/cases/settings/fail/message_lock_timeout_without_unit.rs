//~ ""30" is no duration: the unit is missing; write a whole number and a unit, such as "500ms", "30s", "1m", "2h" or "3d""
use bus::prelude::*;

#[derive(Settings)]
#[settings(message_lock_timeout = "30")]
struct Bulk;

fn main() {}
