//~ "required by a bound in `Processor::whose_future_is_send`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache) {
    let tenant = std::rc::Rc::new(1);
    std::future::ready(()).await;
    drop(tenant);
}

fn main() {}
