use bus::prelude::*;

#[derive(Settings)]
#[settings(max_concurrent_calls = 100, prefetch_count = 50, message_lock_timeout = "1m", crate = ::bus)]
#[settings(dead_letter_delivery_limit = 3, lease = "30s", retry(exponential(first = "1s", max = "5m")))]
#[settings(retention = "7d")]
struct Bulk;

#[derive(Settings)]
#[settings(retry(immediate))]
struct AtOnce;

#[derive(Settings)]
#[settings(retry = "immediate")]
struct AtOnceToo;

#[derive(Settings)]
#[settings(retry(fixed = "5s"))]
struct Steady;

#[derive(Settings)]
struct Nothing;

fn main() {
    assert_eq!(Bulk::MAX_CONCURRENT_CALLS, Some(100));
    assert_eq!(AtOnce::RETRY, AtOnceToo::RETRY);
    assert!(Steady::RETRY.is_some());
    assert_eq!(Nothing::PREFETCH_COUNT, None);
}
