//! The process, and who orders.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use bus_tests::probe;
use bus_tests::site::{Process, Setup, Site};
use bus_tests::wait::PATIENCE;
use serde_json::Value;

/// Where a shop is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) api: SocketAddr,
    pub(crate) health: SocketAddr,
}

impl Place {
    pub(crate) fn new() -> Self {
        let free = || {
            let port = bus_emulators::free_port().expect("a free port");
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        };
        Place { api: free(), health: free() }
    }

    /// The shop that is to be there.
    pub(crate) fn shop<'s>(&self, site: &'s Site) -> Setup<'s> {
        site.process(env!("CARGO_BIN_EXE_fixture-orders"))
            .env("ORDERS_LISTEN", self.api.to_string())
            .env("ORDERS_BOOK", site.path("book").display().to_string())
            .env("BUS_HEALTH", self.health.to_string())
    }

    /// Waits until it takes orders.
    pub(crate) async fn opened(&self, shop: &mut Process<'_>) {
        let started = std::time::Instant::now();
        while tokio::net::TcpStream::connect(self.api).await.is_err()
            || !probe::get(self.health, "/ready").await.is_ok_and(|(status, _)| status == 200)
        {
            assert!(shop.try_exit().is_none(), "{}", shop.said());
            assert!(started.elapsed() < PATIENCE, "{}", shop.said());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Orders something; answers the order's id if it was accepted.
    pub(crate) async fn order(&self, client: &reqwest::Client, traceparent: &str) -> Option<String> {
        let request = client
            .post(format!("http://{}/orders", self.api))
            .header("content-type", "application/json")
            .header("traceparent", traceparent)
            .body(r#"{ "item": "s3cret-tea", "quantity": 2 }"#);
        let response = request.send().await.ok()?;
        if response.status() != 202 {
            return None;
        }
        let accepted: Value = serde_json::from_str(&response.text().await.ok()?).ok()?;
        accepted["order"].as_str().map(str::to_owned)
    }
}

/// The orders of which the book says that this was done.
pub(crate) fn done(site: &Site, page: &str) -> BTreeSet<String> {
    let book = std::fs::read_to_string(site.path("book")).unwrap_or_default();
    let entries = book.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_page = entries.filter(|entry| entry["page"] == page);
    of_page.filter_map(|entry| entry["order"].as_str().map(str::to_owned)).collect()
}
