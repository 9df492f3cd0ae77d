//~ "`String` is not a command"
use bus::prelude::*;

#[processor]
async fn rebuild_cache(_message: String) {}

fn main() {}
