//! A NATS server with a host on it, and short words for what the tests do with them.

pub(crate) use bus_tests::by_hand::{bodies, body, command, endpoint, envelope, receive_now, settle};
use bus_tests::nats::Nats;
use bus_tests::served::Server;
pub(crate) use bus_tests::served::{LEASE, PREFIX, open, open_locks, receive};
pub(crate) use bus_tests::wait::PATIENCE;

pub(crate) type Store = bus_tests::served::Store<Nats>;

/// A server; `None` where there is none to be had, which has been said then.
pub(crate) fn server() -> Option<Nats> {
    Nats::quick()
}
