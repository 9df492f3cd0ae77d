//! Locks on Azure's blob leases, against Azurite: what the service answers, what the manager makes of it, what becomes of
//! it when answers are lost or late, and what hosts make of that.

mod bench;
mod credentials;
mod heavy_hosts;
mod heavy_storms;
mod heavy_tls;
mod lease_table;
mod lost_answers;
mod raw;
mod records;
mod throttling;
