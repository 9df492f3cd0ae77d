//! What a processor has done before one of its messages is dead-lettered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bus::prelude::*;
use bus::testing::*;
use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

/// What the functions have seen, in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn note(&self, note: impl Into<String>) {
        self.0.lock().push(note.into());
    }
}

async fn host_of(processor: &str) -> (TestHost, Notes) {
    let notes = Notes::default();
    let host = TestHost::builder().only([processor]).provide(notes.clone()).start().await.expect("it starts");
    (host, notes)
}

/// What a charge does, and then what is done before it is dead-lettered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Does {
    Succeeds,
    Fails,
    Panics,
    Hangs,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "charge-card")]
struct ChargeCard {
    order: u64,
    first: Does,
    then: Does,
}

impl ChargeCard {
    fn that(first: Does, then: Does) -> Self {
        ChargeCard { order: 7, first, then }
    }
}

async fn do_as(does: Does) -> Result<()> {
    match does {
        Does::Succeeds => Ok(()),
        Does::Fails => Err(bus::Error::new(bus::ErrorKind::Handler, "it does not work")),
        Does::Panics => panic!("on purpose"),
        Does::Hangs => std::future::pending().await,
    }
}

/// Tells when its message is finished.
struct Unit(Notes);

impl Drop for Unit {
    fn drop(&mut self) {
        self.0.note("disposed of");
    }
}

#[provide(scoped)]
fn unit(notes: Dep<Notes>) -> Unit {
    Unit(Notes::clone(&notes))
}

#[processor(
    dead_letter_delivery_limit = 2,
    retry(fixed = "1h"),
    message_lock_timeout = "10s",
    before_dead_letter = tell_support
)]
async fn charge_card(charge: ChargeCard) -> Result<()> {
    do_as(charge.first).await
}

async fn tell_support(
    letter: DeadLettering<ChargeCard>,
    notes: Dep<Notes>,
    id: MessageId,
    bus: Bus,
    _unit: Scoped<Unit>,
    headers: Headers,
) -> Result<()> {
    let tenant = headers.get("tenant").unwrap_or("nobody").to_owned();
    match letter.message {
        Ok(charge) => {
            let error = letter.error.map(|error| error.to_string()).unwrap_or_default();
            notes.note(format!("{} of {tenant}: {} ({error})", charge.order, letter.reason));
            bus.send(Support(charge.order)).header("of", id.to_string()).await?;
            do_as(charge.then).await
        }
        Err(error) => {
            notes.note(format!("{}, {:?}", letter.reason, error.kind()));
            Ok(())
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "support")]
struct Support(u64);

/// Once, when the last attempt has failed, with what the handler could have had.
#[bus::test]
async fn the_last_failure_is_told_with_all_that_a_handler_gets() -> Result<()> {
    let (host, notes) = host_of("charge_card").await;
    let charge = ChargeCard::that(Does::Fails, Does::Succeeds);
    let id = host.bus().send(charge.clone()).header("tenant", "acme").await?.id();
    host.settled().await;
    assert!(notes.take().is_empty(), "there is another attempt");
    host.advance(Duration::from_secs(3_600)).await;
    assert_eq!(notes.take(), ["7 of acme: failed 2 times (it does not work)", "disposed of"]);
    let [dead] = host.dead::<ChargeCard>().try_into().expect("one");
    assert_eq!((dead.message, dead.id), (Some(charge), id));
    let [told] = host.sent::<Support>().try_into().expect("one");
    assert_eq!(told.headers.get("of"), Some(id.to_string().as_str()));
    Ok(())
}

#[bus::test]
async fn what_succeeds_is_told_to_nobody() -> Result<()> {
    let (host, notes) = host_of("charge_card").await;
    host.bus().send(ChargeCard::that(Does::Succeeds, Does::Succeeds)).await?;
    host.advance(Duration::from_secs(3_600)).await;
    assert!(notes.take().is_empty());
    Ok(())
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn listen() -> (Log, DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn times(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).matches(words).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever becomes of the function, the message is a dead letter with the reason it had before.
#[bus::test]
async fn a_function_that_fails_panics_or_hangs_is_told_and_changes_nothing() -> Result<()> {
    let (log, _listening) = Log::listen();
    for then in [Does::Fails, Does::Panics, Does::Hangs] {
        let (host, notes) = host_of("charge_card").await;
        host.bus().send(ChargeCard::that(Does::Panics, then.clone())).await?;
        host.advance(Duration::from_secs(2 * 3_600)).await;
        let noted = notes.take();
        assert_eq!(noted.len(), 2, "{noted:?}");
        assert_eq!(noted[1], "disposed of", "also of one that was dropped");
        let [dead] = host.dead::<ChargeCard>().try_into().expect("one");
        assert_eq!(dead.reason, "failed 2 times", "{then:?}");
        host.stop().await?;
    }
    assert_eq!((log.times("event=\"message.dead\""), log.times("event=\"hook.failed\"")), (3, 3));
    assert_eq!((log.times("error=it does not work"), log.times("error=it panicked: on purpose")), (1, 1));
    assert_eq!(log.times("error=it ran longer than the processor's message_lock_timeout of 10s"), 1);
    Ok(())
}

/// One that cannot be decoded is told of with the reason.
#[bus::test]
async fn what_cannot_be_decoded_is_told_too() -> Result<()> {
    #[derive(Serialize, Deserialize, Command)]
    #[command(queue = "charge-card")]
    struct NotACharge;
    let (host, notes) = host_of("charge_card").await;
    host.bus().send(NotACharge).await?;
    host.settled().await;
    assert_eq!(notes.take(), ["undecodable, Decode", "disposed of"]);
    Ok(())
}

/// Whatever touches a message that crashes its process may crash it once more.
#[bus::test]
async fn what_crashes_the_process_is_told_in_the_log_alone() -> Result<()> {
    let (log, _listening) = Log::listen();
    let (host, notes) = host_of("charge_card").await;
    host.bus().send(ChargeCard::that(Does::Succeeds, Does::Succeeds)).await?;
    // Two claims without an outcome, and a third run, alone, that ends the same way.
    for _ in 1..=3 {
        let _fault = host.faults().crash_at(Point::AfterHandler);
        if !host.is_running() {
            host.restart().await?;
        }
        host.settled().await;
    }
    host.restart().await?;
    host.settled().await;
    assert_eq!(host.dead::<ChargeCard>().len(), 1);
    assert!(notes.take().is_empty());
    assert_eq!(log.times("event=\"message.dead\""), 1);
    Ok(())
}

/// In a test of its own the function is called like any other.
#[tokio::test]
async fn the_function_can_be_called_by_hand() -> Result<()> {
    let (test_bus, notes) = (TestBus::new(), Notes::default());
    let letter = DeadLettering::for_tests(ChargeCard::that(Does::Fails, Does::Succeeds), "no funds");
    let unit = Scoped::new(Unit(notes.clone()));
    let headers = Headers::default();
    tell_support(letter, Dep::new(notes.clone()), MessageId::fresh(), test_bus.bus(), unit, headers).await?;
    assert_eq!(notes.take(), ["7 of nobody: no funds ()", "disposed of"]);
    assert_eq!(test_bus.sent::<Support>().len(), 1);
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "needy")]
struct Needy;

struct Unheard;

#[processor(before_dead_letter = needs_more)]
async fn needy(_message: Needy) {}

async fn needs_more(_letter: DeadLettering<Needy>, _more: Dep<Unheard>) {}

/// What it needs is asked for when the host starts, not when it is too late.
#[bus::test]
async fn what_it_needs_is_missed_at_the_start() {
    let refused = TestHost::builder().only(["needy"]).start().await.expect_err("nobody provides it");
    let text = refused.to_string();
    assert!(text.contains("`needy` needs `Dep<testing::dead_letters::Unheard>`"), "{text}");
}
