//! What waiting costs, and what a claim reads. Scenarios M24, M26.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Outgoing, Settlement};
use bus::message::Verdict;
use bus::prelude::*;
use bus::{Endpoint, Envelope};
use bus_tests::postgres::{Server, available};
use bus_tests::wait::PATIENCE;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::open;

fn message(endpoint: &Endpoint) -> Outgoing {
    let now = bus::clock::Clock::system().wall();
    Outgoing::new(endpoint.target(), Envelope::new("test", &b"{}"[..], now))
}

fn queue(name: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint::queue(name).unwrap())
}

/// How many transactions the server has done in this database.
async fn transactions(client: &tokio_postgres::Client) -> i64 {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    client.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_with_ten_queues_asks_less_than_five_times_a_second() {
    const TIME: Duration = Duration::from_secs(30);
    if !available() {
        return;
    }
    let server = Server::start_with(&["autovacuum=off"]).await;
    let transport = open(&server.url()).await;
    let stop = CancellationToken::new();
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..10 {
        let endpoint = queue(&format!("idle-{number}"));
        transport.prepare(std::slice::from_ref(&*endpoint)).await.unwrap();
        let consumer =
            transport.consumer(ConsumerSpec::new(endpoint, Duration::from_secs(30))).await.unwrap();
        let stop = stop.clone();
        waiting.spawn(async move { consumer.receive(10, &stop).await });
    }
    // A session writes its counts down up to ten seconds late: those of the beginning are not meant.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let client = server.client().await;
    let before = transactions(&client).await;
    tokio::time::sleep(TIME).await;
    let per_second = (transactions(&client).await - before) as f64 / TIME.as_secs_f64();
    assert!(per_second < 5.0, "{per_second} transactions a second");
    assert!(
        per_second > 0.2,
        "{per_second} transactions a second: the host does not poll, or nothing was counted"
    );
    stop.cancel();
    while let Some(ended) = waiting.join_next().await {
        assert!(ended.unwrap().unwrap().is_empty());
    }
    transport.close().await;
}

/// How many statements the server has run that are written down.
fn statements(server: &Server) -> usize {
    server.log().matches("LOG:  execute ").count()
}

/// M26: a message wakes all who wait for it, in each of ten hosts, and one of them gets it. What the others ask in vain is
/// bounded, and on the backend's page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_wakes_ten_hosts_costs_a_bounded_number_of_statements() {
    const HOSTS: usize = 10;
    const MESSAGES: usize = 40;
    if !available() {
        return;
    }
    let server = Server::start_with(&["autovacuum=off", "log_statement=all"]).await;
    let endpoint = queue("herd");
    let stop = CancellationToken::new();
    let (done, mut is_done) = tokio::sync::mpsc::unbounded_channel();
    let mut hosts = tokio::task::JoinSet::new();
    for _ in 0..HOSTS {
        let transport = open(&server.url()).await;
        transport.prepare(std::slice::from_ref(&*endpoint)).await.unwrap();
        let spec = ConsumerSpec::new(Arc::clone(&endpoint), Duration::from_secs(30));
        let consumer = transport.consumer(spec).await.unwrap();
        let (stop, done) = (stop.clone(), done.clone());
        hosts.spawn(async move {
            while !stop.is_cancelled() {
                for one in consumer.receive(10, &stop).await.unwrap() {
                    let settlement = Settlement::new(one.receipt, Verdict::Complete);
                    consumer.settle(vec![settlement]).await.remove(0).unwrap();
                    done.send(()).unwrap();
                }
            }
            transport.close().await;
        });
    }
    let producer = open(&server.url()).await;
    let pause = Duration::from_millis(250);
    let time = pause * u32::try_from(MESSAGES).unwrap();
    // So that all of them wait.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = statements(&server);
    tokio::time::sleep(time).await;
    let idle = statements(&server) - before;
    let before = statements(&server);
    for _ in 0..MESSAGES {
        let next = tokio::time::Instant::now() + pause;
        producer.sender().send(vec![message(&endpoint)]).await.remove(0).unwrap();
        bus_tests::wait::in_time("it is done", is_done.recv()).await.unwrap();
        tokio::time::sleep_until(next).await;
    }
    let busy = statements(&server) - before;
    let each = busy.saturating_sub(idle) as f64 / MESSAGES as f64;
    println!(
        "{each:.1} statements for a message, with {HOSTS} hosts that wait ({idle} in {time:?} without any)"
    );
    assert!(each < 70.0, "{each} statements for a message");
    stop.cancel();
    while let Some(ended) = hosts.join_next().await {
        ended.unwrap();
    }
    producer.close().await;
}

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "latency")]
struct Timed;

#[processor]
async fn timed(_message: Timed, starts: Dep<UnboundedSender<Instant>>) -> Result<()> {
    // Whoever measured may have gone.
    let _ = starts.send(Instant::now());
    Ok(())
}

/// From the sending in one host to the start of the handler in another, while nothing else is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_starts_another_hosts_handler_in_less_than_5_ms() {
    const PROMISED: Duration = Duration::from_millis(5);
    if !available() {
        return;
    }
    let server = Server::start().await;
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let host = bus::Host::builder().transport("default", &server.url()).only(["latency"]).provide(starts);
    let host = host.build().unwrap().start().await.unwrap();
    let producer = crate::stream::producer(&server.url()).await;
    let send = async || drop(producer.bus().send(Timed).await.unwrap());
    let client = server.client().await;
    let ask = async || client.batch_execute("SELECT 1").await.unwrap();
    bus_tests::latency::assert_median(PROMISED, send, &mut started, ask).await;
    producer.close().await;
    host.stop().await.unwrap();
}

/// M26: one message wakes one consumer in each host that waits for its queue, which looks once; whoever waits for another
/// queue sleeps on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_wakes_one_consumer_in_each_host_and_only_those_of_its_queue() {
    const HOSTS: usize = 4;
    /// What a claim consists of: the look ahead, and one from the beginning.
    const LOOKS: usize = 2;
    if !available() {
        return;
    }
    let server = Server::start_with(&["log_statement=all"]).await;
    let stop = CancellationToken::new();
    let mut waiting = tokio::task::JoinSet::new();
    let mut transports = Vec::new();
    let other_id = {
        for _ in 0..HOSTS {
            let transport = open(&server.url()).await;
            for name in ["woken", "asleep"] {
                let endpoint = queue(name);
                transport.prepare(std::slice::from_ref(&*endpoint)).await.unwrap();
                let spec = ConsumerSpec::new(endpoint, Duration::from_secs(30));
                let (consumer, stop) = (transport.consumer(spec).await.unwrap(), stop.clone());
                waiting.spawn(async move { consumer.receive(1, &stop).await });
            }
            transports.push(transport);
        }
        let client = server.client().await;
        client
            .query_one("SELECT id FROM bus.endpoint WHERE name = 'asleep'", &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
    };
    // A claim, and the numbers that it was made with.
    let claims = |log: &str| -> Vec<i64> {
        let mut found = Vec::new();
        let mut lines = log.lines();
        while let Some(line) = lines.next() {
            if line.contains("Completes what the consumer is done with") {
                let values = lines.find(|line| line.contains("DETAIL") && line.contains("$1 = '"));
                let value = values.and_then(|line| line.split("$1 = '").nth(1)?.split('\'').next());
                let first: Option<i64> = value.and_then(|value| value.parse().ok());
                found.extend(first);
            }
        }
        found
    };
    // All of them have looked, and none is at it any more.
    let began = Instant::now();
    let mut quiet = (0, Instant::now());
    while quiet.0 < 2 * HOSTS || quiet.1.elapsed() < Duration::from_secs(1) {
        let now = claims(&server.log()).len();
        if now != quiet.0 {
            quiet = (now, Instant::now());
        }
        assert!(began.elapsed() < PATIENCE, "{} claims: they do not come to rest", quiet.0);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = server.log().len();
    let producer = open(&server.url()).await;
    producer.sender().send(vec![message(&queue("woken"))]).await.remove(0).unwrap();
    // Whoever has got it has looked once; the others have, too, when they wait again.
    let got = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(got.len(), 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let woken = claims(&server.log()[before..]);
    stop.cancel();
    assert!(!woken.contains(&other_id), "consumers of another queue were woken");
    // A second time by the poll, should it come just then.
    assert!((1..=2 * HOSTS * LOOKS).contains(&woken.len()), "{} claims of one message", woken.len());
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap().unwrap();
    }
    for transport in transports.into_iter().chain([producer]) {
        transport.close().await;
    }
}

/// M24: what a claim reads does not grow with what waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_reads_what_it_takes_however_much_waits() {
    const WAITING: usize = 100_000;
    if !available() {
        return;
    }
    let server = Server::start_with(&["autovacuum=off"]).await;
    let transport = open(&server.url()).await;
    let endpoint = queue("many");
    for _ in 0..WAITING / 10_000 {
        for answer in transport.sender().send((0..10_000).map(|_| message(&endpoint)).collect()).await {
            answer.unwrap();
        }
    }
    let client = server.client().await;
    client.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    let spec = ConsumerSpec::new(Arc::clone(&endpoint), Duration::from_secs(30));
    let consumer = transport.consumer(spec).await.unwrap();
    let stop = CancellationToken::new();
    let mut claimed = 0;
    for _ in 0..20 {
        let got = consumer.receive(50, &stop).await.unwrap();
        claimed += got.len() as i64;
        let settlements =
            got.into_iter().map(|one| Settlement::new(one.receipt, Verdict::Complete)).collect();
        for answer in consumer.settle(settlements).await {
            answer.unwrap();
        }
    }
    transport.close().await;
    let reads = "SELECT seq_tup_read, coalesce(idx_tup_fetch, 0), n_tup_del FROM pg_stat_user_tables \
                 WHERE schemaname = 'bus' AND relname = 'message'";
    let began = Instant::now();
    loop {
        let row = client.query_one(reads, &[]).await.unwrap();
        let (whole, by_index, deleted): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        // Sessions write their counts down when they end.
        if deleted == claimed {
            assert_eq!(whole, 0, "the table was read as a whole");
            assert!(by_index < claimed * 10, "for {claimed} messages {by_index} rows were read");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{deleted} of {claimed} deletions were counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The statement that claims, with the settings of the sessions that run it.
const CLAIM: &str = include_str!("../../../bus/src/backend/postgres/sql/turn.sql");
const AS_A_HOST: &str = "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off;
                         SET plan_cache_mode = force_generic_plan";

/// What a plan does, without its figures, and how many blocks it has touched.
fn steps(plan: &serde_json::Value, into: &mut Vec<String>) -> i64 {
    let text = |name: &str| plan[name].as_str().unwrap_or_default().to_owned();
    into.push(format!("{} {} {}", text("Node Type"), text("Relation Name"), text("Index Name")));
    for part in plan["Plans"].as_array().into_iter().flatten() {
        steps(part, into);
    }
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().filter_map(|name| plan[*name].as_i64()).sum()
}

/// M24: from a hundred messages to a million the plan is the same, goes by the index, and touches as many blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_planned_alike_for_a_hundred_messages_and_a_million() {
    if !available() {
        return;
    }
    let server = Server::start_with(&["autovacuum=off", "fsync=off", "max_wal_size=8GB"]).await;
    let transport = open(&server.url()).await;
    transport.prepare(&[(*queue("plan")).clone()]).await.unwrap();
    transport.close().await;
    let client = server.client().await;
    let types = "bigint, bigint[], bigint[], bigint, bigint, bigint, bigint, bigint, bigint[], bigint";
    let prepare = format!("{AS_A_HOST}; PREPARE claim({types}) AS {}", CLAIM.replace("{schema}", "bus"));
    client.batch_execute(&prepare).await.unwrap();
    let explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE claim(
                   (SELECT id FROM bus.endpoint), '{}', '{}', 50, 0, 7, 30000000, NULL, '{}', 16777216)";
    let explain = {
        let row = client.query_one("SELECT id FROM bus.endpoint", &[]).await.unwrap();
        explain.replace("(SELECT id FROM bus.endpoint)", &row.get::<_, i64>(0).to_string())
    };
    let mut first: Option<(Vec<String>, i64)> = None;
    let mut there = 0;
    for waiting in [100, 10_000, 1_000_000] {
        let fill = format!(
            "INSERT INTO bus.message (endpoint, sent_at, uuid, type, body)
             SELECT (SELECT id FROM bus.endpoint), 0, gen_random_uuid(), 't', '{{}}' FROM generate_series({there} + 1, {waiting})"
        );
        client.batch_execute(&fill).await.unwrap();
        there = waiting;
        client.batch_execute("BEGIN").await.unwrap();
        let row = client.simple_query(&explain).await.unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        let text = row.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let plan: serde_json::Value = serde_json::from_str(&text.expect("a plan")).unwrap();
        let mut found = Vec::new();
        let blocks = steps(&plan[0]["Plan"], &mut found);
        assert!(found.iter().any(|step| step == "Index Scan message message_pkey"), "{found:#?}");
        assert!(!found.iter().any(|step| step.starts_with("Seq Scan message")), "{found:#?}");
        match &first {
            None => first = Some((found, blocks)),
            Some((plan, few)) => {
                assert_eq!(&found, plan, "another plan for {waiting}");
                assert!(
                    blocks > 0 && blocks < few * 2 + 50,
                    "{blocks} blocks of {waiting} messages, {few} of 100"
                );
            }
        }
    }
}
