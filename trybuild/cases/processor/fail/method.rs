//~ "a processor is a free function: move it out of the `impl` and take what it needs as `Dep<T>`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

struct Cache;

impl Cache {
    #[processor]
    async fn rebuild(&self, _message: RebuildCache) {}
}

fn main() {}
