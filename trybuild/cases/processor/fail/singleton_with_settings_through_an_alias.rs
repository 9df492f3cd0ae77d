//~ "`Alias`: a singleton claims no message ahead: it has no `prefetch_count`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

use bus_trybuild::Ahead as Renamed;
type Alias = Renamed;

#[processor(singleton, settings = Alias)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
