//! SIGTERM under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus_tests::site::Site;
use bus_tests::wait::{until_true, until_within};
use parking_lot::Mutex;

use super::shop::{Place, done};

const CUSTOMERS: usize = 8;

/// Whatever was accepted is done: before the process ends, or after the next start.
#[tokio::test]
async fn nothing_that_was_accepted_is_lost_at_sigterm_under_load() {
    let (site, place) = (Site::new(), Place::new());
    let mut shop = place.shop(&site).start();
    place.opened(&mut shop).await;
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    let mut customers = tokio::task::JoinSet::new();
    for _ in 0..CUSTOMERS {
        let accepted = Arc::clone(&accepted);
        customers.spawn(async move {
            let client = reqwest::Client::new();
            // Until the shop is closed.
            while let Some(order) = place.order(&client, "").await {
                accepted.lock().insert(order);
            }
        });
    }
    until_true("it is at work", || accepted.lock().len() >= 200 && done(&site, "receipt").len() >= 20).await;
    assert!(shop.try_exit().is_none(), "{}", shop.said());
    shop.terminate();
    let (status, _) = shop.exit_within(Duration::from_secs(45)).await;
    assert!(status.success(), "{}", shop.said());
    while customers.join_next().await.is_some() {}

    let accepted = std::mem::take(&mut *accepted.lock());
    let mut shop = place.shop(&site).start();
    place.opened(&mut shop).await;
    for page in ["receipt", "stock"] {
        let what = format!("{} orders are done: {page}", accepted.len());
        until_within(&what, Duration::from_secs(60), || accepted.is_subset(&done(&site, page)).then_some(()))
            .await;
    }
    shop.terminate();
    assert!(shop.exit().await.success(), "{}", shop.said());
}
