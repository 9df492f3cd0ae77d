//! How fast Postgres queues drain, side by side: jobs that do nothing are stored, then a worker is started, and the time
//! taken until the last of them is settled in the database. The contenders take turns on one server, each in a database
//! that is made for it and dropped after the turn. One JSON line per turn, then one per contender with the medians.
//!
//! See README.md.

#![forbid(unsafe_code)]

mod apalis;
mod bus;
mod graphile;
mod server;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use server::Server;

/// How many jobs are under way at once.
const CONCURRENCY: usize = 16;
/// How many jobs a contender has at hand: what graphile_worker was fastest with.
const AT_HAND: usize = 500;
/// How long one turn may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a turn has shown, in jobs a second.
struct Turn {
    stored: f64,
    drained: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bus-peers postgres://superuser@host:port [jobs [rounds [contender …]]]";
    let server = Server::new(&arguments.next().context(usage)?).await?;
    let jobs: usize = arguments.next().map_or(Ok(20_000), |number| number.parse()).context(usage)?;
    let rounds: usize = arguments.next().map_or(Ok(3), |number| number.parse()).context(usage)?;
    let mut contenders: Vec<String> = arguments.collect();
    if contenders.is_empty() {
        contenders = ["bus", "graphile_worker", "apalis-postgres"].map(str::to_owned).to_vec();
    }
    let mut turns: BTreeMap<String, Vec<Turn>> = BTreeMap::new();
    for round in 1..=rounds {
        for name in &contenders {
            let database = server.create(name).await?;
            let turn = match name.as_str() {
                "bus" => bus::turn(&database, jobs).await,
                "graphile_worker" => graphile::turn(&database, jobs).await,
                "apalis-postgres" => apalis::turn(&database, jobs).await,
                _ => anyhow::bail!("no contender is called {name}"),
            };
            let turn = turn.with_context(|| name.clone())?;
            server.remove(name).await?;
            let (stored, drained) = (turn.stored.round(), turn.drained.round());
            println!(
                "{}",
                json!({ "round": round, "contender": name, "jobs": jobs, "stored_per_s": stored, "drained_per_s": drained })
            );
            turns.entry(name.clone()).or_default().push(turn);
        }
    }
    let drained = |name: &str| turns.get(name).map(|turns| median(turns.iter().map(|turn| turn.drained)));
    let ours = drained("bus");
    for name in &contenders {
        let theirs = drained(name).unwrap_or(f64::NAN);
        let ratio = ours.map(|ours| (ours / theirs * 100.0).round() / 100.0);
        println!(
            "{}",
            json!({ "contender": name, "jobs": jobs, "rounds": rounds, "drained_per_s": theirs.round(), "bus_is_faster_by": ratio })
        );
    }
    Ok(())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn per_second(jobs: usize, since: Instant) -> f64 {
    jobs as f64 / since.elapsed().as_secs_f64()
}

/// Waits until something holds, which is asked for over and over.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !holds().await? {
        ensure!(begun.elapsed() < PATIENCE, "after {PATIENCE:?} still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
