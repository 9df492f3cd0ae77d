//~ "its `QUEUE` is no valid name: it has a character other than a-z, 0-9 and dash"
use bus::prelude::*;

#[derive(Serialize, Deserialize)]
struct RebuildCache;

impl Message for RebuildCache {
    const TYPE: &'static str = "RebuildCache";
}

impl Command for RebuildCache {
    const QUEUE: &'static str = "RebuildCache";
}

#[processor]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
