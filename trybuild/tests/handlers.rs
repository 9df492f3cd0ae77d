//! `bus::handlers!` links crates that nothing else here names, and what they annotate is found.

#![forbid(unsafe_code)]

use bus::registry;
use bus::scope::Values;

// `bus-trybuild` has no handlers, which is a problem at start.
bus::handlers!(bus_renamed, bus_trybuild);

#[test]
fn what_a_crate_annotates_under_another_name_of_bus_is_found() {
    let found: Vec<_> =
        registry::processors().iter().map(|p| format!("{} {} {}", p.krate, p.name, p.endpoint)).collect();
    assert_eq!(
        found,
        [
            "bus_renamed reexported reexported",
            "bus_renamed renamed renamed",
            "bus_renamed renamed_too renamed-too/one",
        ]
    );
    assert_eq!(registry::providers().len(), 3);
}

#[test]
fn a_named_crate_that_brings_no_handler_is_a_problem() {
    let problems = registry::check(&registry::processors(), &Values::default());
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let [text] = texts.as_slice() else { panic!("{texts:#?}") };
    assert!(
        text.starts_with(
            "trybuild/tests/handlers.rs:9: `bus::handlers!` names `bus_trybuild`, and no `#[processor]`"
        ),
        "{text}"
    );
}
