//! A shop in one binary: an HTTP interface (axum), and the processors of what follows from an order.
//!
//! ```text
//!  POST /orders → place-order (command) → order-placed (event) → receipt
//!                                                              → stock
//! ```
//!
//! ```text
//! cargo run -p orders
//! curl -i localhost:8000/orders -H 'content-type: application/json' -d '{ "item": "tea", "quantity": 2 }'
//! ```
//!
//! An order is accepted (202) when its command is with the store: from then on it will be done, whatever becomes of this
//! process. What was done is in the book, a file of one line for each receipt and each change of the stock.
//!
//! | variable | | by default |
//! |---|---|---|
//! | `ORDERS_LISTEN` | where the interface is | `127.0.0.1:8000` |
//! | `ORDERS_BOOK` | the file of the book | `orders-book.jsonl` |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT` | where traces go, by OTLP as JSON over HTTP: a collector, Jaeger, … | nowhere |
//! | `BUS_HEALTH` | where `/live`, `/ready`, `/health` and `/metrics` are, say `127.0.0.1:8080` | nowhere |
//! | `BUS_TRANSPORTS__DEFAULT` | where the messages are | `sqlite://bus.db` |
//! | `RUST_LOG` | what is logged, on the standard error | `info` |
//!
//! What there is to be seen:
//!
//! * **One trace** for each request, over the command and the event to both subscriptions; whoever asks with a `traceparent`
//!   finds it in theirs. [`traces`] is all that it takes.
//! * **Health**: with the messages on a server (`--features redis`, `BUS_TRANSPORTS__DEFAULT=redis://localhost`), freeze that
//!   (`kill -STOP`): `/health` turns red within some 20 s, and is green again when the server goes on.
//! * **SIGTERM**: no request is let in any more, those that were are answered, what runs comes to its end, and the process
//!   ends. What was accepted and has not been done is done after the next start.

pub mod api;
pub mod book;
pub mod handlers;
pub mod messages;
pub mod traces;

use std::env;

use anyhow::Context;
use bus::host::config::Config;
use bus::host::{Host, HostHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use book::Book;

/// Runs the shop until SIGTERM or Ctrl-C.
///
/// # Errors
/// If something of it cannot be opened, or the host loses its store.
pub async fn run() -> anyhow::Result<()> {
    let traces = traces::start()?;
    let book = Book::open(env::var("ORDERS_BOOK").unwrap_or_else(|_| "orders-book.jsonl".to_owned()).into())?;
    let listen = env::var("ORDERS_LISTEN").unwrap_or_else(|_| "127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen at {listen}"))?;

    let host = Host::builder().config(Config::from_env()?).provide(book).build()?.start().await?;
    tracing::info!(%listen, "taking orders");
    let served =
        axum::serve(listener, api::routes(host.bus().clone())).with_graceful_shutdown(ending(host.clone()));
    // First whoever sends is brought to an end, then the host.
    let served = served.await.context("the interface has failed");
    let stopped = host.stop().await;
    traces.shut_down();
    served?;
    Ok(stopped?)
}

/// Returns when the process is asked to end, or the host has come to its end by itself.
async fn ending(host: HostHandle) {
    // Where signals cannot be waited for, they end the process.
    let signalled = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminated) => tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            },
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be waited for");
                std::future::pending().await
            }
        }
    };
    tokio::select! {
        () = signalled => {}
        // Why, is what `stop` answers.
        _ = host.wait() => {}
    }
}
