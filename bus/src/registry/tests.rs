//! Wirings that are wrong, one mistake each, and what is said about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Expected, Problem, Wiring, check_all, crates_of, needed};
use crate::message::name::ConstName;
use crate::processor::handler::{LinkToExtractor, Probe, Source, outcome};
use crate::processor::provide::{host_arg, provides};
use crate::processor::{About, Dep, Plain, Processor, Provider, Scoped, Tuning};
use crate::scope::{HostScope, Values};
use crate::settings::{Default as Plainly, Order, Tuned};
use crate::{Command, Event, Message};

#[derive(Serialize, Deserialize)]
struct Rebuild;
impl Message for Rebuild {
    const TYPE: &'static str = "Rebuild";
}
impl Command for Rebuild {
    const QUEUE: &'static str = "rebuild";
}

#[derive(Serialize, Deserialize)]
struct Placed;
impl Message for Placed {
    const TYPE: &'static str = "Placed";
}
impl Event for Placed {
    const TOPIC: &'static str = "placed";
}

#[derive(Debug, PartialEq)]
struct A;
#[derive(Debug)]
struct B;
#[derive(Debug)]
struct C;

fn about(name: &'static str, line: u32) -> About {
    About::new(&about, name, "shop::orders", "src/orders.rs", line)
}

fn tuning() -> Tuning {
    Tuning::new(Tuned::of::<Plainly>(), false, Order::Relaxed, "Default")
}

/// A processor of the one queue, with what `$arg` needs.
macro_rules! command {
    ($name:literal, $line:literal $(, $arg:ty)?) => {
        Processor::whose_future_is_send(
            about($name, $line),
            Source::<Rebuild>::command(),
            tuning(),
            command!(@args $($arg)?),
            outcome::<()>(),
            |_, _| async {},
        )
    };
    (@args) => { () };
    (@args $arg:ty) => { (Probe::<$arg, Plain>::NEW.link(), ()) };
}

fn subscription(name: &'static str, line: u32, subscription: &'static str) -> Processor {
    let source = Source::<Placed>::event(ConstName::new(subscription));
    Processor::whose_future_is_send(about(name, line), source, tuning(), (), outcome::<()>(), |_, ()| async {
    })
}

/// A host-wide provider of the value, with what `$arg` needs.
macro_rules! provider {
    ($name:literal, $line:literal, $value:expr => $type:ty $(, $arg:ty)?) => {
        Provider::for_host_whose_future_is_send(
            about($name, $line),
            provides::<$type>(),
            provider!(@args $($arg)?),
            |_| async { $value },
        )
    };
    (@args) => { () };
    (@args $arg:ty) => { (host_arg::<$arg>(), ()) };
}

fn scoped_a(line: u32) -> Provider {
    Provider::for_message_whose_future_is_send(about("a", line), provides::<A>(), (), |()| async { A })
}

fn problems(processors: &[Processor], providers: &[Provider]) -> Vec<String> {
    check(processors, providers, &BTreeSet::new(), &Values::default())
}

fn check(
    processors: &[Processor],
    providers: &[Provider],
    expected: &BTreeSet<Expected>,
    provided: &Values,
) -> Vec<String> {
    let crates = crates_of(processors);
    let found = check_all(&Wiring { processors, providers, crates, expected, provided });
    found.iter().map(Problem::to_string).collect()
}

/// One problem, which begins like this.
fn assert_one(problems: &[String], beginning: &str) {
    assert!(matches!(problems, [one] if one.starts_with(beginning)), "{problems:#?}");
}

#[test]
fn a_sound_wiring_has_no_problems() {
    let providers = [provider!("a", 1, A => A), provider!("b", 2, B => B, Dep<A>)];
    let processors =
        [command!("rebuild", 3, Dep<B>), subscription("one", 4, "one"), subscription("two", 5, "two")];
    assert_eq!(problems(&processors, &providers), Vec::<String>::new());
}

#[test]
fn two_processors_for_one_queue() {
    assert_one(
        &problems(&[command!("first", 1), command!("second", 2)], &[]),
        "src/orders.rs:2: the queue `rebuild` has two processors, `second` and `first` (src/orders.rs:1)",
    );
}

#[test]
fn two_processors_for_one_subscription() {
    assert_one(
        &problems(&[subscription("first", 1, "same"), subscription("second", 2, "same")], &[]),
        "src/orders.rs:2: the subscription `same` of the topic `placed` has two processors",
    );
}

#[test]
fn the_same_module_in_the_library_and_in_the_binary_is_said_to_be_that() {
    let mut again = command!("rebuild", 1);
    again.module_path = "shop_cli::orders";
    assert_one(
        &problems(&[command!("rebuild", 1), again], &[]),
        "src/orders.rs:1: `rebuild` is registered twice, as part of `shop::orders` and of `shop_cli::orders`: both \
         declare its module; declare it in one and write `use shop as _;` in the other",
    );
    let mut again = provider!("a", 2, A => A);
    again.about.module_path = "shop_cli::orders";
    assert_one(
        &problems(&[command!("rebuild", 1)], &[provider!("a", 2, A => A), again]),
        "src/orders.rs:2: `a` is registered twice, as part of `shop::orders` and of `shop_cli::orders`",
    );
}

#[test]
fn a_value_that_nobody_provides() {
    assert_one(
        &problems(&[command!("rebuild", 1, Dep<A>)], &[]),
        "src/orders.rs:1: `rebuild` needs `Dep<bus::registry::tests::A>`, and nothing provides it: write a `#[provide]`",
    );
    assert_one(
        &problems(&[command!("rebuild", 1, Scoped<A>)], &[]),
        "src/orders.rs:1: `rebuild` needs `Scoped<bus::registry::tests::A>`, and nothing provides it: write a \
         `#[provide(scoped)]`",
    );
    assert_one(
        &problems(&[command!("rebuild", 1)], &[provider!("b", 2, B => B, Dep<A>)]),
        "src/orders.rs:2: `b` needs `Dep<bus::registry::tests::A>`, and nothing provides it",
    );
}

#[test]
fn a_value_that_is_provided_for_the_other_span_of_life() {
    assert_one(
        &problems(&[command!("rebuild", 1, Dep<A>)], &[scoped_a(2)]),
        "src/orders.rs:1: `rebuild` needs `Dep<bus::registry::tests::A>`, but it is made once per message",
    );
    assert_one(
        &problems(&[command!("rebuild", 1, Scoped<A>)], &[provider!("a", 2, A => A)]),
        "src/orders.rs:1: `rebuild` needs `Scoped<bus::registry::tests::A>`, but it is made once per host",
    );
}

#[test]
fn a_value_given_in_code_needs_no_provider() {
    let mut provided = Values::default();
    provided.insert(Arc::new(A));
    let processors = [command!("rebuild", 1, Dep<A>)];
    assert_eq!(check(&processors, &[], &BTreeSet::new(), &provided), Vec::<String>::new());
}

#[test]
fn two_providers_of_one_type() {
    assert_one(
        &problems(
            &[command!("rebuild", 1)],
            &[provider!("first", 2, A => A), provider!("second", 3, A => A)],
        ),
        "src/orders.rs:3: two providers make `bus::registry::tests::A`, `second` and `first` (src/orders.rs:2)",
    );
}

#[test]
fn a_circle_is_told_once_from_its_first_member() {
    let providers = [
        provider!("a", 1, A => A, Dep<B>),
        provider!("b", 2, B => B, Dep<C>),
        provider!("c", 3, C => C, Dep<A>),
    ];
    assert_eq!(
        problems(&[command!("rebuild", 9)], &providers),
        [
            "src/orders.rs:1: providers need one another in a circle: `a` needs `bus::registry::tests::B`, made by `b` \
          (src/orders.rs:2), which needs `bus::registry::tests::C`, made by `c` (src/orders.rs:3), which needs \
          `bus::registry::tests::A`, made by `a` (src/orders.rs:1)"
        ]
    );
}

#[test]
fn a_provider_that_needs_its_own_value() {
    assert_one(
        &problems(&[command!("rebuild", 9)], &[provider!("a", 1, A => A, Dep<A>)]),
        "src/orders.rs:1: providers need one another in a circle: `a` needs `bus::registry::tests::A`, made by `a`",
    );
}

#[test]
fn a_value_given_in_code_breaks_a_circle() {
    let mut provided = Values::default();
    provided.insert(Arc::new(A));
    let providers = [provider!("a", 1, A => A, Dep<B>), provider!("b", 2, B => B, Dep<A>)];
    let found = check(&[command!("rebuild", 9)], &providers, &BTreeSet::new(), &provided);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_named_crate_without_a_handler() {
    let expected = BTreeSet::from([
        Expected { krate: "shop", file: "src/main.rs", line: 1 },
        Expected { krate: "acme-mail", file: "src/main.rs", line: 2 },
    ]);
    assert_one(
        &check(&[command!("rebuild", 1)], &[], &expected, &Values::default()),
        "src/main.rs:2: `bus::handlers!` names `acme-mail`, and no `#[processor]` of that crate is in this binary",
    );
}

#[test]
fn no_processors_at_all() {
    assert_one(&problems(&[], &[]), "this binary has no processors.");
}

/// A host that runs one processor needs neither the others' values nor what those are made of; and what is given by hand
/// needs nothing.
#[test]
fn only_what_the_processors_need_is_needed() {
    let names = |processors: &[Processor], provided: &Values| -> Vec<&str> {
        let providers = vec![
            provider!("a", 1, A => A, Dep<B>),
            provider!("b", 2, B => B),
            provider!("c", 3, C => C, Dep<A>),
        ];
        needed(processors, providers, provided).iter().map(|p| p.about.name).collect()
    };
    let mut provided = Values::default();
    assert_eq!(names(&[command!("rebuild", 9)], &provided), Vec::<&str>::new());
    assert_eq!(names(&[command!("rebuild", 9, Dep<A>)], &provided), ["a", "b"]);
    assert_eq!(names(&[command!("rebuild", 9, Dep<C>)], &provided), ["a", "b", "c"]);
    provided.insert(Arc::new(A));
    assert_eq!(names(&[command!("rebuild", 9, Dep<C>)], &provided), ["c"]);
}

/// What a crate brings into the binary is there also where a host leaves it out.
#[test]
fn a_crate_whose_handlers_are_left_out_is_not_silent() {
    let all = [command!("rebuild", 1), subscription("placed", 2, "mail")];
    let expected = BTreeSet::from([Expected { krate: "shop", file: "src/main.rs", line: 1 }]);
    let wiring = |processors, crates| {
        check_all(&Wiring {
            processors,
            providers: &[],
            crates,
            expected: &expected,
            provided: &Values::default(),
        })
    };
    let mut one = all.to_vec();
    one.truncate(1);
    one[0].krate = "billing";
    assert_eq!(wiring(&one, crates_of(&all)), Vec::new());
    assert_eq!(wiring(&one, crates_of(&one)).len(), 1);
}

#[test]
fn all_problems_come_at_once_sorted_by_place() {
    let processors = [command!("second", 20, Dep<A>), command!("first", 3, Dep<B>)];
    let found = problems(&processors, &[provider!("c", 100, C => C, Dep<C>)]);
    let lines: Vec<_> = found.iter().map(|p| p.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(lines, ["src/orders.rs:3:", "src/orders.rs:3:", "src/orders.rs:20:", "src/orders.rs:100:"]);
}

#[tokio::test]
async fn values_are_built_in_order_of_need_whatever_order_they_are_listed_in() {
    let providers =
        [provider!("c", 3, C => C, Dep<B>), provider!("b", 2, B => B, Dep<A>), provider!("a", 1, A => A)];
    let host = HostScope::build(Values::default(), &providers).await.unwrap();
    assert!(host.get::<A>().is_some() && host.get::<B>().is_some() && host.get::<C>().is_some());
}

#[tokio::test]
async fn what_waits_for_itself_is_an_error_and_no_endless_loop() {
    let error = HostScope::build(Values::default(), &[provider!("a", 1, A => A, Dep<A>)]).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Wiring);
    assert!(error.to_string().contains("providers: a"), "{error}");
}
