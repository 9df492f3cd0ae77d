//! The two clocks: one that never jumps and also counts suspended time, for every lease and deadline; and the wall
//! clock, for due times that people write down.
//!
//! Nothing in this crate decides anything about a lease by a timer alone: a timer may fire late (a frozen process, a
//! suspended machine), so whoever wakes up reads [`Clock::now`] first.

use std::fmt;
use std::fs;
use std::io;
use std::ops::{Add, Sub};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An instant of the clock that counts from the machine's start and goes on while it is suspended.
///
/// Comparable between processes that read the same clock: those with the same [`clock_id`].
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

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

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

    /// As of RFC 3339, in UTC, with milliseconds: `2026-11-30T23:54:31.123Z`.
    pub fn to_rfc3339(self) -> String {
        let (seconds, millis) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000) / 1_000);
        let (year, month, day) = date(seconds.div_euclid(SECONDS_A_DAY));
        let second = seconds.rem_euclid(SECONDS_A_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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

/// The Gregorian date of a day counted from 1970-01-01: `civil_from_days` of H. Hinnant, "chrono-compatible low-level
/// date algorithms".
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468; // counted from 0000-03-01, so that leap days come last
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + later, month, day)
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

    /// Whether this is tokio's clock. It moves only as far as the next timer, so that no timer of it is ever late, and its
    /// wall clock is set by nobody: whoever wakes up every few seconds to see whether time has jumped need not.
    pub(crate) fn is_virtual(&self) -> bool {
        self.virtual_time.is_some()
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

/// Names the clock that [`Clock::now`] reads: readings of one name can be compared, whichever processes made them; those
/// of two names cannot, and nothing follows from the names being different.
///
/// On Linux it is the kernel's boot id, with the offset of the time namespace if there is one. Containers of one kernel may
/// be shown boot ids of their own (LXC, Incus, systemd-nspawn), so that another name does not mean that the machine was
/// restarted. Where the system does not tell, each process has a name of its own.
pub fn clock_id() -> &'static str {
    static ID: LazyLock<String> =
        LazyLock::new(|| told_clock_id().unwrap_or_else(|| format!("process-{}", uuid::Uuid::new_v4())));
    &ID
}

fn told_clock_id() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = Some(boot.trim()).filter(|boot| !boot.is_empty())?;
    // Another process's `/proc` says nothing of our namespaces.
    fs::metadata("/proc/self/ns").ok()?;
    let namespace = |name| fs::read_link(Path::new("/proc/self/ns").join(name));
    match (namespace("time"), namespace("time_for_children")) {
        (Err(e), Err(_)) if e.kind() == io::ErrorKind::NotFound => return Some(boot.to_owned()),
        // The offsets that are told are those for children: ours, unless we have been moved.
        (Ok(ours), Ok(childrens)) if ours == childrens => {}
        _ => return None,
    }
    let offset = boot_offset(&fs::read_to_string("/proc/self/timens_offsets").ok()?)?;
    Some(if offset == "0.0" { boot.to_owned() } else { format!("{boot}+{offset}") })
}

/// How far the boot clock of this time namespace is ahead of the machine's: seconds and nanoseconds, as they are told.
fn boot_offset(offsets: &str) -> Option<String> {
    // Linux 5.5 has the clock's number instead of its name.
    let told = offsets.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut told = told.filter(|fields| matches!(fields.first(), Some(&("boottime" | "7"))));
    match told.next()?.as_slice() {
        [_, seconds, nanos] => Some(format!("{seconds}.{nanos}")),
        _ => None,
    }
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

    #[test]
    fn the_offset_of_a_time_namespace_is_part_of_the_clocks_name() {
        let offset = |text| boot_offset(text);
        let none = "monotonic           0         0\nboottime            0         0\n";
        assert_eq!(offset(none).as_deref(), Some("0.0"));
        let ahead = "monotonic           0         0\nboottime        86400       500\n";
        assert_eq!(offset(ahead).as_deref(), Some("86400.500"));
        assert_eq!(offset("1 0 0\n7 -3600 0\n").as_deref(), Some("-3600.0"));
        for unclear in ["", "monotonic 0 0\n", "boottime 0\n", "boottime\n"] {
            assert_eq!(offset(unclear), None, "{unclear:?}");
        }
    }

    #[test]
    fn a_process_has_one_clock() {
        assert!(!clock_id().is_empty());
        assert_eq!(clock_id(), clock_id());
        #[cfg(target_os = "linux")]
        assert!(!clock_id().starts_with("process-"), "Linux tells: {}", clock_id());
    }

    #[test]
    fn times_are_dates_in_utc() {
        for (micros, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1_000, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_rfc3339(), written);
        }
        // However damaged a store is, its times can be written.
        let _ = Timestamp::from_micros(i64::MIN).to_rfc3339();
        let _ = Timestamp::from_micros(i64::MAX).to_rfc3339();
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
