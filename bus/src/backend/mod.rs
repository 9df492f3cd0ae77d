//! The backends: one folder a technology, switched on by the cargo feature of the same name.
//!
//! Each imports what stands above it in the crate's table of modules and never a sibling, and registers its URL
//! schemes by itself, so that there is no central list to be kept.

#[cfg(feature = "azure_storage")]
pub mod azure_storage;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
