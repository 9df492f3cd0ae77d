//~ "build any other host inside of it"
use bus::testing::TestHost;

#[bus::test]
async fn orders_are_placed(_one: TestHost, _other: TestHost) {}

fn main() {}
