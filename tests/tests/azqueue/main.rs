//! Messages in Azure's Storage Queues, against Azurite: what lies in a queue, what becomes of claims and of lost answers, of
//! large bodies, of a service that is throttled, deletes, is away; and what hosts make of that.

mod bench;
mod bodies;
mod claims;
mod heavy_hosts;
mod heavy_singletons;
mod idle;
mod lost_answers;
mod raw;
mod readers;
mod throttling;
mod wire;
