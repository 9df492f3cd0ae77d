//! Hosts that were configured with different times for the same lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::hosts::{Kind, LEASE, World};
use super::scripted::{Call, Fault, Locks};

const LONGER: Duration = Duration::from_secs(60);

/// What the hosts of this thread have said about leases: who, and which time its own is and the holder's.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<[String; 3]>>>);

impl Told {
    fn listen() -> (Told, DefaultGuard) {
        let told = Told::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(told.clone()));
        (told, guard)
    }
}

impl<S: Subscriber> Layer<S> for Told {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.event == "lock.lease_differs" {
            self.0.lock().push([fields.name, fields.ours, fields.theirs]);
        }
    }
}

#[derive(Default)]
struct Fields {
    event: String,
    name: String,
    ours: String,
    theirs: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let place = match field.name() {
            "event" => &mut self.event,
            "name" => &mut self.name,
            "ours" => &mut self.ours,
            "theirs" => &mut self.theirs,
            _ => return,
        };
        *place = format!("{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            self.event = value.to_owned();
        }
    }
}

/// A host that stands by says once that the holder’s lease is another than its own, however often it asks for the
/// lock; and again when it stands by again. §5.10.
#[tokio::test(start_paused = true)]
async fn a_standby_says_once_that_the_holder_has_another_lease() {
    let (told, _guard) = Told::listen();
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    world.runs.start_of(1).await;
    let second = world.host_lasting("second", LONGER, Locks::new(&world.store));
    tokio::time::sleep(LEASE * 5).await;
    assert!(second.locks.owners(Call::TryLock).len() > 10, "it has asked for the lock all the time");
    assert_eq!(second.locks.owners(Call::Inspect).len(), 1);
    assert_eq!(*told.0.lock(), [["second", "60s", "20s"]]);

    first.stop.drain.cancel();
    assert_eq!(world.runs.start_of(2).await.host, "second");
    let _third = world.host("third", Kind::Obedient);
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!(told.0.lock().split_off(1), [["third", "20s", "60s"]]);

    second.locks.always(&[Call::Renew, Call::TryLock], Fault::Error);
    assert_eq!(world.runs.start_of(3).await.host, "third");
    second.locks.heal();
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!(told.0.lock().split_off(1), [["second", "60s", "20s"]]);
}

/// Hosts that agree say nothing.
#[tokio::test(start_paused = true)]
async fn a_standby_with_the_same_lease_says_nothing() {
    let (told, _guard) = Told::listen();
    let world = World::new();
    let _first = world.host("first", Kind::Obedient);
    world.runs.start_of(1).await;
    let second = world.host("second", Kind::Obedient);
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!(second.locks.owners(Call::Inspect).len(), 1);
    assert_eq!(told.0.lock().len(), 0);
}

/// A store that cannot say what the holder recorded, or never answers, keeps no standby from taking over.
#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_say_who_holds_the_lock_hinders_no_standby() {
    for fault in [Fault::Error, Fault::Hang, Fault::Panic] {
        let (told, _guard) = Told::listen();
        let world = World::new();
        let first = world.host("first", Kind::Obedient);
        world.runs.start_of(1).await;
        let locks = Locks::new(&world.store);
        locks.always(&[Call::Inspect], fault);
        let second = world.host_lasting("second", LONGER, locks);
        tokio::time::sleep(LEASE).await;
        assert_eq!(second.locks.owners(Call::Inspect).len(), 1);
        first.stop.drain.cancel();
        assert_eq!(world.runs.start_of(2).await.host, "second");
        assert_eq!(told.0.lock().len(), 0);
    }
}
