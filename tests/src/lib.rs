//! What the tests of this package share: fixture processes, what they do and what they say, and a view of the store
//! that shares no code with `bus`.
//!
//! * [`task`]: messages that say what their handler is to do.
//! * [`by_hand`]: messages sent, claimed and settled without a host.
//! * [`certificates`]: for encrypted servers.
//! * [`cut_off`]: a singleton whose holder is cut off from its store.
//! * [`emptied`]: a store that is emptied under those who use it.
//! * [`idle`]: what a host costs that has nothing to do.
//! * [`journal`]: what processes write down, one line per event.
//! * [`latency`]: how long a message takes to its handler.
//! * [`mount`]: small disks.
//! * [`runs`]: the runs in a journal, and whether two of them overlap.
//! * [`nats`]: NATS servers of our own.
//! * [`pgbouncer`]: PgBouncers of our own.
//! * [`postgres`]: Postgres servers of our own.
//! * [`probe`]: what a probe asks, and is answered.
//! * [`redis`]: Redis servers of our own.
//! * [`served`]: a store on a server of a test's own, and short words for it.
//! * [`shim`]: faults of the system beneath a process.
//! * [`site`]: a directory with a store and journals, and the processes that work in it.
//! * [`skip`]: what a test does where the machine lacks what it takes.
//! * [`soak`]: what is in memory after much traffic.
//! * [`store`]: what lies in a SQLite store, read by rusqlite.
//! * [`tcp_proxy`]: a network that can be at fault.
//! * [`traffic`]: messages that are sent and processed all the time.
//! * [`wait`]: conditions awaited with a deadline.
//! * [`weather`]: what is done to a server and its network under those who work on it.

pub mod by_hand;
pub mod certificates;
pub mod cut_off;
pub mod emptied;
pub mod idle;
pub mod journal;
pub mod latency;
pub mod mount;
pub mod nats;
pub mod pgbouncer;
pub mod postgres;
pub mod probe;
pub mod redis;
pub mod runs;
pub mod served;
pub mod shim;
pub mod site;
pub mod skip;
pub mod soak;
pub mod store;
pub mod task;
pub mod tcp_proxy;
pub mod traffic;
pub mod wait;
pub mod weather;
