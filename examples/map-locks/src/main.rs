//! Two hosts of one process ask for one lock: the second is given it when the first has released it.

#![allow(clippy::print_stdout, reason = "an example says what it does")]

use std::time::Duration;

use bus::contract::{Ended, LockId, LockManager, Owner};
use map_locks::MapLocks;

#[tokio::main]
async fn main() -> bus::Result<()> {
    let locks = MapLocks::default();
    locks.initialize().await?;
    let (id, lease) = (LockId::of(None, "default", "queue", "nightly-import"), Duration::from_secs(20));
    let mut holder = None;
    for host in ["first", "second"] {
        match locks.try_lock(&id, lease, Owner::fresh()).await? {
            None => println!("{host}: {id} is held by somebody else"),
            Some(taken) => {
                println!("{host}: took {id} with fence {}", taken.fence());
                holder = Some(taken);
            }
        }
    }
    if let Some(holder) = holder {
        holder.release(Ended::Clean).await?;
        println!("first: released it");
    }
    if let Some(taken) = locks.try_lock(&id, lease, Owner::fresh()).await? {
        println!("second: took {id} with the higher fence {}", taken.fence());
    }
    Ok(())
}
