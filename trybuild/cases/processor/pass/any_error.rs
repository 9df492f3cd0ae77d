use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[processor]
async fn rebuild_cache(_message: RebuildCache) -> anyhow::Result<()> {
    anyhow::bail!("no such tenant")
}

#[processor(subscription = "a")]
async fn a(_event: OrderPlaced) -> Result<(), std::fmt::Error> {
    Ok(())
}

#[processor(subscription = "b")]
async fn b(_event: OrderPlaced) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("no".into())
}

#[processor(subscription = "c")]
async fn c(_event: OrderPlaced) -> Result<(), &'static str> {
    Err("no")
}

#[processor(subscription = "d")]
async fn d(_event: OrderPlaced) -> Result<()> {
    Err(bus::Error::dead_letter("no"))
}

fn main() {}
