//! What is special about the Postgres backend; what every backend promises is in the conformance suites.

#[path = "postgres/idle.rs"]
mod alone_idle;
#[path = "postgres/claims.rs"]
mod claims;
#[path = "postgres/fences.rs"]
mod fences;
#[path = "postgres/dead_rows.rs"]
mod heavy_dead_rows;
#[path = "postgres/faults.rs"]
mod heavy_faults;
#[path = "postgres/pooler.rs"]
mod heavy_pooler;
#[path = "postgres/removed.rs"]
mod heavy_removed;
#[path = "postgres/sessions.rs"]
mod heavy_sessions;
#[path = "postgres/hosts.rs"]
mod hosts;
#[path = "postgres/locks.rs"]
mod locks;
#[path = "postgres/lost_answers.rs"]
mod lost_answers;
#[path = "postgres/readers.rs"]
mod readers;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/sending.rs"]
mod sending;
#[path = "postgres/sightings.rs"]
mod sightings;
#[path = "postgres/standby.rs"]
mod standby;
#[path = "postgres/stream.rs"]
mod stream;

/// Connects to the store at `url`, as a host does.
async fn open(url: &str) -> std::sync::Arc<dyn bus::contract::Transport> {
    let url = bus::contract::StoreUrl::parse(url).expect("a URL");
    let open =
        bus::contract::Scheme::find(url.scheme()).expect("the backend").transport.expect("a transport");
    let options = bus::contract::OpenOptions::new(bus::clock::Clock::system());
    open(&url, &options).await.expect("the store can be opened")
}
