//! What is special about the NATS backend, and what it does in rough weather; what every backend promises is in the
//! conformance suites. Each test has a server of its own.

#![cfg(unix)]

#[path = "nats/claims.rs"]
mod claims;
#[path = "nats/clocks.rs"]
mod clocks;
#[path = "nats/faults.rs"]
mod heavy_faults;
#[path = "nats/hosts.rs"]
mod heavy_hosts;
#[path = "nats/network.rs"]
mod heavy_network;
#[path = "nats/soak.rs"]
mod heavy_soak;
#[path = "nats/idle.rs"]
mod idle;
#[path = "nats/locks.rs"]
mod locks;
#[path = "nats/lost.rs"]
mod lost;
#[path = "nats/numbers.rs"]
mod numbers;
#[path = "nats/readers.rs"]
mod readers;
#[path = "nats/server.rs"]
mod server;
#[path = "nats/store.rs"]
mod store;
