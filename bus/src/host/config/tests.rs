mod wrong;

use std::collections::BTreeSet;

use super::key::{ProcessorKey, TopKey};
use super::*;
use crate::settings::{Default as Plain, Retry};

/// A directory of this test alone, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("bus-config-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn with(file: &str, text: impl AsRef<[u8]>) -> Self {
        let directory = Directory::new();
        std::fs::write(directory.0.join(file), text).unwrap();
        directory
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads a file of this text, and these variables.
fn read(toml: &str, variables: &[(&str, &str)]) -> Result<Config> {
    let directory = Directory::with("bus.toml", toml);
    Config::read(&directory.0, variables.iter().copied())
}

/// The whole report of what is wrong, with the temporary directory taken out.
fn refused(toml: &str, variables: &[(&str, &str)]) -> String {
    let error = read(toml, variables).expect_err("must be refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    let report = format!("{error:?}");
    let words = report.split(' ').map(|word| match word.find("bus.toml:") {
        Some(at) if word.contains("bus-config-") => &word[at..],
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// That `report` has all these words.
fn has(report: &str, words: &[&str]) {
    for word in words {
        assert!(report.contains(word), "{word:?} is missing in:\n{report}");
    }
}

#[test]
fn without_file_and_variables_the_default_store_is_used_and_known_to_be_the_default() {
    let directory = Directory::new();
    let config = Config::read(&directory.0, [("PATH", "/bin")]).unwrap();
    let transports = config.transports_in_force().unwrap();
    assert!(transports.is_fallback);
    assert_eq!(format!("{:?}", transports.urls), r#"{"default": sqlite://bus.db}"#);
    assert!(config.locks.is_none());
    assert_eq!(config.shutdown_grace_period, Duration::from_secs(30));
    has(&config.to_string(), &["transports.default = sqlite://bus.db (nothing is configured: the default)"]);
}

#[test]
fn one_configured_transport_is_no_reason_to_add_the_default_one() {
    let config = read("[transports]\nbilling = 'sqlite://billing.db'", &[]).unwrap();
    let transports = config.transports_in_force().unwrap();
    assert!(!transports.is_fallback);
    assert_eq!(transports.urls.len(), 1);
}

#[test]
fn every_key_of_the_file_is_read() {
    let config = read(
        r#"
        locks = "default"
        locks_reach = "machine"
        namespace = "shop"
        lock_lease = "60s"
        lock_renew_every = "19s"
        lock_try_timeout = "4s"
        on_overrun = "exit"
        shutdown_grace_period = "0s"

        [transports]
        default = "sqlite://a.db?synchronous=NORMAL"
        billing-eu = "memory://b"

        [processors.rebuild-cache]
        lock_lease = "10s"
        lock_renew_every = "2s"

        [processors."order-placed/send-receipt"]
        max_concurrent_calls = 200
        prefetch_count = 0
        message_lock_timeout = "5m"
        dead_letter_delivery_limit = 3
        lease = "1m"
        retry = "exponential(2s, 1h)"
        "#,
        &[],
    )
    .unwrap();
    assert_eq!(config.locks, Some(LocksAt::DefaultTransport));
    assert_eq!(config.locks_reach, Some(Reach::Machine));
    assert_eq!(config.namespace.as_ref().map(Name::as_str), Some("shop"));
    assert_eq!(config.lock_lease, Some(Duration::from_secs(60)));
    assert_eq!(config.lock_renew_every, Some(Duration::from_secs(19)));
    assert_eq!(config.lock_try_timeout, Some(Duration::from_secs(4)));
    assert_eq!(config.on_overrun, OnOverrun::Exit);
    assert_eq!(config.shutdown_grace_period, Duration::ZERO);
    assert_eq!(config.transports.keys().map(Name::as_str).collect::<Vec<_>>(), ["billing-eu", "default"]);

    let receipt = Endpoint::parse("order-placed/send-receipt").unwrap();
    let settings = config.settings_for(&receipt, false, Resolved::of::<Plain>(false)).unwrap();
    let exponential = Retry::Exponential { first: Duration::from_secs(2), max: Duration::from_secs(3600) };
    let mut wanted = Resolved::of::<Plain>(false);
    wanted.max_concurrent_calls = 200;
    wanted.prefetch_count = 0;
    wanted.message_lock_timeout = Duration::from_secs(300);
    wanted.dead_letter_delivery_limit = 3;
    wanted.lease = Duration::from_secs(60);
    wanted.retry = exponential;
    assert_eq!(settings, wanted);
}

#[test]
fn a_variable_wins_over_the_file() {
    let config = read(
        "locks = 'sqlite://file.db'\non_overrun = 'exit'\n[transports]\ndefault = 'sqlite://file.db'",
        &[
            ("BUS_TRANSPORTS__DEFAULT", "sqlite://variable.db"),
            ("BUS_TRANSPORTS__BILLING_EU", "sqlite://eu.db"),
            ("BUS_LOCKS", "default"),
            ("BUS_LOCK_LEASE", "5s"),
        ],
    )
    .unwrap();
    assert_eq!(
        format!("{:?}", config.transports),
        r#"{"billing-eu": sqlite://eu.db, "default": sqlite://variable.db}"#
    );
    assert_eq!(config.locks, Some(LocksAt::DefaultTransport));
    assert_eq!(config.lock_lease, Some(Duration::from_secs(5)));
    assert_eq!(config.on_overrun, OnOverrun::Exit);
}

#[test]
fn a_missing_file_is_an_error_only_if_it_was_named() {
    let directory = Directory::with("other.toml", "namespace = 'here'");
    let named = |name: &str| {
        let path = directory.0.join(name).display().to_string();
        Config::read(&directory.0, [("BUS_CONFIG", path.as_str())])
    };
    assert_eq!(named("other.toml").unwrap().namespace.unwrap().as_str(), "here");
    let error = named("gone.toml").unwrap_err().to_string();
    has(&error, &["BUS_CONFIG", "gone.toml"]);
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let directory = Directory::with("bus.toml", [0xff, 0xfe, 0x00]);
    let error = Config::read(&directory.0, [("PATH", "")]).unwrap_err();
    has(&error.to_string(), &["bus.toml", "UTF-8"]);
}

#[test]
fn variables_of_others_are_passed_over() {
    let others = [
        ("BUS_AZURE_CONNECTION_STRING", "AccountKey=x"),
        ("BUS_TEST_STRICT", "1"),
        ("BUS_SIM_SEEDS", "3"),
        // A Kubernetes service called `bus`, and one called `bus-api`.
        ("BUS_SERVICE_HOST", "10.0.0.1"),
        ("BUS_SERVICE_PORT", "80"),
        ("BUS_PORT", "tcp://10.0.0.1:80"),
        ("BUS_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("BUS_API_SERVICE_PORT_HTTP", "80"),
        ("BUSINESS", "as usual"),
        ("bus_locks", "lower case is not ours"),
    ];
    assert!(read("", &others).is_ok());
}

#[test]
fn unknown_keys_are_refused_with_file_line_and_what_was_meant() {
    has(&refused("\nlokcs = 'default'", &[]), &["bus.toml:2: `lokcs`", "did you mean `locks`?"]);
    has(
        &refused("[transport]\ndefault = 'sqlite://a.db'", &[]),
        &["bus.toml:1: `transport`", "`transports`"],
    );
    has(
        &refused("[processors.a]\n\nmax_concurent_calls = 3", &[]),
        &["bus.toml:3: `processors.\"a\".max_concurent_calls`", "did you mean `max_concurrent_calls`?"],
    );
    has(&refused("colour = 'red'", &[]), &["no such key; there are transports, locks, "]);
}

#[test]
fn unknown_variables_are_refused_with_what_was_meant() {
    for (variable, meant) in [
        ("BUS_LOKCS", "did you mean BUS_LOCKS?"),
        ("BUS_LOCK__LEASE", "did you mean BUS_LOCKS?"),
        ("BUS_TRANSPORT__DEFAULT", "did you mean BUS_TRANSPORTS__DEFAULT?"),
        ("BUS_locks", "did you mean BUS_LOCKS?"),
        ("BUS_COLOUR", "documentation"),
        ("BUS_TRANSPORTS", "write BUS_TRANSPORTS__DEFAULT"),
        ("BUS_PROCESSORS__A__LEASE", "written in the file"),
    ] {
        has(&refused("", &[(variable, "x")]), &[&format!("variable {variable}:"), meant]);
    }
}

#[test]
fn listeners_and_limits_are_read_from_the_file_and_from_variables() {
    let toml = "health = '0.0.0.0:8080'\nalive = '[::1]:13000'\nthrottle = 100\nthrottle_per_second = 50";
    let config = read(toml, &[("BUS_THROTTLE", "7"), ("BUS_ALIVE", "127.0.0.1:0")]).unwrap();
    assert_eq!(config.health.unwrap().to_string(), "0.0.0.0:8080");
    assert_eq!(config.alive.unwrap().to_string(), "127.0.0.1:0");
    assert_eq!((config.throttle, config.throttle_per_second), (Some(7), Some(50)));
    has(
        &config.to_string(),
        &["health = 0.0.0.0:8080", "alive = 127.0.0.1:0", "throttle = 7", "throttle_per_second = 50"],
    );
    for (toml, words) in [
        ("health = 8080", ["`health`", "an address and a port to listen at", "found the number 8080"]),
        ("alive = 'localhost'", ["`alive`", "such as \"0.0.0.0:8080\"", "found the text \"localhost\""]),
        ("throttle = 0", ["`throttle`", "a whole number from 1 to 1000000", "found the number 0"]),
        ("throttle_per_second = 1.5", ["`throttle_per_second`", "from 1 to", "a number with a fraction"]),
    ] {
        has(&refused(toml, &[]), &words);
    }
}

#[test]
fn a_key_that_slipped_below_the_transports_is_sent_back_up() {
    let report = refused("[transports]\ndefault = 'sqlite://a.db'\nlocks = 'sqlite://a.db'", &[]);
    has(&report, &["bus.toml:3: `transports.locks`", "move it above [transports]"]);
}

#[test]
fn wrong_values_say_what_was_expected_and_what_was_found() {
    for (toml, words) in [
        ("lock_lease = 20", ["expected a duration such as", "write \"20s\" if it is seconds"]),
        ("lock_lease = 'soon'", ["expected a duration such as", "found the text \"soon\""]),
        ("lock_lease = '0s'", ["`lock_lease`", "longer than zero"]),
        ("lock_lease = 1.5", ["expected a duration", "found a number with a fraction"]),
        ("on_overrun = 'panic'", ["expected \"log\" or \"exit\"", "found the text \"panic\""]),
        ("on_overrun = true", ["expected \"log\" or \"exit\"", "found true or false"]),
        ("locks_reach = 'fleet'", ["expected \"machine\" or \"process\"", "\"fleet\""]),
        ("locks = []", ["store's URL", "found an array"]),
        ("locks = 'bus.db'", ["or the word \"default\"", "found the text \"bus.db\""]),
        ("namespace = 'a/b'", ["expected a name", "found the text \"a/b\""]),
        ("transports = 'sqlite://bus.db'", ["expected a table of transports", "[transports]"]),
        ("[transports]\ndefault = ''", ["store's URL", "found an empty text"]),
        ("[transports.default]\nurl = 'sqlite://a.db'", ["store's URL", "found a table"]),
        ("[transports]\nBilling = 'sqlite://a.db'", ["`transports.Billing`", "cannot name a transport"]),
        ("processors = 3", ["expected tables of settings", "found the number 3"]),
        ("processors.a = 3", ["expected a table of settings", "found the number 3"]),
        ("[processors.'a/b/c']", ["no processor's address", "topic/subscription"]),
        ("[processors.a]\nmax_concurrent_calls = 0", ["`max_concurrent_calls` is 0", "write 1 to 1000000"]),
        ("[processors.a]\nmax_concurrent_calls = 5000000000", ["is too high", "write 1 to 1000000"]),
        ("[processors.a]\ndead_letter_delivery_limit = 0", ["is 0", "write 1 to 1000000"]),
        ("[processors.a]\nmessage_lock_timeout = '0s'", ["`message_lock_timeout` is zero", "such as \"1m\""]),
        ("[processors.a]\nlease = '99ms'", [".lease`", "below 100ms"]),
        ("[processors.a]\nprefetch_count = -1", ["a whole number, not below zero", "found the number -1"]),
        ("[processors.a]\nprefetch_count = 1000001", ["`prefetch_count` is too high", "write 0 to 1000000"]),
        ("[processors.a]\nprefetch_count = '5'", ["expected a whole number", "without quotes"]),
        (
            "[processors.a]\nretry = 'sometimes'",
            ["\"immediate\", { fixed = \"5s\" }", "found the text \"sometimes\""],
        ),
        ("[processors.a]\nretry = { fixd = '5s' }", ["expected \"immediate\"", "found a table"]),
        ("[processors.a]\nretry = { fixed = '5s', max = '1m' }", ["expected \"immediate\"", "found a table"]),
        ("[processors.a]\nretry = {}", ["expected \"immediate\"", "found a table"]),
        ("[processors.a]\nretry = 5", ["expected \"immediate\"", "found the number 5"]),
        ("[processors.a]\nretry = { fixed = 5 }", ["expected a duration", "write \"5s\""]),
        (
            "[processors.a]\nretry = { exponential = '1s' }",
            ["{ first = \"1s\", max = \"5m\" }", "found the text \"1s\""],
        ),
        (
            "[processors.a]\nretry = { exponential = { first = '1s' } }",
            ["{ first = \"1s\", max = \"5m\" }", "found a table"],
        ),
        (
            "[processors.a]\nretry = { exponential = { first = '5m', max = '1s' } }",
            ["longer time than its longest", "at most `max`"],
        ),
        ("[processors.a]\nretry = 'fixed(5)'", ["expected a duration", "found the text \"5\""]),
        ("[processors.a]\nretry = 'exponential(1s)'", ["two durations", "exponential(1s, 5m)"]),
        ("[processors.a]\nretry = 'exponential(5m, 1s)'", ["longer time than its longest", "at most `max`"]),
        ("[processors.a]\nretry = 'fixed(0s)'", ["no time at all", "write `retry = \"immediate\"`"]),
    ] {
        has(&refused(toml, &[]), &words);
    }
    has(&refused("", &[("BUS_LOCK_LEASE", "20")]), &["variable BUS_LOCK_LEASE:", "expected a duration"]);
}

#[test]
fn retries_are_read_in_all_their_forms() {
    let exponential = Retry::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(300) };
    for (written, retry) in [
        ("retry = 'immediate'", Retry::Immediate),
        ("retry = 'fixed(5s)'", Retry::Fixed(Duration::from_secs(5))),
        ("retry = { fixed = '5s' }", Retry::Fixed(Duration::from_secs(5))),
        ("retry.fixed = '5s'", Retry::Fixed(Duration::from_secs(5))),
        ("retry = 'exponential(1s,5m)'", exponential),
        ("retry = { exponential = { first = '1s', max = '5m' } }", exponential),
        ("[processors.a.retry.exponential]\nmax = '5m'\nfirst = '1s'", exponential),
    ] {
        let config = read(&format!("[processors.a]\n{written}"), &[]).unwrap();
        assert_eq!(config.processors.values().next().unwrap().settings.retry, Some(retry));
    }
}

#[test]
fn everything_wrong_is_said_at_once() {
    let error = read(
        "lokcs = 'x'\nlock_lease = 3\n[processors.a]\nleese = '1s'\n",
        &[("BUS_ON_OVERRUN", "cry"), ("BUS_NAMESPCAE", "a")],
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "the configuration has 5 problems");
    let report = format!("{error:?}");
    has(&report, &["`lokcs`", "`lock_lease`", "leese", "BUS_ON_OVERRUN", "BUS_NAMESPCAE"]);
    assert_eq!(report.lines().count(), 6, "{report}");
}

#[test]
fn what_is_not_toml_is_refused_by_line() {
    has(&refused("locks = 'default'\nlock_lease 3s\n", &[]), &["bus.toml:2: "]);
    has(&refused("locks = 'default'\nlocks = 'default'\n", &[]), &["bus.toml:2: ", "duplicate"]);
}

#[test]
fn secrets_are_never_shown() {
    const SECRET: &str = "s3cret";
    let azure = format!("DefaultEndpointsProtocol=http;AccountKey={SECRET};BlobEndpoint=http://127.0.0.1/a");
    let url = format!("postgres://user:{SECRET}@host/db?key={SECRET}");
    let config = read(
        &format!("locks = '{url}'\n[transports]\ndefault = '{url}'"),
        &[("BUS_TRANSPORTS__OTHER", &url)],
    )
    .unwrap();
    for shown in [format!("{config}"), format!("{config:?}"), format!("{config:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        has(&shown, &["postgres://…@host/db"]);
    }
    for (toml, variable) in [
        (format!("locks = '{azure}'"), azure.as_str()),
        (format!("locks = '{url}&oops'"), url.as_str()),
        (format!("lock_lease = '{url}'"), azure.as_str()),
        (format!("namespace = '{azure}'\non_overrun = '{url}'\nlocks_reach = '{url}'"), url.as_str()),
        (format!("[processors.a]\nretry = {{ fixed = '{url}' }}\nlease = '{url}'"), url.as_str()),
        (format!("[processors.a]\nretry = {{ '{url}' = '{url}' }}"), url.as_str()),
        (format!("[processors.a]\nretry = '{url}'\nprefetch_count = '{azure}'"), url.as_str()),
        (format!("locks = '{url}\n"), url.as_str()),
        (format!("locks = {url}\n"), url.as_str()),
        (format!("[transports]\ndefault = \"{azure}\" {url}"), url.as_str()),
    ] {
        let report = refused(&toml, &[("BUS_LOCK_LEASE", variable), ("BUS_LOCKS", variable)]);
        assert!(!report.contains(SECRET), "{report}");
    }
}

#[test]
fn a_singleton_takes_no_tuning_but_what_it_has_anyway() {
    let endpoint = Endpoint::parse("a").unwrap();
    let settings = |toml: &str, singleton: bool| {
        let config = read(&format!("[processors.a]\n{toml}"), &[]).unwrap();
        config.settings_for(&endpoint, singleton, Resolved::of::<Plain>(singleton)).map_err(|e| e.to_string())
    };
    for (toml, word) in
        [("max_concurrent_calls = 8", "max_concurrent_calls"), ("prefetch_count = 1", "prefetch_count")]
    {
        let refusal = settings(toml, true).unwrap_err();
        has(&refusal, &["bus.toml:1: `processors.\"a\"`", word, "singleton", "remove it"]);
        assert!(settings(toml, false).is_ok());
    }
    assert!(settings("max_concurrent_calls = 1\nprefetch_count = 0", true).is_ok());
    has(&settings("lock_lease = '5s'", false).unwrap_err(), &["lock_lease", "it is none"]);
}

#[test]
fn a_singleton_with_a_lease_of_its_own_takes_no_times_of_the_hosts() {
    let host = "lock_lease = '60s'\nlock_renew_every = '19s'\nlock_try_timeout = '4s'\n";
    let config = read(
        &format!("{host}[processors.a]\nlock_lease = '4s'\n[processors.b]\nlock_renew_every = '9s'"),
        &[],
    );
    let config = config.unwrap();
    let times = |name| config.lock_times_for(&Endpoint::parse(name).unwrap());
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(times("a"), LockTimes { lock_lease: seconds(4), ..LockTimes::default() });
    let host =
        LockTimes { lock_lease: seconds(60), lock_renew_every: seconds(19), lock_try_timeout: seconds(4) };
    assert_eq!(times("b"), LockTimes { lock_renew_every: seconds(9), ..host });
    assert_eq!(times("c"), host);
}

#[test]
fn processors_that_the_program_does_not_have_are_named() {
    let config = read("[processors.'order-placed/send-reciept']\n[processors.known]", &[]).unwrap();
    let known = [Endpoint::parse("order-placed/send-receipt").unwrap(), Endpoint::parse("known").unwrap()];
    let errors = config.unknown_processors(&known);
    assert_eq!(errors.len(), 1);
    has(
        &errors[0].to_string(),
        &["bus.toml:1", "send-reciept", "did you mean \"order-placed/send-receipt\"?"],
    );
}

#[test]
fn code_can_say_it_all_too() {
    let config =
        Config::default().with_transport("default", "memory://a").unwrap().with_locks("memory://b").unwrap();
    assert!(!config.transports_in_force().unwrap().is_fallback);
    assert_eq!(config.locks.as_ref().map(LocksAt::to_string).as_deref(), Some("memory://b"));
    assert!(Config::default().with_transport("No", "memory://a").is_err());
    assert!(Config::default().with_locks("nowhere").is_err());
}

#[test]
fn the_table_in_the_docs_has_the_keys_of_the_code() {
    let documented: Vec<[&str; 2]> = include_str!("../../../docs/configuration.md")
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`'));
            [cells.next().unwrap(), cells.next().unwrap()]
        })
        .collect();
    let top = TopKey::names().filter(|key| !["transports", "processors"].contains(key));
    let mut coded: BTreeSet<[String; 2]> =
        top.map(|key| [key.to_owned(), format!("BUS_{}", key.to_ascii_uppercase())]).collect();
    coded.insert(["transports.<name>".to_owned(), "BUS_TRANSPORTS__<NAME>".to_owned()]);
    coded.extend(
        ProcessorKey::names().map(|key| [format!("processors.\"<endpoint>\".{key}"), "–".to_owned()]),
    );
    assert_eq!(documented.len(), coded.len(), "a key is documented twice or not at all");
    assert_eq!(documented.into_iter().map(|row| row.map(str::to_owned)).collect::<BTreeSet<_>>(), coded);
}

#[test]
fn the_example_in_the_docs_is_read() {
    let docs = include_str!("../../../docs/configuration.md");
    let example = docs.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(read(example, &[]).unwrap().transports.len(), 2);
}
