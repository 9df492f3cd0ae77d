//! Traces, as a collector has them.

use bus_tests::probe;
use bus_tests::site::Site;
use bus_tests::wait::until;

use super::collector::{Collector, Span};
use super::shop::Place;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// From whoever asks to both who hear of it: one trace, each span a child of the one before.
#[tokio::test]
async fn one_trace_over_a_request_its_command_its_event_and_both_subscriptions() {
    let collector = Collector::start().await;
    let (site, place) = (Site::new(), Place::new());
    let setup = place.shop(&site).env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint);
    let mut shop = setup.env("OTEL_BSP_SCHEDULE_DELAY", "50").start();
    place.opened(&mut shop).await;
    let client = reqwest::Client::new();
    let order = place.order(&client, &format!("00-{TRACE}-{CALLER}-01")).await.expect("accepted");
    let spans = until("all of the trace is exported", || {
        let spans = collector.of_trace(TRACE);
        (spans.len() >= 6).then_some(spans)
    })
    .await;
    let chain = [
        ("POST /orders", CALLER, 2),
        ("send place-order", "POST /orders", 4),
        ("process place-order", "send place-order", 5),
        ("publish order-placed", "process place-order", 4),
        ("process order-placed/receipt", "publish order-placed", 5),
        ("process order-placed/stock", "publish order-placed", 5),
    ];
    assert_eq!(spans.len(), chain.len(), "{spans:#?}");
    let named = |name: &str| spans.iter().find(|span| span.name == name);
    for (name, parent, kind) in chain {
        let span: &Span = named(name).unwrap_or_else(|| panic!("{name} is not among {spans:#?}"));
        let parent = named(parent).map_or(parent, |parent| &parent.id);
        assert_eq!((span.parent.as_str(), span.kind), (parent, kind), "{name}");
        assert!(span.attributes.values().all(|value| !value.contains("s3cret")), "{span:?}");
    }
    let command = named("process place-order").expect("looked at above");
    assert_eq!(command.attributes["messaging.message.id"], order);
    assert_eq!(command.attributes["messaging.system"], "bus");

    let (status, page) = probe::get(place.health, "/metrics").await.expect("answered");
    assert_eq!(status, 200);
    let sent = r#"messaging_client_sent_messages_total{messaging_system="bus",messaging_destination_name="place-order",bus_transport="default",messaging_operation_name="send",messaging_operation_type="send"} 1"#;
    assert!(page.lines().any(|line| line == sent), "{page}");
    shop.terminate();
    assert!(shop.exit().await.success(), "{}", shop.said());
}
