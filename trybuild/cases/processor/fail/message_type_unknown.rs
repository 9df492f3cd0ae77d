//~ "cannot find type `RebuildCach` in this scope"
use bus::prelude::*;

#[processor]
async fn rebuild_cache(_message: RebuildCach) {}

fn main() {}
