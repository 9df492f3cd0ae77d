//! Dead letters that the command line tool puts back, while a host runs.

use bus::Host;
use bus::cli::cli_from;
use bus_tests::wait::{in_time, until_true};

use super::handlers::{Seen, Todo, Work};
use super::spans::Recorder;

/// Over a file, and by whoever has the tool.
#[tokio::test]
async fn what_the_tool_puts_back_is_linked_to_its_send() {
    let spans = Recorder::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite://{}/bus.db", directory.path().display());
    let host = Host::builder().transport("default", &url).provide(Seen::default()).only(["work"]);
    let host = in_time("started", host.build().expect("sound").start()).await.expect("it starts");
    host.bus().send(Work::to(Todo::DeadLetter)).await.expect("sent");
    // Its span has ended a moment before the store has the verdict.
    let inspect = host.inspect("default").expect("it can be looked into");
    let died = async {
        while inspect.depth(&super::work_endpoint()).await.expect("answered").dead == 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time("it is dead", died).await;
    let mut said = Vec::new();
    cli_from(["bus", "dead", "put-back", "work", "--all", "--store", &url], &mut said)
        .await
        .expect("put back");
    until_true("it is run again", || spans.named("process work").len() == 2).await;
    let (send, runs) = (spans.only("send work"), spans.named("process work"));
    assert!(runs[0].is_child_of(&send) && runs[1].is_linked_to(&send), "{runs:#?}");
    in_time("stopped", host.stop()).await.expect("it stops");
}
