//! `#[bus::test]`: what it makes of a function, in a binary all of whose processors can be had.

use bus::prelude::*;
use bus::testing::*;

#[derive(Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "greet")]
struct Greet {
    name: String,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(topic = "greeted")]
struct Greeted;

struct Greeting(&'static str);

#[provide]
fn greeting() -> Greeting {
    Greeting("hello")
}

#[processor]
async fn greet(message: Greet, greeting: Dep<Greeting>, bus: Bus) -> Result<()> {
    assert_eq!((greeting.0, message.name.as_str()), ("hello", "world"));
    bus.publish(Greeted).await?;
    Ok(())
}

async fn greet_the_world(host: &TestHost) -> Result<()> {
    host.bus().send(Greet { name: "world".into() }).await?;
    host.settled().await;
    assert_eq!(host.published::<Greeted>().len(), 1);
    Ok(())
}

/// A host of all processors, with what the binary provides.
#[bus::test]
async fn it_gives_a_host_of_all_processors(host: TestHost) -> Result<()> {
    greet_the_world(&host).await
}

/// By its full name, mutable, with another `Result`.
#[bus::test]
async fn it_reads_types_and_patterns_as_rust_does(mut host: bus::testing::TestHost) -> anyhow::Result<()> {
    greet_the_world(&host).await?;
    host = TestHost::start().await?;
    greet_the_world(&host).await?;
    Ok(())
}

#[bus::test]
async fn a_test_may_make_its_own_host() -> std::result::Result<(), Box<dyn std::error::Error>> {
    greet_the_world(&TestHost::start().await?).await?;
    Ok(())
}

/// It needs no host at all: time is paused, and goes on by itself when there is nothing else to do.
#[bus::test]
async fn time_is_paused() {
    let (began, really) = (tokio::time::Instant::now(), std::time::Instant::now());
    tokio::time::sleep(3.days()).await;
    assert_eq!(began.elapsed(), 3.days());
    assert!(really.elapsed() < 1.hours());
}

#[bus::test]
#[should_panic(expected = "the test has failed: it went wrong")]
async fn an_error_fails_the_test(_host: TestHost) -> Result<(), bus::Error> {
    Err(bus::Error::new(bus::ErrorKind::Handler, "it went wrong"))
}

#[bus::test]
#[should_panic(expected = "as it is")]
async fn a_panic_is_passed_on() -> () {
    panic!("as it is");
}

/// Attributes of a test work as they do with `#[test]`.
#[bus::test]
#[ignore = "to show that it can be"]
async fn it_can_be_ignored() {
    panic!("it was not");
}

#[cfg(any())]
#[bus::test]
async fn it_can_be_left_out() {
    this_does_not_exist();
}

mod beside_the_standard_one {
    use bus::test;

    #[test]
    async fn it_can_take_its_name() {}

    #[core::prelude::v1::test]
    fn which_is_then_called_by_its_own() {}
}

mod elsewhere {
    pub(crate) use bus as messaging;

    #[messaging::test(crate = crate::elsewhere::messaging)]
    async fn it_is_told_where_bus_is() {}
}
