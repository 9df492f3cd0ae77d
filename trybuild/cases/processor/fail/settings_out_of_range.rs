//~ "`Bulk`: `message_lock_timeout` is zero"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

struct Bulk;

impl Settings for Bulk {
    const MESSAGE_LOCK_TIMEOUT: Option<std::time::Duration> = Some(std::time::Duration::ZERO);
}

#[processor(settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
