//~ "`message_lock_timeout` takes a time in quotes: write `message_lock_timeout = "30s"`"
use bus::prelude::*;

#[derive(Settings)]
#[settings(message_lock_timeout = 30)]
struct Bulk;

fn main() {}
