//! The host: configuration, start, health, shutdown.

pub mod config;
