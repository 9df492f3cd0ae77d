//~ "`message_lock_timeout` is zero"
use bus::prelude::*;

#[derive(Settings)]
#[settings(message_lock_timeout = "0s")]
struct Bulk;

fn main() {}
