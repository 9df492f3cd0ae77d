//! Azurite itself, and behind a proxy.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bus_emulators::{Azurite, Fault, FaultProxy, Pattern, or_skip};
use rustix::process::{Pid, Signal, kill_process};

use crate::http::ask;
use crate::shared_key::{ask_signed, send_signed};

const CONTAINER: &str = "/locks?restype=container";
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

fn create(azurite: &Azurite) -> u16 {
    ask_signed(azurite, "PUT", azurite.blob_endpoint(), CONTAINER).status
}

fn is_refused(url: &str) -> bool {
    ask("GET", url).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn azurite_answers_signed_requests_and_no_others() {
    let Some(azurite) = or_skip(Azurite::start()) else { return };
    let unsigned = ask("GET", &format!("{}?comp=list", azurite.blob_endpoint())).unwrap();
    assert!(unsigned.status == 403 && unsigned.head.contains("Azurite-Blob/"), "{unsigned:?}");
    assert_eq!((create(&azurite), create(&azurite)), (201, 409));
    assert_eq!(ask_signed(&azurite, "PUT", azurite.queue_endpoint(), "/work").status, 201);
    let string = azurite.connection_string();
    assert!(string.contains(&format!(";BlobEndpoint={};", azurite.blob_endpoint())), "{string}");
    assert!(string.contains(&format!(";QueueEndpoint={};", azurite.queue_endpoint())), "{string}");
}

#[test]
fn two_of_them_have_nothing_in_common() {
    let Some(one) = or_skip(Azurite::start()) else { return };
    let other = Azurite::start().unwrap();
    assert_eq!((create(&one), create(&other)), (201, 201));
}

#[test]
fn a_killed_azurite_refuses_connections_and_comes_back_empty_at_the_same_place() {
    let Some(mut azurite) = or_skip(Azurite::start()) else { return };
    let (endpoint, pid) = (azurite.blob_endpoint().to_owned(), azurite.pid());
    assert_eq!(create(&azurite), 201);
    azurite.kill().unwrap();
    assert!(is_refused(&endpoint));
    azurite.kill().unwrap();
    azurite.restart().unwrap();
    assert!(azurite.blob_endpoint() == endpoint && azurite.pid() != pid);
    assert_eq!(create(&azurite), 201, "its memory is gone");
    azurite.restart().unwrap();
    assert_eq!(create(&azurite), 201, "a restart is a kill, too");
    drop(azurite);
    assert!(is_refused(&endpoint));
}

#[test]
fn what_is_kept_in_files_survives_a_restart() {
    let Some(mut azurite) = or_skip(Azurite::start_with_files()) else { return };
    assert_eq!(create(&azurite), 201);
    azurite.restart().unwrap();
    assert_eq!(create(&azurite), 409, "the container is still there");
}

#[test]
fn a_frozen_azurite_takes_requests_and_performs_them_when_it_thaws() {
    let Some(mut azurite) = or_skip(Azurite::start()) else { return };
    azurite.freeze().unwrap();
    let given_up = send_signed(&azurite, "PUT", azurite.blob_endpoint(), CONTAINER).unwrap();
    let silence = given_up.answer_within(Duration::from_millis(300)).unwrap_err();
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    azurite.thaw().unwrap();
    let started = Instant::now();
    while ask_signed(&azurite, "GET", azurite.blob_endpoint(), CONTAINER).status != 200 {
        assert!(started.elapsed() < PATIENCE, "what was asked of a frozen one is never performed");
    }
    azurite.freeze().unwrap();
    azurite.kill().unwrap();
    assert!(azurite.freeze().is_err(), "there is nothing to freeze");
    azurite.restart().unwrap();
    assert_eq!(create(&azurite), 201, "a new one is not frozen");
}

#[test]
fn signed_requests_pass_the_proxy_and_a_lost_answer_is_lost_after_the_deed() {
    let Some(azurite) = or_skip(Azurite::shared()) else { return };
    let proxy = FaultProxy::start(azurite.blob_endpoint()).unwrap();
    let lost = proxy.inject_times(1, Pattern::any().parameter("restype", "container"), Fault::DropAnswer);
    let container = format!("/lost-{}?restype=container", std::process::id());
    let answer = send_signed(azurite, "PUT", proxy.url(), &container).unwrap().answer();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(lost.count(), 1);
    let again = ask_signed(azurite, "PUT", proxy.url(), &container);
    assert_eq!((again.status, again.header("x-ms-error-code")), (409, Some("ContainerAlreadyExists")));
    // Its length is told without a body.
    assert_eq!(ask_signed(azurite, "HEAD", proxy.url(), &container).status, 200);
}

/// The program that runs an Azurite of its own, and where that answers.
fn program() -> Option<(Child, String)> {
    // Says why, where there is none.
    or_skip(Azurite::shared())?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_azurite"));
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (_, rest) = line.split_once("BlobEndpoint=").unwrap();
    let endpoint = rest.split(';').next().unwrap().to_owned();
    assert_eq!(ask("GET", &endpoint).map(|answer| answer.head.contains("Azurite")).ok(), Some(true));
    Some((child, endpoint))
}

#[track_caller]
pub(crate) fn is_gone_soon(endpoint: &str) {
    let started = Instant::now();
    while !is_refused(endpoint) {
        assert!(started.elapsed() < PATIENCE, "Azurite has outlived the processes that use it");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn azurite_ends_with_a_process_that_ends_and_with_one_that_is_killed() {
    let Some((mut ending, endpoint)) = program() else { return };
    drop(ending.stdin.take());
    assert!(ending.wait().unwrap().success());
    is_gone_soon(&endpoint);
    let Some((mut killed, endpoint)) = program() else { return };
    killed.kill().unwrap();
    killed.wait().unwrap();
    is_gone_soon(&endpoint);
}

#[test]
fn a_frozen_azurite_ends_with_its_process_too() {
    let Some((mut killed, endpoint)) = program() else { return };
    let children = format!("/proc/{0}/task/{0}/children", killed.id());
    let children = std::fs::read_to_string(children).unwrap();
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let azurite = children.split_whitespace().find(|pid| name(pid).starts_with("node")).unwrap();
    kill_process(Pid::from_raw(azurite.parse().unwrap()).unwrap(), Signal::STOP).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    is_gone_soon(&endpoint);
}
