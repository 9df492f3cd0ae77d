use bus::prelude::*;

#[derive(Serialize, Deserialize)]
struct RebuildCache;

impl Message for RebuildCache {
    const TYPE: &'static str = "RebuildCache";
}

impl Command for RebuildCache {
    const QUEUE: &'static str = "rebuild-cache";
}

#[processor]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
