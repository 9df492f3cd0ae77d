//! Starting and stopping, in whatever order.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bus::contract::{
    BoxFuture, Fence, FenceClaim, Lease, LockGuarantees, LockId, LockManager, OpenOptions, Owner, Scheme,
    StoreUrl,
};
use bus::host::HostHandle;
use bus::{Endpoint, ErrorKind, Result};
use bus_tests::wait::in_time;

use super::handlers::{self, Answer, Note, Patience, Probe, Relaxed};
use super::{Host, Place};

/// M17: stop, stop again, wait after that, from several tasks: all answer the same, in bounded time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_twice_and_waiting_afterwards_is_bounded() {
    for place in Place::each() {
        let host = place.host(&["note", "relaxed"]).start().await;
        let (one, two) = (host.handle.clone(), host.handle.clone());
        let (first, second, third) =
            in_time("all three return", async { tokio::join!(one.stop(), two.stop(), two.wait()) }).await;
        first.expect("stopped");
        second.expect("stopped");
        third.expect("stopped");
        in_time("stopped long ago", host.handle.stop()).await.expect("stopped");
        in_time("stopped long ago", host.handle.wait()).await.expect("stopped");
        host.handle.hurry();
        host.handle.begin_stop();
    }
}

/// M17: stopped in the very moment in which it was started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_at_once_after_the_start_is_bounded() {
    let place = Place::sqlite();
    for _ in 0..10 {
        let host = place.host(&["note", "relaxed", "strict"]).start().await;
        let began = Instant::now();
        host.stop().await;
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    }
}

/// What was built and never started has nothing to be stopped.
#[tokio::test]
async fn a_host_that_is_never_started_leaves_nothing_behind() {
    let place = Place::memory();
    let host = Host::builder().transport("default", &place.url).only(["relayed"]);
    let (seen, _) = tokio::sync::mpsc::unbounded_channel();
    let probe = super::Probe { seen, answer: std::sync::Arc::new(|_| Answer::Done) };
    drop(host.provide(probe).build().expect("sound"));
}

/// After the stop nothing can be sent, and the reason is said.
#[tokio::test]
async fn a_stopped_hosts_bus_is_closed() {
    for place in Place::each() {
        let host = place.host(&["note"]).start().await;
        let bus = host.handle.bus().clone();
        host.stop().await;
        let refused = bus.send(Note("late".into())).await.expect_err("it is closed");
        assert_eq!(refused.kind(), ErrorKind::Closed);
        assert!(refused.to_string().contains("stopped"), "{refused}");
        let refused = bus.send_all([Note("late".into()), Note("later".into())]).await;
        assert!(refused.iter().all(|sent| sent.as_ref().is_err_and(|e| e.kind() == ErrorKind::Closed)));
    }
}

/// M16, M18: what runs is awaited, and finishes; what was interrupted by the end of the grace period is no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_what_runs_and_cuts_it_after_the_grace_period() {
    for place in Place::each() {
        let short = Answer::Sleep(Duration::from_millis(300));
        let mut host = place.host(&["note", "relaxed"]).answering_in_turn([short]).start().await;
        host.handle.bus().send(Note("short".into())).await.expect("sent");
        host.seen().await;
        host.stop().await;

        // Nothing of it is left for a second host: it was finished and settled.
        let made = place
            .host(&["note", "relaxed"])
            .with(|host| host.shutdown_grace_period(Duration::from_millis(200)));
        let long = || Answer::Sleep(Duration::from_secs(60));
        let mut host = made.answering_in_turn([long(), long()]).start().await;
        assert_eq!(host.depth("note").await, bus::contract::Depth::default());
        host.handle.bus().send(Note("long".into())).await.expect("sent");
        host.handle.bus().send(Relaxed("long".into())).await.expect("sent");
        host.seen().await;
        host.seen().await;
        let began = Instant::now();
        host.stop().await;
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());

        let mut host = place.host(&["note"]).start().await;
        let again = host.seen().await;
        assert_eq!((again.text.as_str(), again.count), ("long", 1), "the interrupted attempt is not counted");
        host.stop().await;
    }
}

/// After the grace period a run is asked to end before it is dropped; what it does then counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_heeds_its_token_after_the_grace_period_is_taken_at_its_word() {
    for place in Place::each() {
        let made =
            place.host(&["patience"]).with(|host| host.shutdown_grace_period(Duration::from_millis(100)));
        let mut host = made.start().await;
        host.handle.bus().send(Patience("polite".into())).await.expect("sent");
        host.seen().await;
        host.stop().await;
        let host = place.host(&["note"]).start().await;
        assert_eq!(host.depth("patience").await, bus::contract::Depth::default(), "it was done");
        host.stop().await;
    }
}

/// A second signal in code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hurrying_ends_the_grace_period() {
    let place = Place::sqlite();
    let mut host = place.host(&["note"]).answering(|_| Answer::Sleep(Duration::from_secs(60))).start().await;
    host.handle.bus().send(Note("long".into())).await.expect("sent");
    host.seen().await;
    let began = Instant::now();
    host.handle.begin_stop();
    host.handle.hurry();
    in_time("it ends", host.handle.wait()).await.expect("it ends");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
}

/// Two hosts in one program are like two in two: they share the work.
#[tokio::test]
async fn two_hosts_on_one_store_share_the_work() {
    let place = Place::sqlite();
    let mut one = place.host(&["note"]).start().await;
    let mut two = place.host(&["note"]).start().await;
    for n in 0..50 {
        one.handle.bus().send(Note(n.to_string())).await.expect("sent");
    }
    one.until_drained("note").await;
    assert_eq!(one.seen_so_far().len() + two.seen_so_far().len(), 50, "each ran once");
    one.stop().await;
    two.stop().await;
}

/// The promise: several hosts in one process are as far apart as if they had one each: the end of one is not felt by the
/// other.
#[tokio::test]
async fn several_hosts_in_one_process_are_apart() {
    let (here, there) = (Place::sqlite(), Place::memory());
    let mut one = here.host(&["note", "relaxed"]).start().await;
    let mut two = there.host(&["note", "relaxed"]).start().await;
    one.handle.bus().send(Note("here".into())).await.expect("sent");
    two.handle.bus().send(Relaxed("there".into())).await.expect("sent");
    assert_eq!((one.seen().await.text, two.seen().await.text), ("here".into(), "there".into()));
    one.stop().await;
    two.handle.bus().send(Note("still there".into())).await.expect("sent");
    assert_eq!(two.seen().await.text, "still there");
    assert!(one.seen_so_far().is_empty());
    two.stop().await;
}

/// The promise: a host is embedded in a program that has a server of its own, in one process and on one runtime. Whoever
/// asks the server has a message sent, which a handler of the same process sees; and the server outlives the host.
#[tokio::test]
async fn an_embedded_host_runs_beside_a_server_of_the_programs_own() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    let place = Place::sqlite();
    let mut host = place.host(&["note"]).start().await;
    let server = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = server.local_addr().expect("an address");
    let bus = host.handle.bus().clone();
    let serving = tokio::spawn(async move {
        while let Ok((mut connection, _)) = server.accept().await {
            let mut request = String::new();
            connection.read_to_string(&mut request).await?;
            let answer = match bus.send(Note(request)).await {
                Ok(sent) => format!("202 {}", sent.id()),
                Err(error) => format!("503 {:?}", error.kind()),
            };
            connection.write_all(answer.as_bytes()).await?;
        }
        Ok::<_, std::io::Error>(())
    });
    let ask = |request: &'static str| async move {
        let mut connection = TcpStream::connect(address).await.expect("connected");
        connection.write_all(request.as_bytes()).await.expect("asked");
        connection.shutdown().await.expect("that is all");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("answered");
        answer
    };
    let answer = ask("order 7").await;
    let seen = host.seen().await;
    assert_eq!((seen.text.as_str(), answer), ("order 7", format!("202 {}", seen.id)));
    host.stop().await;
    assert_eq!(ask("too late").await, "503 Closed");
    serving.abort();
}

/// The promise: which processors run is said by name, by what is left out, or one by one by function.
#[tokio::test]
async fn only_without_and_registration_by_hand_say_which_processors_run() {
    let names = |host: &HostHandle| -> Vec<&'static str> {
        let mut names: Vec<_> = host.health().processors.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names
    };
    let host = || {
        let (seen, _) = tokio::sync::mpsc::unbounded_channel();
        let probe = Probe { seen, answer: std::sync::Arc::new(|_| Answer::Done) };
        Host::builder().transport("default", &Place::memory().url).provide(probe)
    };
    let only = host().only(["note", "relayed"]);
    let without = host().only(["note", "relayed", "hasty"]).without(["hasty"]);
    let by_hand = host().processor(handlers::note).processor(handlers::relayed).processor(handlers::note);
    for (how, builder) in [("only", only), ("without", without), ("by hand", by_hand)] {
        let started = builder.build().expect("the wiring is sound").start();
        let started = in_time("started", started).await.expect("it starts");
        assert_eq!(names(&started), ["note", "relayed"], "{how}");
        in_time("stopped", started.stop()).await.expect("it stops");
    }
    async fn unannotated() {}
    let refused = host().processor(handlers::note).processor(unannotated).build().map(drop);
    let refused = refused.expect_err("it has no #[processor]").to_string();
    assert!(refused.contains("unannotated") && refused.contains("has no #[processor]"), "{refused}");
}

/// §5.7: a plain processor does not read what some fleet reads as a singleton's, as long as that is bound.
#[tokio::test]
async fn a_plain_processor_on_a_bound_endpoint_is_refused() {
    let place = Place::sqlite();
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find("sqlite").expect("a scheme").transport.expect("it carries messages");
    let transport = open(&url, &OpenOptions::default()).await.expect("it opens");
    let queue = Endpoint::queue("note").expect("an endpoint");
    transport.prepare(std::slice::from_ref(&queue)).await.expect("prepared");
    let fencing = transport.capabilities().fencing.expect("it fences");
    let raise = |fence, lease| {
        let lock = LockId::from("queue/note");
        FenceClaim::new(queue.clone().into(), "sqlite:elsewhere", &lock, Fence::new(fence), lease)
    };
    fencing.raise(raise(7, Duration::from_secs(60))).await.expect("raised");

    let (seen, _) = tokio::sync::mpsc::unbounded_channel();
    let probe = super::Probe { seen, answer: std::sync::Arc::new(|_| Answer::Done) };
    let host = Host::builder().transport("default", &place.url).only(["note"]).provide(probe);
    let refused = host.build().expect("sound").start().await.expect_err("it is a singleton's");
    assert_eq!(refused.kind(), ErrorKind::Wiring);
    let text = refused.to_string();
    for words in ["`note` is no singleton", "sqlite:elsewhere#queue/note", "handlers.rs:"] {
        assert!(text.contains(words), "{words} is missing from: {text}");
    }

    // Once nobody is bound to it any more, it starts.
    fencing.raise(raise(8, Duration::from_millis(1))).await.expect("raised");
    let free = async {
        while fencing.row(&queue).await.expect("answered").is_some_and(|row| !row.bound_for.is_zero()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time("nobody is bound to it", free).await;
    place.host(&["note"]).start().await.stop().await;
}

/// A lock manager that notes when it is closed, and what was asked of it afterwards.
struct Watched {
    inner: std::sync::Arc<dyn LockManager>,
    closed: std::sync::Arc<AtomicBool>,
}

impl LockManager for Watched {
    fn guarantees(&self) -> LockGuarantees {
        self.inner.guarantees()
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.initialize()
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        self.inner.try_lock(id, lock_lease, owner)
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        self.inner.give_up(id, owner)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let record = self.inner.inspect(&LockId::from("queue/relaxed")).await.expect("answered");
            let record = record.expect("it was held");
            assert_eq!(record.held_for, None, "released before");
            self.inner.close().await;
            self.closed.store(true, SeqCst);
        })
    }
}

/// S29: the lock manager is closed last of all, when every lock has been given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_manager_is_closed_after_all_locks_were_released() {
    let place = Place::memory();
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find("memory").expect("a scheme").locks.expect("it has locks");
    let inner = open(&url, &OpenOptions::default()).await.expect("it opens");
    let closed = std::sync::Arc::new(AtomicBool::new(false));
    let locks = Watched { inner, closed: closed.clone() };
    let (seen, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let probe = super::Probe { seen, answer: std::sync::Arc::new(|_| Answer::Done) };
    let host = Host::builder().transport("default", &place.url).locks(locks).only(["relaxed"]).provide(probe);
    let host = host.build().expect("sound").start().await.expect("it starts");
    host.bus().send(Relaxed("once".into())).await.expect("sent");
    in_time("it runs", shown.recv()).await.expect("seen");
    host.stop().await.expect("stopped");
    assert!(closed.load(SeqCst));
}
