//! A singleton in a fleet of processes, on each server that such a fleet shares: what is the same for all of these stores.
//! What is peculiar to one of them stands with its own tests.

mod heavy_leaving;
mod heavy_removed;
mod heavy_streams;
mod servers;
// Its handlers are registered in the program that they are part of, and so are in no library.
#[path = "../postgres/stream.rs"]
mod stream;
