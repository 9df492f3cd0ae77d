//! Messages that nobody would send on purpose: for nobody, of another type, in another encoding, under impossible names.

use bus::contract::{Depth, OpenOptions, Outgoing, PutBack, Scheme, StoreUrl};
use bus::message::{Name, Target};
use bus::{Command, Endpoint, Envelope, ErrorKind, Event, Headers, Host, Message, MessageId};
use serde::{Deserialize, Serialize};

use super::handlers::{Answer, Hasty, Ledger, Note, Parcel, ParcelSighted};
use super::{Embedded, Place};

/// A message as some other program may send it.
fn foreign(message_type: &'static str, content_type: Option<&str>, body: &'static [u8]) -> Envelope {
    let mut envelope = Envelope::new(message_type, body, bus::clock::Clock::system().wall());
    if let Some(content_type) = content_type {
        envelope.headers.insert(Headers::CONTENT_TYPE, content_type);
    }
    envelope
}

/// Puts a message into a queue without asking the bus.
async fn put(place: &Place, queue: &str, envelope: Envelope) -> MessageId {
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find(url.scheme()).expect("a scheme").transport.expect("it carries messages");
    let transport = open(&url, &OpenOptions::default()).await.expect("it opens");
    let id = envelope.id;
    let target = Target::Queue(Name::new(queue).expect("a name"));
    for sent in transport.sender().send(vec![Outgoing::new(target, envelope)]).await {
        sent.expect("sent");
    }
    id
}

/// Waits for the next dead letter of a queue; answers why it is one.
async fn reason(host: &Embedded, queue: &str, dead: usize) -> (String, String) {
    host.until("it is dead", queue, |depth| depth.dead == dead as u64).await;
    let letter = host.dead(queue).await.pop().expect("a dead letter");
    (letter.reason, letter.error.unwrap_or_default())
}

/// A command for a queue that nobody reads is kept, seen in the depths, and done by whoever reads it one day.
#[tokio::test]
async fn a_command_that_nobody_reads_is_kept_and_seen() {
    for place in Place::each() {
        let host = place.host(&["hasty"]).start().await;
        let id = host.handle.bus().send(Note("for whom?".into())).await.expect("sent").id();
        let inspect = host.handle.inspect("default").expect("it can be looked into");
        let queue = Endpoint::queue("note").expect("an endpoint");
        assert!(inspect.endpoints().await.expect("answered").contains(&queue), "it is listed");
        assert_eq!(host.depth("note").await, Depth::new(1, 0, 0, 0));
        host.stop().await;

        let mut host = place.host(&["note"]).start().await;
        assert_eq!(host.seen().await.id, id);
        host.until_drained("note").await;
        host.stop().await;
    }
}

/// An event of a topic without subscriptions is gone: that it has none is seen in the endpoints, and a subscription that
/// comes later gets what is published from then on.
#[tokio::test]
async fn an_event_without_subscriptions_is_gone() {
    for place in Place::each() {
        let host = place.host(&["hasty"]).start().await;
        host.handle.bus().publish(ParcelSighted(vec![1])).await.expect("published all the same");
        let inspect = host.handle.inspect("default").expect("it can be looked into");
        let listed = inspect.endpoints().await.expect("answered");
        assert!(
            !listed.iter().any(|endpoint| endpoint.to_string().starts_with("parcel-sighted")),
            "{listed:?}"
        );
        host.stop().await;

        let mut host = place.host(&["parcel-sighted/watch"]).start().await;
        host.handle.bus().publish(ParcelSighted(vec![1, 2])).await.expect("published");
        assert_eq!(host.seen().await.text, "2", "not the one before");
        host.until_drained("parcel-sighted/watch").await;
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// M20: nothing is dispatched by a message's type. What does not fit is dead, and the reason says what it was sent as.
#[tokio::test]
async fn a_message_of_another_type_is_read_or_dead_with_its_name() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        put(&place, "note", foreign("OldNote", None, b"\"renamed since\"")).await;
        assert_eq!(host.seen().await.text, "renamed since");
        let id = put(&place, "note", foreign("Invoice", None, b"{\"number\":7}")).await;
        let (reason, error) = reason(&host, "note", 1).await;
        assert_eq!(reason, "undecodable");
        assert!(error.contains("type: Note") && error.contains("sent as: Invoice"), "{error}");
        assert_eq!(host.dead("note").await[0].envelope.id, id);
        assert!(host.seen_so_far().is_empty(), "no handler has seen it");
        host.stop().await;
    }
}

/// M20: what says that it is encoded in another way is not tried; what says nothing, or the same in other words, is.
#[tokio::test]
async fn a_message_in_another_encoding_is_dead_with_both_encodings() {
    for place in Place::each() {
        let mut host = place.host(&["note", "parcel"]).start().await;
        let readable = [
            ("note", None, b"\"a\"".as_slice()),
            ("note", Some("application/json"), b"\"a\""),
            ("note", Some("Application/JSON ; charset=utf-8"), b"\"a\""),
            ("parcel", None, b"\xff\0"),
            ("parcel", Some("application/octet-stream"), b"\xff\0"),
        ];
        for (queue, content_type, body) in readable {
            put(&place, queue, foreign("foreign", content_type, body)).await;
            assert_eq!(host.seen().await.at, queue, "{content_type:?}");
        }
        // The last two could be decoded, to something that nobody meant.
        let unreadable: [(&str, &str, usize); 4] = [
            ("note", "application/msgpack", 1),
            ("note", "", 2),
            ("parcel", "application/json", 1),
            ("parcel", "application/octet-stream+zip", 2),
        ];
        for (queue, content_type, dead) in unreadable {
            let id = put(&place, queue, foreign("foreign", Some(content_type), b"\"a\"")).await;
            let (reason, error) = reason(&host, queue, dead).await;
            assert_eq!(reason, "undecodable", "{queue}: {content_type}");
            let reads =
                if queue == "note" { "reads: application/json" } else { "reads: application/octet-stream" };
            for words in ["another way", reads, &format!("{content_type:?}")] {
                assert!(error.contains(words), "{queue}: {words} is missing from: {error}");
            }
            let letter = host.dead(queue).await.pop().expect("a dead letter");
            assert_eq!(
                (letter.envelope.id, letter.envelope.body.as_ref()),
                (id, b"\"a\"".as_slice()),
                "as it came"
            );
        }
        assert!(host.seen_so_far().is_empty(), "no handler has seen them");
        host.stop().await;
    }
}

/// What the bus itself sends says how it is encoded, where that is not JSON.
#[tokio::test]
async fn an_encoding_of_ones_own_is_named_in_the_headers() {
    for place in Place::each() {
        let mut host = place.host(&["note", "parcel"]).start().await;
        let bus = host.handle.bus().clone();
        bus.send(Parcel(vec![0xff, 0, 0xfe])).await.expect("sent");
        let seen = host.seen().await;
        assert_eq!(
            (seen.text.as_str(), seen.headers.get(Headers::CONTENT_TYPE)),
            ("3", Some(Parcel::CONTENT_TYPE))
        );
        bus.send(Note("as JSON".into())).await.expect("sent");
        assert_eq!(host.seen().await.headers.get(Headers::CONTENT_TYPE), None);
        host.stop().await;
    }
}

/// M31: any text by any name comes out as it went in; a name that is none, or the bus's own, is refused.
#[tokio::test]
async fn headers_are_any_text_by_any_name_but_none_and_the_buss_own() {
    let odd = ["line\r\nbreak: x", "\0", "\u{2028}", "🦀👩‍👩‍👧", "\u{202e}", " ", "=", "a\"b'c;--", "\u{feff}é"];
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let bus = host.handle.bus().clone();
        let all =
            odd.iter().fold(bus.send(Note("odd".into())), |dispatch, text| dispatch.header(*text, *text));
        all.header("none", "").await.expect("sent");
        let seen = host.seen().await;
        for text in odd {
            assert_eq!(seen.headers.get(text), Some(text), "{text:?}");
        }
        assert_eq!(seen.headers.get("none"), Some(""));

        for (name, why) in
            [("", "needs a name"), (Headers::CONTENT_TYPE, "CONTENT_TYPE"), ("bus-fence", "bus's own")]
        {
            let refused = bus.send(Note("refused".into())).header(name, "x").await.expect_err(name);
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(refused.to_string().contains(why), "{refused}");
        }
        host.until_drained("note").await;
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// M28: numbers that no double can hold come out as they went in.
#[tokio::test]
async fn numbers_of_64_bits_survive() {
    for place in Place::each() {
        let mut host = place.host(&["ledger"]).start().await;
        let ledgers = [
            Ledger { credit: (1 << 53) + 1, debit: -(1 << 53) - 1, rate: 0.1 },
            Ledger { credit: u64::MAX, debit: i64::MIN, rate: f64::MAX },
            Ledger { credit: 0, debit: i64::MAX, rate: f64::MIN_POSITIVE },
        ];
        for ledger in ledgers {
            host.handle.bus().send(ledger).await.expect("sent");
            assert_eq!(host.seen().await.text, format!("{ledger:?}"));
        }
        host.stop().await;
    }
}

/// M28: rows far beyond 2^53, on the whole way of a message: sent, delayed, cancelled, retried, dead, put back.
#[tokio::test]
async fn row_ids_beyond_2_to_the_53_are_like_any_other() {
    const BEYOND: i64 = (1 << 53) + 1;
    let place = Place::sqlite();
    place.host(&["hasty"]).start().await.stop().await;
    let file = place.url.strip_prefix("sqlite://").expect("a file").to_owned();
    let sql = rusqlite::Connection::open(&file).expect("opened");
    // The hundred thousandth endpoint, the trillionth message, the nine quadrillionth death.
    sql.execute_batch(&format!(
        "INSERT INTO bus_endpoint (id, name) VALUES (100000, 'many-before');
         UPDATE bus_sequence SET next = 1 << 40;
         INSERT INTO sqlite_sequence (name, seq) VALUES ('bus_dead', {BEYOND})"
    ))
    .expect("seeded");
    let smallest = |column: &str, table: &str| -> Option<i64> {
        sql.query_row(&format!("SELECT min({column}) FROM {table}"), [], |row| row.get(0)).expect("read")
    };

    let fails_first = [Answer::Fail, Answer::DeadLetter("no")];
    let mut host = place.host(&["note", "parcel-sighted/watch"]).answering_in_turn(fails_first).start().await;
    let bus = host.handle.bus().clone();
    let hour = std::time::Duration::from_secs(3600);
    let later = bus.send(Note("later".into())).delay(hour).await.expect("sent");
    assert!(smallest("id", "bus_delayed") > Some(BEYOND), "the row is beyond");
    assert!(bus.cancel(&later).await.expect("answered"));

    let id = bus.send(Note("twice".into())).await.expect("sent").id();
    assert_eq!((host.seen().await.count, host.seen().await.count), (1, 2));
    host.until("it is dead", "note", |depth| depth == Depth::new(0, 0, 0, 1)).await;
    assert!(smallest("death", "bus_dead") > Some(BEYOND), "the row is beyond");
    let inspect = host.handle.inspect("default").expect("it can be looked into");
    let queue = Endpoint::queue("note").expect("an endpoint");
    assert_eq!(inspect.put_back(&queue, &[id]).await.expect("answered"), [(id, PutBack::Done)]);
    assert_eq!(host.seen().await.id, id);
    bus.publish(ParcelSighted(vec![1])).await.expect("published");
    assert_eq!(host.seen().await.at, "parcel-sighted/watch");
    host.until_drained("note").await;
    host.until_drained("parcel-sighted/watch").await;
    host.stop().await;
}

/// What no queue, topic or transport can be called.
const BAD_NAMES: [&str; 12] = [
    "",
    " ",
    "two words",
    "dotted.name",
    "a/b/c",
    "Capital",
    "åäö",
    "🦀",
    "-a",
    "a--b",
    "nul\0",
    "../../etc/passwd",
];

/// M30: names given at run time are refused with the reason, as those in the source are while compiling.
#[test]
fn impossible_names_are_refused_when_a_host_is_built() {
    for name in BAD_NAMES {
        let place = Place::memory();
        let (seen, _) = tokio::sync::mpsc::unbounded_channel();
        let probe = super::Probe { seen, answer: std::sync::Arc::new(|_| super::Answer::Done) };
        let host = || Host::builder().transport("default", &place.url).provide(probe.clone());
        let only = host().only([name]).build().map(drop).expect_err(name);
        let without = host().only(["note"]).without([name]).build().map(drop).expect_err(name);
        let transport =
            host().only(["note"]).transport(name, "memory://other").build().map(drop).expect_err(name);
        for refused in [only, without, transport] {
            assert_eq!(refused.kind(), ErrorKind::Wiring, "{name:?}");
            let text = refused.to_string();
            // Of an address that is none, the part is named that is wrong.
            assert!(text.contains("cannot be a name: it ") && text.contains("a-z, 0-9"), "{name:?}: {text}");
            assert!(text.contains("one thing is wrong"), "{name:?}: {text}");
        }
    }
}

macro_rules! misnamed {
    ($($message:ident: $name:literal)+) => {$(
        #[derive(Default, Serialize, Deserialize)]
        struct $message;
        impl Message for $message {
            const TYPE: &'static str = stringify!($message);
        }
        impl Command for $message {
            const QUEUE: &'static str = $name;
        }
        impl Event for $message {
            const TOPIC: &'static str = $name;
        }
    )+};
}

misnamed! { Empty: "" Spaced: "two words" Dotted: "dotted.name" Slashed: "a/b" Capital: "Capital" Crab: "🦀" Nul: "nul\0" }

#[derive(Serialize, Deserialize)]
struct Elsewhere;
impl Message for Elsewhere {
    const TYPE: &'static str = "Elsewhere";
    const TRANSPORT: &'static str = "no/such transport";
}
impl Command for Elsewhere {
    const QUEUE: &'static str = "fine";
}

/// M30: a message whose traits were written by hand may have any name; it is refused when it is sent.
#[tokio::test]
async fn messages_with_impossible_names_are_refused_when_sent() {
    async fn refused<M: Command + Event + Default>(host: &Embedded) {
        let bus = host.handle.bus();
        let all = [
            bus.send(M::default()).await,
            bus.publish(M::default()).await,
            bus.send_all([M::default()]).await.remove(0),
            bus.publish_all([M::default()]).await.remove(0),
        ];
        for sent in all {
            let error = sent.expect_err(M::TYPE);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}", M::TYPE);
            assert!(error.to_string().contains("cannot be a name: it "), "{error}");
        }
    }
    for place in Place::each() {
        let host = place.host(&["hasty"]).start().await;
        let inspect = host.handle.inspect("default").expect("it can be looked into");
        let before = inspect.endpoints().await.expect("answered");
        refused::<Empty>(&host).await;
        refused::<Spaced>(&host).await;
        refused::<Dotted>(&host).await;
        refused::<Slashed>(&host).await;
        refused::<Capital>(&host).await;
        refused::<Crab>(&host).await;
        refused::<Nul>(&host).await;
        let error = host.handle.bus().send(Elsewhere).await.expect_err("there is no such transport");
        assert_eq!(error.kind(), ErrorKind::UnknownTransport);
        assert_eq!(inspect.endpoints().await.expect("answered"), before, "nothing of them is in the store");
        host.handle.bus().send(Hasty("polite".into())).await.expect("the others are sent");
        host.stop().await;
    }
}
