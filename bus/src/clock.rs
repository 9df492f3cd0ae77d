//! The two clocks: one that never jumps and also counts suspended time, for every lease and deadline; and the wall
//! clock, for due times that people write down.
//!
//! Nothing in this crate decides anything about a lease by a timer alone: a timer may fire late (a frozen process, a
//! suspended machine), so whoever wakes up reads [`Clock::now`] first.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant of the clock that counts from the machine's start and goes on while it is suspended.
///
/// Comparable between the processes of one machine for as long as it has not been restarted ([`boot_id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// From nanoseconds since the machine's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        BootInstant(nanos)
    }

    /// Nanoseconds since the machine's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is the later one.
    pub fn since(self, earlier: BootInstant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;
    fn add(self, by: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = BootInstant;
    fn sub(self, by: Duration) -> BootInstant {
        BootInstant(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A moment of the wall clock, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)),
            Err(before) => Timestamp(i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |m| -m)),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        if time.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s since 1970", self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000))
    }
}

/// Where a part of the host reads the time. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    virtual_time: Option<VirtualTime>,
}

/// Tokio's clock, which tests can pause and advance, given the two readings it started from.
#[derive(Clone, Debug)]
struct VirtualTime {
    origin: tokio::time::Instant,
    boot: BootInstant,
    wall: Timestamp,
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Clock { virtual_time: None }
    }

    /// Tokio's clock, for tests with paused time. Must be called within a tokio runtime.
    pub fn tokio() -> Self {
        Clock {
            virtual_time: Some(VirtualTime {
                origin: tokio::time::Instant::now(),
                boot: boot_now(),
                wall: SystemTime::now().into(),
            }),
        }
    }

    /// Now, by the clock that never jumps and counts suspended time too.
    pub fn now(&self) -> BootInstant {
        match &self.virtual_time {
            None => boot_now(),
            Some(start) => start.boot + start.origin.elapsed(),
        }
    }

    /// Now, by the wall clock.
    pub fn wall(&self) -> Timestamp {
        match &self.virtual_time {
            None => SystemTime::now().into(),
            Some(start) => start.wall + start.origin.elapsed(),
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_now() -> BootInstant {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

// Elsewhere the monotonic clock is the best that every system has. It may stand still while the machine sleeps.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn boot_now() -> BootInstant {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

#[cfg(unix)]
fn from_timespec(time: rustix::time::Timespec) -> BootInstant {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    BootInstant(
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)),
    )
}

#[cfg(not(unix))]
fn boot_now() -> BootInstant {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    BootInstant(0) + START.get_or_init(std::time::Instant::now).elapsed()
}

/// Names this run of the machine's kernel: readings of [`Clock::now`] taken under another id cannot be compared.
///
/// On Linux the kernel's own boot id; elsewhere an empty text, so that such leases are judged by the clock alone.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_survive_the_way_through_system_time() {
        for micros in [0, 1, -1, 1_790_000_000_123_456, -7_000_001] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_virtual_clock_follows_tokio() {
        let clock = Clock::tokio();
        let (before, wall) = (clock.now(), clock.wall());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().since(before), Duration::from_secs(3600));
        assert_eq!(clock.wall().since(wall), Duration::from_secs(3600));
    }
}
