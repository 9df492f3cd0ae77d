//~ "`Bulk`: a singleton claims no message ahead: it has no `prefetch_count`; write `settings = AsSingleton<Bulk>`, or leave it out of `Bulk`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Settings)]
#[settings(prefetch_count = 50)]
struct Bulk;

#[processor(singleton, settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
