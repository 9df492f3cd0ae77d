//! Health: red while the store is frozen, green again when it is not.

use std::time::{Duration, Instant};

use bus_tests::probe;
use bus_tests::redis::{DURABLE, Redis, missing};
use bus_tests::site::Site;
use bus_tests::skip::not_run;

use super::shop::{Place, done};

/// Longer than the longest time after which a processor is red whose store does not answer, on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

async fn until_health_is(place: Place, green: bool) -> serde_json::Value {
    let started = Instant::now();
    loop {
        let (is_green, health) = probe::health(place.health).await.expect("it is answered");
        if is_green == green {
            return health;
        }
        assert!(started.elapsed() < SEEN_WITHIN, "green = {green} was awaited: {health:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Nothing is cut, and every connection stands: the server just does not answer.
#[tokio::test]
async fn health_is_red_while_the_store_is_frozen_and_green_again_after() {
    if let Some(missing) = missing() {
        return not_run(missing);
    }
    let redis = Redis::start(DURABLE);
    let (site, place) = (Site::new(), Place::new());
    let mut shop = place.shop(&site).env("BUS_TRANSPORTS__DEFAULT", redis.url("orders")).start();
    place.opened(&mut shop).await;
    until_health_is(place, true).await;

    redis.freeze();
    let health = until_health_is(place, false).await;
    let troubles: Vec<_> = health["processors"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["trouble"].as_str())
        .collect();
    assert!(!troubles.is_empty(), "{health:#}");
    for (path, expected) in [("/live", 200), ("/ready", 200), ("/metrics", 200)] {
        let (status, _) = probe::get(place.health, path).await.expect("answered");
        assert_eq!(status, expected, "{path}: nobody is to restart it for that");
    }

    redis.thaw();
    until_health_is(place, true).await;
    let client = reqwest::Client::new();
    let started = Instant::now();
    let order = loop {
        if let Some(order) = place.order(&client, "").await {
            break order;
        }
        assert!(started.elapsed() < SEEN_WITHIN, "{}", shop.said());
    };
    bus_tests::wait::until_true("the order is done", || {
        ["receipt", "stock"].iter().all(|page| done(&site, page).contains(&order))
    })
    .await;
    shop.terminate();
    assert!(shop.exit().await.success(), "{}", shop.said());
}
