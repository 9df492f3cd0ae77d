use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

use bus::message::Delivery;
use bus::processor::{Extract, HasTerm, Requirement};

struct Catalog;

#[provide]
fn catalog() -> Catalog {
    Catalog
}

struct Work;

#[provide(scoped)]
async fn work(_catalog: Dep<Catalog>) -> Work {
    Work
}

/// Works anywhere, and uses another extractor.
struct Own;

impl<C> Extract<C> for Own {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        let _ = <Dep<Catalog> as Extract<C>>::extract(delivery).await?;
        Ok(Own)
    }

    fn requires() -> Vec<Requirement> {
        <Dep<Catalog> as Extract<C>>::requires()
    }
}

/// Works on singletons only.
struct Alone;

impl<C: HasTerm> Extract<C> for Alone {
    async fn extract(_delivery: &Delivery) -> Result<Self> {
        Ok(Alone)
    }
}

#[processor(singleton)]
#[expect(clippy::too_many_arguments, reason = "every one that there is")]
async fn rebuild_cache(
    RebuildCache: RebuildCache,
    _catalog: Dep<Catalog>,
    _work: Scoped<Work>,
    mut _headers: Headers,
    _id: MessageId,
    DeliveryCount(_count): DeliveryCount,
    _cancelled: CancellationToken,
    _bus: Bus,
    _term: Term,
    _own: Own,
    _alone: Alone,
) {
}

fn main() {}
