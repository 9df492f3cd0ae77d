//! What is special about the Redis backend, and what it does in rough weather; what every backend promises is in the
//! conformance suites. Each test has a server of its own.

#![cfg(unix)]

#[path = "redis/idle.rs"]
mod alone_idle;
#[path = "redis/claims.rs"]
mod claims;
#[path = "redis/faults.rs"]
mod heavy_faults;
#[path = "redis/hosts.rs"]
mod heavy_hosts;
#[path = "redis/network.rs"]
mod heavy_network;
#[path = "redis/soak.rs"]
mod heavy_soak;
#[path = "redis/locks.rs"]
mod locks;
#[path = "redis/readers.rs"]
mod readers;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/store.rs"]
mod store;
