//! A Redis server with a host on it, and short words for what the tests do with them.

pub(crate) use bus_tests::by_hand::{bodies, body, command, endpoint, envelope, receive_now, settle};
use bus_tests::redis::Redis;
pub(crate) use bus_tests::redis::start_if_there as server;
pub(crate) use bus_tests::served::{LEASE, PREFIX, open, open_locks, receive};
pub(crate) use bus_tests::wait::PATIENCE;

pub(crate) type Store = bus_tests::served::Store<Redis>;

/// How often the server has run each command, by its name.
pub(crate) fn calls(server: &Redis) -> std::collections::BTreeMap<String, u64> {
    let told: String = server.ask(&["INFO", "commandstats"]);
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    told.lines().filter_map(line).collect()
}
