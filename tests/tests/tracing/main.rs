//! What can be seen from outside: traces over each hop, spans' fields, numbers; and that nothing secret is among it.

mod carried;
mod fields;
mod handlers;
mod hops;
mod metrics;
mod replay;
mod spans;

use bus::Endpoint;
use bus::testing::TestHost;
use handlers::Seen;

/// A host in virtual time that runs all handlers of this binary.
async fn host(seen: &Seen) -> TestHost {
    TestHost::builder().provide(seen.clone()).start().await.expect("it starts")
}

/// One that runs plain work alone: days pass sooner where no lock is renewed.
async fn working_host() -> TestHost {
    let host = TestHost::builder().only(["work"]).provide(Seen::default());
    host.start().await.expect("it starts")
}

fn work_endpoint() -> Endpoint {
    Endpoint::queue("work").expect("a name")
}
