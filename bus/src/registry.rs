//! What has been annotated in this binary, and whether it fits together.
//!
//! The macros leave an entry for each function; the linker brings them together. Their order is arbitrary and a crate
//! that nobody names is not linked at all, so everything here is sorted, and what can be seen of a forgotten crate is
//! checked.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::processor::container::Container;
use crate::processor::{About, Processor, Provider, Requirement};
use crate::scope::Values;

/// One annotation, as the linker collects it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Registration(pub fn() -> Entry);
inventory::collect!(Registration);

/// What an annotation registers.
#[doc(hidden)]
#[derive(Debug)]
pub enum Entry {
    /// `#[processor]`
    Processor(Processor),
    /// `#[provide]`
    Provider(Provider),
    /// `bus::handlers!`, one for each crate it names
    Expected(Expected),
}

/// A crate that is to have at least one handler.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expected {
    /// The crate, as the source writes it or as its `Cargo.toml` calls it.
    pub krate: &'static str,
    /// Where that is said.
    pub file: &'static str,
    /// The line of it.
    pub line: u32,
}

/// Links crates whose handlers are to be found, and demands that each has at least one.
///
/// A crate that is listed in `Cargo.toml` but named nowhere in the source is not linked, and its handlers vanish without
/// a word. Write this once, beside `main`:
///
/// ```text
/// bus::handlers!(billing, shipping);
/// // A dependency that has another name here than its package has:
/// bus::handlers!(mail = "acme-mail");
/// ```
///
/// It expands to `use billing as _;` and so on; the host does not start if one of them brings no handler.
#[macro_export]
macro_rules! handlers {
    ($($krate:ident $(= $package:literal)?),+ $(,)?) => {
        $(
            #[allow(unused_imports, reason = "naming the crate is what links it")]
            use $krate as _;
            $crate::__handlers!($krate $($package)?);
        )+
    };
}

/// One crate of [`handlers!`](crate::handlers).
#[doc(hidden)]
#[macro_export]
macro_rules! __handlers {
    ($krate:ident) => {
        $crate::__handlers!($krate $crate::__private::stringify!($krate));
    };
    ($krate:ident $package:expr) => {
        const _: () = {
            fn register() -> $crate::__private::Entry {
                $crate::__private::Entry::Expected($crate::__private::Expected {
                    krate: $package,
                    file: $crate::__private::file!(),
                    line: $crate::__private::line!(),
                })
            }
            $crate::__private::submit! { $crate::__private::Registration(register) }
        };
    };
}

/// Something wrong with the wiring of a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Problem {
    /// The file it is about; empty if it is about none.
    pub file: String,
    /// The line it is about; 0 if it is about none.
    pub line: u32,
    /// What is wrong, and what to write instead.
    pub text: String,
}

impl Problem {
    /// A problem at a line of the source.
    pub fn at(file: impl Into<String>, line: u32, text: impl Into<String>) -> Self {
        Problem { file: file.into(), line, text: text.into() }
    }

    /// A problem that has no place in the source.
    pub fn new(text: impl Into<String>) -> Self {
        Problem::at("", 0, text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str(&self.text);
        }
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// All `#[processor]` functions of this binary, by endpoint.
pub fn processors() -> Vec<Processor> {
    let mut all: Vec<_> = entries()
        .filter_map(|entry| match entry {
            Entry::Processor(processor) => Some(processor),
            _ => None,
        })
        .collect();
    all.sort_by(|a, b| {
        let key = |p: &Processor| (p.transport, p.endpoint.clone(), p.module_path, p.name, p.file, p.line);
        key(a).cmp(&key(b))
    });
    all
}

/// All `#[provide]` functions of this binary, by file and line.
pub fn providers() -> Vec<Provider> {
    let mut all: Vec<_> = entries()
        .filter_map(|entry| match entry {
            Entry::Provider(provider) => Some(provider),
            _ => None,
        })
        .collect();
    all.sort_by_key(|p| (p.about.file, p.about.line, p.about.module_path, p.about.name));
    all
}

fn expected() -> BTreeSet<Expected> {
    entries()
        .filter_map(|entry| match entry {
            Entry::Expected(expected) => Some(expected),
            _ => None,
        })
        .collect()
}

fn entries() -> impl Iterator<Item = Entry> {
    inventory::iter::<Registration>().map(|registration| (registration.0)())
}

/// Everything that is wrong with how `processors`, this binary's providers and `provided` (the values given in code) fit
/// together, as far as no transport is needed to see it. Sorted by place.
pub fn check(processors: &[Processor], provided: &Values) -> Vec<Problem> {
    check_with(processors, &providers(), provided)
}

/// [`check`], where only these of the binary's providers are used.
pub(crate) fn check_with(
    processors: &[Processor],
    providers: &[Provider],
    provided: &Values,
) -> Vec<Problem> {
    let crates = crates_of(&self::processors());
    check_all(&Wiring { processors, providers, crates, expected: &expected(), provided })
}

/// Those of `providers` that `processors` need, directly or through one another, beyond what is given by hand.
pub(crate) fn needed(processors: &[Processor], providers: Vec<Provider>, provided: &Values) -> Vec<Provider> {
    let mut wanted: Vec<TypeId> = processors.iter().flat_map(|p| &p.requires).map(|need| need.id).collect();
    let mut needed = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        for (i, provider) in providers.iter().enumerate().filter(|(_, p)| p.provides.id == id) {
            let given = is_given(provided, &provider.provides);
            if !given && needed.insert(i) {
                wanted.extend(provider.requires.iter().map(|need| need.id));
            }
        }
    }
    providers.into_iter().enumerate().filter(|(i, _)| needed.contains(i)).map(|(_, p)| p).collect()
}

/// Whether a value is given in code, so that what is annotated does not make it.
fn is_given(provided: &Values, value: &Requirement) -> bool {
    match value.scoped {
        true => provided.get::<Container>().is_some_and(|container| container.provides(value)),
        false => provided.contains(value.id),
    }
}

/// The crates that these are in.
fn crates_of(processors: &[Processor]) -> BTreeSet<&'static str> {
    processors.iter().map(|processor| processor.krate).collect()
}

/// What is checked.
struct Wiring<'w> {
    processors: &'w [Processor],
    providers: &'w [Provider],
    /// The crates that have a processor in this binary, be it one that is not among `processors`.
    crates: BTreeSet<&'static str>,
    expected: &'w BTreeSet<Expected>,
    provided: &'w Values,
}

fn check_all(wiring: &Wiring<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let twice = registered_twice(wiring, &mut problems);
    shared_endpoints(wiring, &twice, &mut problems);
    shared_types(wiring, &mut problems);
    missing_values(wiring, &mut problems);
    scoped_in_host_wide(wiring, &mut problems);
    cycles(wiring, &mut problems);
    silent_crates(wiring, &mut problems);
    no_processors(wiring, &mut problems);
    problems.sort();
    problems.dedup();
    problems
}

/// The same function, compiled into the library and into the binary. Returns the later one's index.
fn registered_twice(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) -> BTreeSet<usize> {
    let mut first = HashMap::new();
    let mut again = BTreeSet::new();
    for (i, p) in wiring.processors.iter().enumerate() {
        let other = *first.entry((p.file, p.line, p.name, &p.endpoint)).or_insert(p.module_path);
        if other != p.module_path {
            again.insert(i);
            problems.push(twice(p.name, p.file, p.line, other, p.module_path));
        }
    }
    again
}

fn twice(name: &str, file: &str, line: u32, one: &str, other: &str) -> Problem {
    let library = one.split("::").next().unwrap_or(one);
    let text = format!(
        "`{name}` is registered twice, as part of `{one}` and of `{other}`: both declare its module; declare it in one \
         and write `use {library} as _;` in the other"
    );
    Problem::at(file, line, text)
}

fn shared_endpoints(wiring: &Wiring<'_>, twice: &BTreeSet<usize>, problems: &mut Vec<Problem>) {
    let mut first = BTreeMap::new();
    for (i, p) in wiring.processors.iter().enumerate() {
        if twice.contains(&i) {
            continue;
        }
        let Some(other) = first.insert((p.transport, &p.endpoint), p) else { continue };
        let text = match &p.endpoint {
            crate::message::Endpoint::Queue(queue) => format!(
                "the queue `{queue}` has two processors, `{}` and `{}` ({}:{}); a command has one: remove one, or make \
                 it an event with two subscriptions",
                p.name, other.name, other.file, other.line
            ),
            crate::message::Endpoint::Subscription { topic, subscription } => format!(
                "the subscription `{subscription}` of the topic `{topic}` has two processors, `{}` and `{}` ({}:{}); \
                 give each a subscription of its own",
                p.name, other.name, other.file, other.line
            ),
        };
        problems.push(Problem::at(p.file, p.line, text));
    }
}

fn shared_types(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    let mut first: HashMap<TypeId, &Provider> = HashMap::new();
    for p in wiring.providers {
        let Some(other) = first.insert(p.provides.id, p) else { continue };
        let place = |p: &Provider| (p.about.file, p.about.line, p.about.name);
        if place(p) == place(other) {
            let (one, two) = (other.about.module_path, p.about.module_path);
            problems.push(twice(p.about.name, p.about.file, p.about.line, one, two));
            continue;
        }
        let text = format!(
            "two providers make `{}`, `{}` and `{}` ({}:{}); remove one, or wrap what one of them makes in a type of its \
             own",
            p.provides.type_name, p.about.name, other.about.name, other.about.file, other.about.line
        );
        problems.push(at(&p.about, text));
    }
}

fn at(about: &About, text: String) -> Problem {
    Problem::at(about.file, about.line, text)
}

fn missing_values(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    let processors = wiring.processors.iter().map(|p| (p.name, p.file, p.line, &p.requires));
    let providers = wiring.providers.iter().map(|p| (p.about.name, p.about.file, p.about.line, &p.requires));
    for (name, file, line, requires) in processors.chain(providers) {
        for need in requires {
            if let Some(text) = why_missing(wiring, name, need) {
                problems.push(Problem::at(file, line, text));
            }
        }
    }
}

fn why_missing(wiring: &Wiring<'_>, name: &str, need: &Requirement) -> Option<String> {
    let made =
        |scoped| wiring.providers.iter().any(|p| p.provides.id == need.id && p.provides.scoped == scoped);
    let given = |scoped| is_given(wiring.provided, &Requirement { scoped, ..*need });
    let ty = need.type_name;
    match (need.scoped, made(false) || given(false), made(true) || given(true)) {
        (false, true, _) | (true, _, true) => None,
        (false, false, true) => Some(format!(
            "`{name}` needs `Dep<{ty}>`, but it is made once per message (`#[provide(scoped)]`): write `Scoped<{ty}>`"
        )),
        (true, true, false) => Some(format!(
            "`{name}` needs `Scoped<{ty}>`, but it is made once per host: write `Dep<{ty}>`, or `#[provide(scoped)]` on \
             what makes it"
        )),
        (false, false, false) => Some(format!(
            "`{name}` needs `Dep<{ty}>`, and nothing provides it: write a `#[provide]` function that returns it, or \
             `Host::builder().provide(…)`"
        )),
        (true, false, false) => Some(format!(
            "`{name}` needs `Scoped<{ty}>`, and nothing provides it: write a `#[provide(scoped)]` function that returns it, or \
             `Host::builder().scope_provider(…)`"
        )),
    }
}

/// The macro takes no `Scoped` on a host-wide provider; `FromHost` written by hand can still ask for one.
fn scoped_in_host_wide(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    for p in wiring.providers.iter().filter(|p| !p.provides.scoped) {
        for need in p.requires.iter().filter(|need| need.scoped) {
            let text = format!(
                "`{}` makes its value once per host and needs `{}`, which is made once per message: write \
                 `#[provide(scoped)]` here, or `#[provide]` there",
                p.about.name, need.type_name
            );
            problems.push(at(&p.about, text));
        }
    }
}

/// Each circle once, told from its first member.
fn cycles(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    let by_type: HashMap<TypeId, usize> = wiring
        .providers
        .iter()
        .enumerate()
        .filter(|(_, p)| !is_given(wiring.provided, &p.provides))
        .map(|(i, p)| (p.provides.id, i))
        .collect();
    let mut done = BTreeSet::new();
    for start in 0..wiring.providers.len() {
        let mut path = Vec::new();
        walk(start, wiring.providers, &by_type, &mut path, &mut done, problems);
    }
}

fn walk(
    at_provider: usize,
    providers: &[Provider],
    by_type: &HashMap<TypeId, usize>,
    path: &mut Vec<usize>,
    done: &mut BTreeSet<usize>,
    problems: &mut Vec<Problem>,
) {
    if let Some(begin) = path.iter().position(|&seen| seen == at_provider) {
        problems.push(circle(&path[begin..], providers));
        return;
    }
    if !done.insert(at_provider) {
        return;
    }
    path.push(at_provider);
    for need in &providers[at_provider].requires {
        if let Some(&next) = by_type.get(&need.id) {
            walk(next, providers, by_type, path, done, problems);
        }
    }
    path.pop();
}

fn circle(members: &[usize], providers: &[Provider]) -> Problem {
    let first = &providers[members[0]].about;
    let mut text = format!("providers need one another in a circle: `{}`", first.name);
    for &member in members[1..].iter().chain(&members[..1]) {
        let p = &providers[member];
        text += &format!(
            " needs `{}`, made by `{}` ({}:{})",
            p.provides.type_name, p.about.name, p.about.file, p.about.line
        );
        if member != members[0] {
            text += ", which";
        }
    }
    at(first, text)
}

fn silent_crates(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    for expected in wiring.expected {
        let name = expected.krate.replace('-', "_");
        if wiring.crates.contains(name.as_str()) {
            continue;
        }
        let text = format!(
            "`bus::handlers!` names `{0}`, and no `#[processor]` of that crate is in this binary; if its package has \
             another name, write `bus::handlers!({0} = \"its-package\")`",
            expected.krate
        );
        problems.push(Problem::at(expected.file, expected.line, text));
    }
}

fn no_processors(wiring: &Wiring<'_>, problems: &mut Vec<Problem>) {
    // That a host leaves them out is the host's to judge.
    if wiring.processors.is_empty() && wiring.crates.is_empty() {
        problems.push(Problem::new(
            "this binary has no processors. A crate that is named nowhere in the source is not linked, and its handlers \
             vanish silently: write `use my_handlers as _;` in `main.rs`, or `bus::handlers!(my_handlers);`",
        ));
    }
}

#[cfg(test)]
mod tests;
