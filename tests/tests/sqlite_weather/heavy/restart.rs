//! What is found when everything starts again: after a restart of the machine, and with a backup in the store's place.

use std::fs;
use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::shim::{Ahead, Machine};
use bus_tests::site::{Process, Setup, Site};
use bus_tests::task::Task;
use bus_tests::wait::{PATIENCE, stays, until_true, until_within};

use crate::{actor, assert_sound, done, send_plain, send_single};

/// The locks' and the claims' lease.
const LEASE: Duration = Duration::from_secs(3);
/// How much later than it may a take-over can be on a busy machine: the host has to start, and claims are looked after
/// once a second.
const SLACK: Duration = Duration::from_secs(4);
const CLAIMS: &str = "[processors.plain]\nlease = \"3s\"\n[processors.single]\nlease = \"3s\"\n";

/// A task for each processor, which goes on when it is allowed to.
async fn send_both(site: &Site) {
    send_plain(site, [Task::new(1).wait_for(&site.path("go"))]).await;
    send_single(site, [Task::new(2).wait_for(&site.path("go"))]).await;
}

fn host(site: &Site) -> Setup<'_> {
    actor(site, &["plain", "single"]).config(CLAIMS)
}

/// The host does both tasks, which were another's, and those were once its alone: from the moment at which nobody held
/// them any more, it has waited for a lease, and no longer.
async fn takes_over(site: &Site, host: &Process<'_>, free_since: u64) {
    let pid = host.pid();
    for endpoint in ["single", "plain"] {
        let again = || site.runs(endpoint).into_iter().find(|run| run.p == pid);
        let run = until_within("it is taken over", PATIENCE, again).await;
        let took = Duration::from_nanos(run.from.saturating_sub(free_since));
        assert!(took <= LEASE + SLACK, "{endpoint}: it took {took:?}");
    }
    site.allow("go");
    until_true("all is done", || done(site, "plain").len() + done(site, "single").len() == 2).await;
    assert_single(&site.runs("single"));
    assert!(site.runs("single").is_sorted_by_key(|run| run.fence));
}

/// S15, S26: after a restart of the machine, whatever its clock had shown before, leases are waited out once more and no
/// longer: nobody can know that it was a restart.
#[tokio::test]
async fn leases_from_before_a_restart_of_the_machine_are_waited_out() {
    let site = Site::new();
    let Some(before) = Machine::new(&site, "before") else { return };
    let before = before.up_longer_by(30 * 24 * 3600);
    send_both(&site).await;
    let mut killed = before.under(host(&site)).start();
    site.begun("plain", 1).await;
    site.begun("single", 2).await;
    let gone = killed.kill();
    let next = host(&site).start();
    takes_over(&site, &next, gone).await;
    let run = site.runs("single").pop().unwrap();
    let took = Duration::from_nanos(run.from.saturating_sub(gone));
    assert!(took >= LEASE.mul_f64(0.9), "taken without being watched for a lease: {took:?}");
}

/// S4, S26, M2: two containers of one machine share a file. Each has a boot id of its own, as those of LXC, Incus and
/// systemd-nspawn have; or they have one boot id and two boot clocks. Neither takes what the other one has, and when that
/// one dies, the other one takes over after its lease.
#[tokio::test]
async fn two_containers_with_clocks_of_their_own_never_take_each_others_leases() {
    for is_ahead in [false, true] {
        for holder_is_inside in [false, true] {
            let site = Site::new();
            let (machine, ahead) = (Machine::new(&site, "container"), Ahead::by(24 * 3600));
            let (Some(machine), Some(ahead)) = (machine, ahead) else { return };
            let inside = |setup| if is_ahead { ahead.under(setup) } else { machine.under(setup) };
            let (first, second) = (host(&site), host(&site));
            let (first, second) =
                if holder_is_inside { (inside(first), second) } else { (first, inside(second)) };
            send_both(&site).await;
            let mut holder = first.start();
            site.begun("plain", 1).await;
            site.begun("single", 2).await;
            let standby = second.start();
            standby.started().await;
            let alone = || site.runs("plain").len() == 1 && site.runs("single").len() == 1;
            stays("the holder keeps what it has", LEASE * 2, alone).await;
            let killed = holder.kill();
            takes_over(&site, &standby, killed).await;
        }
    }
}

/// §5.5: what the backup does not know of is not given out a second time.
#[tokio::test]
async fn fences_grow_across_a_restore_from_a_backup() {
    let site = Site::new();
    send_single(&site, [Task::new(1)]).await;
    let backup = site.path("backup");
    fs::copy(site.file(), &backup).unwrap();
    let mut fences = Vec::new();
    for _ in 0..3 {
        let mut host = actor(&site, &["single"]).start();
        let pid = host.pid();
        let what = "the backup's task is done";
        let run = || site.runs("single").into_iter().find(|run| run.p == pid && run.how.is_some());
        fences.push(until_within(what, PATIENCE, run).await.fence);
        host.terminate();
        assert!(host.exit().await.success(), "{}", host.said());
        fs::copy(&backup, site.file()).unwrap();
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_sound(&site);
}
