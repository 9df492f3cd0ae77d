use bus::prelude::*;
use bus::testing::*;

#[bus::test]
async fn takes_nothing() {}

#[bus::test]
async fn takes_a_host(host: TestHost) -> Result<()> {
    host.advance(3.days()).await;
    Ok(())
}

#[bus::test(crate = ::bus)]
#[ignore = "to show that it can be"]
async fn names_all_in_full(_: bus::testing::TestHost) -> anyhow::Result<()> {
    Ok(())
}

#[bus::test]
#[should_panic(expected = "nothing")]
async fn returns_nothing() -> () {
    panic!("nothing")
}

fn main() {}
