use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

mod hooks {
    use super::*;

    pub(crate) async fn anything<M>(_letter: DeadLettering<M>) {}

    pub(crate) async fn six(
        letter: DeadLettering<RebuildCache>,
        _id: MessageId,
        _headers: Headers,
        _count: DeliveryCount,
        _cancelled: CancellationToken,
        _bus: Bus,
        _term: Term,
    ) -> Result<(), std::io::Error> {
        let _ = letter.reason;
        Ok(())
    }
}

#[processor(singleton, before_dead_letter = hooks::six)]
async fn rebuild_cache(_message: RebuildCache) {}

#[processor(subscription = "one", before_dead_letter = hooks::anything)]
async fn one(_event: OrderPlaced) {}

#[processor(subscription = "two", before_dead_letter = hooks::anything::<OrderPlaced>)]
async fn two(_event: OrderPlaced) {}

fn main() {}
