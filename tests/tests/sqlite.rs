//! What is special about the SQLite backend; what every backend promises is in the conformance suites.

#[path = "sqlite/claims.rs"]
mod claims;
#[path = "sqlite/fences.rs"]
mod fences;
#[path = "sqlite/files.rs"]
mod files;
#[path = "sqlite/processes.rs"]
mod heavy_processes;
#[path = "sqlite/locks.rs"]
mod locks;
#[path = "sqlite/sending.rs"]
mod sending;
#[path = "sqlite/store.rs"]
mod store;
