//! The transport on Azure's Storage Queues.

mod claims;
mod clock;
mod config;
mod consumer;
mod delivery;
mod inspect;
mod letters;
mod message;
mod name;
mod poll;
mod readers;
mod send;
mod service;
mod settle;
mod sweep;
mod transport;

pub(super) use config::Config;
pub use transport::StorageQueues;
