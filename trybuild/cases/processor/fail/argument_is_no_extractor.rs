//~ "`String` cannot be an argument of a processor"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache, _tenant: String, _id: MessageId) {}

fn main() {}
