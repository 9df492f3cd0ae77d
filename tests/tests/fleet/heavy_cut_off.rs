//! A holder that is cut off from NATS. (Postgres and Redis have this test among their own, with their own ways through a
//! proxy.)

use bus_tests::cut_off::never_overlaps;
use bus_tests::nats::{self, Nats, url_at};
use bus_tests::skip;
use bus_tests::tcp_proxy::{Fault, Proxy};

/// S1, S5: a holder whose network swallows everything, or every answer, gives up before another host begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_never_overlaps() {
    if let Some(missing) = nats::missing() {
        return skip::not_run(missing);
    }
    let server = Nats::start();
    let proxy = Proxy::start(server.port()).await;
    for (fault, prefix) in [(Fault::BlackHole, "hole"), (Fault::MuteServer, "mute")] {
        let (through, direct) = (url_at(proxy.port(), prefix), server.url(prefix));
        never_overlaps(env!("CARGO_BIN_EXE_fixture-actor"), &proxy, &through, &direct, fault).await;
    }
}
