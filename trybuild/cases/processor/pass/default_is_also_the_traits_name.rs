use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Default)]
struct Derived;

struct ByHand;

impl Default for ByHand {
    fn default() -> Self {
        ByHand
    }
}

#[processor(settings = Default)]
async fn rebuild_cache(_message: RebuildCache) {
    let _ = (Derived::default(), ByHand::default());
}

fn main() {}
