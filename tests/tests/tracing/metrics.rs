//! Numbers: counted exactly, and the same for OpenTelemetry and for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::host::HostHandle;
use bus::{Endpoint, Host};
use bus_tests::probe;
use bus_tests::wait::{PATIENCE, in_time};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use prometheus_parse::{Scrape, Value};

use super::handlers::{Dig, Seen, Todo, Work};

/// A host in real time, over a store in memory.
async fn host(with: impl FnOnce(bus::host::HostBuilder) -> bus::host::HostBuilder) -> HostHandle {
    let url = format!("memory://{}", uuid::Uuid::new_v4());
    let host = Host::builder().transport("default", &url).locks_at("default").provide(Seen::default());
    let host = with(host).health("127.0.0.1:0".parse().expect("an address"));
    in_time("started", host.build().expect("sound").start()).await.expect("it starts")
}

/// Everything that is sent here is done: five runs that succeed, one that fails twice before, one that is given up.
async fn work(host: &HostHandle) {
    let bus = host.bus();
    for todo in
        [Todo::Nothing, Todo::Nothing, Todo::Publish, Todo::Fail { times: 2, seconds: 0 }, Todo::DeadLetter]
    {
        bus.send(Work::to(todo)).await.expect("sent");
    }
    bus.send(Dig).await.expect("sent");
    for refused in bus.send_all([Work::default(), Work::default()]).await {
        refused.expect("sent");
    }
    let inspect = host.inspect("default").expect("it can be looked into");
    let done = async {
        for endpoint in ["work", "happened/one", "happened/two", "aftermath", "dig"] {
            let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
            loop {
                let depth = inspect.depth(&endpoint).await.expect("answered");
                if (depth.ready, depth.in_flight, depth.delayed) == (0, 0, 0) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    in_time("all is done", done).await;
}

/// Label by label: what is counted, by what.
type Numbers = BTreeMap<(String, String), f64>;

/// The numbers on the page, each with those of its labels that tell it from others of its name.
fn read(page: &str) -> Numbers {
    let scrape = Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).expect("Prometheus can read it");
    let mut numbers = Numbers::new();
    for sample in scrape.samples {
        let labels = |name: &str| sample.labels.get(&name.replace('.', "_")).map(str::to_owned);
        let what = label(labels);
        match sample.value {
            Value::Counter(number) | Value::Gauge(number) | Value::Untyped(number) => {
                numbers.insert((sample.metric, what), number);
            }
            Value::Histogram(buckets) => {
                let all = buckets.last().expect("there are buckets");
                assert!(all.less_than.is_infinite() && buckets.len() == 15, "{buckets:?}");
                assert!(buckets.windows(2).all(|pair| pair[0].count <= pair[1].count), "{buckets:?}");
                numbers.insert((sample.metric, what), all.count);
            }
            other => panic!("{}: {other:?}", sample.metric),
        }
    }
    numbers
}

fn label(of: impl Fn(&str) -> Option<String>) -> String {
    let names = [
        "messaging.destination.name",
        "messaging.destination.subscription.name",
        "messaging.operation.name",
        "error.type",
        "bus.state",
    ];
    names.into_iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

fn told(metrics: &ResourceMetrics) -> Numbers {
    let mut numbers = Numbers::new();
    for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
        let mut add = |attributes: &mut dyn Iterator<Item = &opentelemetry::KeyValue>, number: f64| {
            let all: BTreeMap<_, _> =
                attributes.map(|pair| (pair.key.to_string(), pair.value.to_string())).collect();
            assert!(all.is_empty() || all["messaging.system"] == "bus", "{all:?}");
            numbers.insert((metric.name().to_owned(), label(|name| all.get(name).cloned())), number);
        };
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                assert!(sum.is_monotonic());
                for point in sum.data_points() {
                    add(&mut point.attributes(), point.value() as f64);
                }
            }
            AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                for point in gauge.data_points() {
                    add(&mut point.attributes(), point.value());
                }
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                assert_eq!(metric.unit(), "s");
                for point in histogram.data_points() {
                    assert_eq!(point.bounds().count(), 14);
                    add(&mut point.attributes(), point.count() as f64);
                }
            }
            other => panic!("{}: {other:?}", metric.name()),
        }
    }
    numbers
}

fn expect(numbers: &Numbers, expected: &[(&str, &str, f64)]) {
    for (name, what, number) in expected {
        let key = ((*name).to_owned(), (*what).to_owned());
        assert_eq!(numbers.get(&key), Some(number), "{name} of {what:?} in {numbers:#?}");
    }
}

/// What was sent, run, retried and given up is counted exactly, whoever collects it.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_exact_and_the_same_for_opentelemetry_and_prometheus() {
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let host = host(|host| host.meter_provider(provider.clone())).await;
    work(&host).await;
    // The verdicts of the last runs may be with the store before they are counted.
    let counted = async {
        while read(&host.metrics())
            [&("messaging_process_duration_seconds".to_owned(), "dig process".to_owned())]
            < 1.0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("counted", counted).await;
    let page = host.metrics();
    provider.force_flush().expect("collected");
    let metrics = exporter.get_finished_metrics().expect("metrics");
    let told = told(metrics.last().expect("some"));
    let read = read(&page);
    expect(
        &told,
        &[
            ("messaging.client.sent.messages", "work send", 7.0),
            ("messaging.client.sent.messages", "happened send", 1.0),
            ("messaging.client.sent.messages", "aftermath send", 2.0),
            ("messaging.client.sent.messages", "dig send", 1.0),
            ("messaging.client.operation.duration", "work send", 6.0),
            ("messaging.client.consumed.messages", "work process", 9.0),
            ("messaging.client.consumed.messages", "happened one process", 1.0),
            ("messaging.client.consumed.messages", "happened two process", 1.0),
            ("messaging.client.consumed.messages", "aftermath process", 2.0),
            ("messaging.process.duration", "work process", 6.0),
            ("messaging.process.duration", "work process Handler", 3.0),
            ("messaging.process.duration", "happened one process", 1.0),
            ("bus.retries", "work", 2.0),
            ("bus.retries", "aftermath", 0.0),
            ("bus.dead_letters", "work", 1.0),
            ("bus.in_flight", "work", 0.0),
            ("bus.processor.green", "dig", 1.0),
            ("bus.host.ready", "", 1.0),
            ("bus.lock.state", "dig held", 1.0),
            ("bus.lock.state", "dig standby", 0.0),
        ],
    );
    let fence = ("bus.lock.fence".to_owned(), "dig".to_owned());
    assert!(told[&fence] > 1e15, "{:?}", told.get(&fence));
    // Settling and depths go on by themselves; all else is the same on both sides.
    let moves = |name: &str, what: &str| {
        what.contains("settle") || name.contains("bus.messages") || name.contains("bus_messages")
    };
    let mut compared = 0;
    for ((name, what), number) in told.iter().filter(|((name, what), _)| !moves(name, what)) {
        let total = if read.keys().any(|(there, _)| *there == format!("{}_total", name.replace('.', "_"))) {
            "_total"
        } else {
            ""
        };
        let seconds = if name.ends_with("duration") { "_seconds" } else { "" };
        let key = (format!("{}{seconds}{total}", name.replace('.', "_")), what.clone());
        assert_eq!(read.get(&key), Some(number), "{key:?} in {read:#?}");
        compared += 1;
    }
    let counted_there = read
        .keys()
        .filter(|(name, what)| !moves(name, what) && !name.ends_with("_sum") && !name.ends_with("_count"));
    assert_eq!(counted_there.count(), compared, "{read:#?}\n{told:#?}");
    in_time("stopped", host.stop()).await.expect("it stops");
}

/// `/metrics` stands beside the probes, and has the depths once somebody has asked.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_served_beside_the_probes() {
    let host = host(|host| host).await;
    work(&host).await;
    let address = host.health_address().expect("it listens");
    let page = probe::exchange(address, b"GET /metrics HTTP/1.1\r\n\r\n").await.expect("answered");
    let (head, _) = page.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    let dead = ("bus_messages".to_owned(), "work dead".to_owned());
    let started = std::time::Instant::now();
    loop {
        let (status, body) = probe::get(address, "/metrics").await.expect("answered");
        assert_eq!(status, 200);
        assert!(!body.contains(super::handlers::SECRET));
        let numbers = read(&body);
        if numbers.get(&dead) == Some(&1.0) {
            expect(
                &numbers,
                &[
                    ("bus_messages", "work ready", 0.0),
                    ("messaging_client_sent_messages_total", "work send", 7.0),
                ],
            );
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    in_time("stopped", host.stop()).await.expect("it stops");
}

/// A program that only sends is counted too.
#[tokio::test]
async fn a_producer_counts_what_it_sends_and_what_was_refused() {
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    let url = format!("memory://{}", uuid::Uuid::new_v4());
    let builder = Host::builder().transport("default", &url).meter_provider(provider.clone());
    let producer = builder.connect().await.expect("connected");
    producer.bus().send(Work::default()).await.expect("sent");
    producer.bus().send(Work::default()).header("", "x").await.expect_err("a header needs a name");
    provider.force_flush().expect("collected");
    let metrics = exporter.get_finished_metrics().expect("metrics");
    let told = told(metrics.last().expect("some"));
    expect(&told, &[("messaging.client.sent.messages", "work send", 1.0)]);
    producer.close().await;
}
