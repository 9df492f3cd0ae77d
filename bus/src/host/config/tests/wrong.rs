//! Configurations that nobody can have meant: each mistake is told by its place, with what was found and what is wanted.

use super::*;

/// What may stand behind a key: as it is written, and what it is called where it is not wanted.
const VALUES: [(&str, &str); 17] = [
    ("7", "number"),
    ("-7", "number"),
    ("0x10000000000000000", "a number that is too large"),
    ("99999999999999999999", "a number that is too large"),
    ("1.5", "a number with a fraction"),
    ("inf", "a number with a fraction"),
    ("nan", "a number with a fraction"),
    ("true", "true or false"),
    ("''", "an empty text"),
    ("'no such'", "the text \"no such\""),
    ("\"nul \\u0000\"", "the text \"nul \\0\""),
    ("'🦀'", "the text \"🦀\""),
    ("[]", "an array"),
    ("['default']", "an array"),
    ("{}", "a table"),
    ("1979-05-27", "a date"),
    ("07:32:00", "a date"),
];

/// Whether it is one of the few that a key takes.
fn is_right(key: &str, value: &str) -> bool {
    match key {
        "max_concurrent_calls" | "prefetch_count" | "dead_letter_delivery_limit" => value == "7",
        "throttle" | "throttle_per_second" => value == "7",
        "transports" | "processors" => value == "{}",
        _ => false,
    }
}

/// That `report` is one problem at `place`, says that this was found, and what to write.
fn assert_told(report: &str, place: &str, found: &str) {
    assert!(report.starts_with(place), "{place} is not where it begins: {report}");
    assert_eq!(report.lines().count(), 1, "{report}");
    has(report, &["expected ", "found ", found]);
}

#[test]
fn every_key_refuses_every_value_of_another_type() {
    for key in TopKey::names() {
        for (value, found) in VALUES.into_iter().filter(|(value, _)| !is_right(key, value)) {
            let report = refused(&format!("\n\n{key} = {value}"), &[]);
            assert_told(&report, &format!("bus.toml:3: `{key}`: "), found);
        }
    }
    for key in ProcessorKey::names() {
        for (value, found) in VALUES.into_iter().filter(|(value, _)| !is_right(key, value)) {
            let report = refused(&format!("[processors.'a/b']\n{key} = {value}"), &[]);
            assert_told(&report, &format!("bus.toml:2: `processors.\"a/b\".{key}`: "), found);
        }
    }
    for (value, found) in VALUES {
        let report = refused(&format!("[transports]\r\nbilling = {value}"), &[]);
        let place = "bus.toml:2: `transports.billing`: ";
        match value.starts_with(['\'', '"']) && value != "''" {
            // Not repeated, and no address.
            true => assert!(report.starts_with(place) && report.contains("://"), "{value}: {report}"),
            false => assert_told(&report, place, found),
        }
        if value != "{}" {
            let report = refused(&format!("[processors]\na = {value}"), &[]);
            assert_told(&report, "bus.toml:2: `processors.\"a\"`: ", found);
        }
    }
}

#[test]
fn a_retry_policy_is_of_the_right_types_to_its_leaves() {
    for (policy, words) in [
        ("{ fixed = 5 }", ["expected a duration", "write \"5s\" if it is seconds"]),
        ("{ fixed = true }", ["expected a duration", "found true or false"]),
        ("{ fixed = {} }", ["expected a duration", "found a table"]),
        ("{ fixed = '5s', exponential = {} }", ["\"immediate\", { fixed", "found a table"]),
        ("{ immediate = true }", ["\"immediate\", { fixed", "found a table"]),
        ("{ exponential = '5s' }", ["exponential = { first", "found the text \"5s\""]),
        ("{ exponential = { first = '1s' } }", ["exponential = { first", "found a table"]),
        ("{ exponential = { first = '1s', max = '5m', factor = 2 } }", ["exponential = {", "found a table"]),
        ("{ exponential = { first = 1, max = '5m' } }", ["expected a duration", "write \"1s\""]),
        ("{ exponential = { first = '1s', max = [] } }", ["expected a duration", "found an array"]),
    ] {
        let report = refused(&format!("[processors.a]\nretry = {policy}"), &[]);
        has(&report, &["bus.toml:2: `processors.\"a\".retry`: "]);
        has(&report, &words);
    }
}

/// One mistake in each key there is: as many problems, in the order in which they were written, the variables last.
#[test]
fn all_mistakes_are_told_at_once_from_the_first_line_to_the_last() {
    let (mut toml, mut places) = (String::new(), Vec::new());
    let mut line = |text: &str| {
        toml.push_str(text);
        toml.push('\n');
        toml.lines().count()
    };
    let simple = TopKey::names().filter(|key| !["transports", "processors"].contains(key));
    for key in simple.clone() {
        places.push(format!("bus.toml:{}: `{key}`", line(&format!("{key} = []"))));
    }
    places.push(format!("bus.toml:{}: `colour`", line("colour = 'red'")));
    line("[processors.zebra]");
    for key in ProcessorKey::names() {
        places.push(format!("bus.toml:{}: `processors.\"zebra\".{key}`", line(&format!("{key} = []"))));
    }
    line("[transports]");
    places.push(format!("bus.toml:{}: `transports.default`", line("default = 1")));
    places.push(format!("bus.toml:{}: `transports.Big`", line("Big = 'memory://a'")));
    line("[processors.aardvark]");
    places.push(format!("bus.toml:{}: `processors.\"aardvark\".leese`", line("leese = '1s'")));
    let variables: Vec<String> = simple.map(|key| format!("BUS_{}", key.to_ascii_uppercase())).collect();
    let pairs: Vec<_> = variables.iter().map(|name| (name.as_str(), "[]")).collect();
    let mut named = variables.clone();
    named.sort();
    places.extend(named.iter().map(|name| format!("variable {name}")));

    let report = refused(&toml, &pairs);
    let told: Vec<&str> =
        report.lines().skip(1).map(|line| line.trim_start_matches("  caused by: ").trim()).collect();
    assert_eq!(told.len(), places.len(), "{report}");
    for (told, place) in told.iter().zip(&places) {
        assert!(told.starts_with(place), "{place} was expected, and it is: {told}");
    }
    has(&report, &[&format!("the configuration has {} problems", places.len())]);
}

#[test]
fn every_variable_refuses_what_its_key_refuses() {
    for key in TopKey::names().filter(|key| !["transports", "processors"].contains(key)) {
        let name = format!("BUS_{}", key.to_ascii_uppercase());
        // A namespace may be called almost anything.
        let texts = ["", " ", "no such", "[]", "{}", "log exit", "1h\n", "🦀", "DEFAULT", "-1s", "1.5s"];
        let more = ["7", "true"].into_iter().filter(|text| key != "namespace" && !is_right(key, text));
        for text in texts.into_iter().chain(more) {
            let report = refused("", &[(&name, text)]);
            let found =
                if text.is_empty() { "an empty text".to_owned() } else { format!("the text {text:?}") };
            assert_told(&report, &format!("variable {name}: "), &found);
        }
    }
    for text in ["", "bus.db", "sqlite:bus.db", "://"] {
        let report = refused("", &[("BUS_TRANSPORTS__DEFAULT", text)]);
        assert!(
            report.starts_with("variable BUS_TRANSPORTS__DEFAULT: ") && report.contains("://"),
            "{report}"
        );
    }
    for name in [
        "BUS_TRANSPORTS__",
        "BUS_TRANSPORTS__A__B",
        "BUS_TRANSPORTS___A",
        "BUS_TRANSPORTS__Ö",
        "BUS_TRANSPORTS__A.B",
    ] {
        has(&refused("", &[(name, "memory://a")]), &[&format!("variable {name}: cannot name a transport")]);
    }
}

#[cfg(unix)]
#[test]
fn variables_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStringExt;
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let directory = Directory::new();
    let refused = |name: OsString, value: OsString| {
        Config::read(&directory.0, [(name, value)]).expect_err("must be refused").to_string()
    };
    let value = refused("BUS_LOCKS".into(), odd(b"sqlite://\xff.db"));
    has(&value, &["variable BUS_LOCKS: is not valid UTF-8"]);
    has(&refused(odd(b"BUS_\xff"), "x".into()), &["variable BUS_", "is no variable of bus"]);
    assert!(
        Config::read(&directory.0, [(odd(b"B\xffS_LOCKS"), odd(b"\xff"))]).is_ok(),
        "others' are passed over"
    );
}

#[test]
fn a_file_in_another_encoding_is_refused_by_line() {
    for (content, line) in [
        (b"locks = 'default'\n# caf\xe9\n".as_slice(), 2),
        (b"\xff\xfel\0o\0c\0k\0s\0", 1),
        (b"locks = 'default'\r\n\r\nnamespace = 'a\xc3'", 3),
    ] {
        let directory = Directory::with("bus.toml", content);
        let error = Config::read(&directory.0, [("PATH", "")]).unwrap_err().to_string();
        has(&error, &[&format!("bus.toml:{line}: is not UTF-8"), "save the file"]);
    }
    let directory = Directory::with("bus.toml", b"\xef\xbb\xbfnamespace = 'with-a-mark'");
    let config = Config::read(&directory.0, [("PATH", "")]).unwrap();
    assert_eq!(config.namespace.as_ref().map(Name::as_str), Some("with-a-mark"));
}

#[test]
fn a_file_that_is_no_toml_is_refused_by_line() {
    for (content, line) in [
        ("namespace = 'a'\n\0\0\0\0", 2),
        ("\u{0}ELF", 1),
        ("{ \"locks\": \"default\" }", 1),
        ("locks: default", 1),
        ("namespace = 'a'\n[transports\ndefault = 'memory://a'", 2),
        ("namespace = 'a\nlocks = 'default'", 1),
        ("[processors.a]\nlease = '1s'\n[processors.a]\nlease = '2s'", 3),
        ("a.b = 1\na.b.c = 2", 2),
    ] {
        let report = refused(content, &[]);
        assert!(report.contains(&format!("bus.toml:{line}: ")), "{content:?}: {report}");
    }
    // As long as it is, it is read, or refused by line.
    let long = format!("namespace = '{}'\nlocks = 7", "n".repeat(1 << 20));
    let report = refused(&long, &[]);
    has(&report, &["bus.toml:1: `namespace`", "bus.toml:2: `locks`"]);
    assert!(report.len() < 1_000, "what was found is not repeated: {} bytes", report.len());
}

/// Whoever has put something there has meant it to be read: only where there is nothing is there nothing to read.
#[test]
fn a_file_that_cannot_be_read_is_refused_and_not_taken_for_a_missing_one() {
    let directory = Directory::new();
    let refused = |variables: &[(&str, &str)], words: &[&str]| {
        let error = Config::read(&directory.0, variables.iter().copied()).expect_err("must be refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        has(&error.to_string(), words);
    };
    let file = directory.0.join("bus.toml");
    std::fs::create_dir(&file).unwrap();
    refused(&[("PATH", "")], &["the configuration: cannot read ", "bus.toml", "irectory", "or remove it"]);
    std::fs::remove_dir(&file).unwrap();

    let named = |path: &Path| path.display().to_string();
    let variable = ["variable BUS_CONFIG: cannot read ", "or unset the variable"];
    for path in [named(&directory.0), named(&directory.0.join("gone.toml")), String::new()] {
        refused(&[("BUS_CONFIG", &path)], &variable);
    }
    std::fs::write(&file, "").unwrap();
    let below = named(&file.join("bus.toml"));
    refused(&[("BUS_CONFIG", &below)], &variable);
    // What is wrong with the variables is said all the same.
    let both = [("BUS_CONFIG", below.as_str()), ("BUS_LOCK_LEASE", "7")];
    let report = format!("{:?}", Config::read(&directory.0, both).unwrap_err());
    has(&report, &["2 problems", "variable BUS_CONFIG: ", "variable BUS_LOCK_LEASE: "]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_refused_and_not_taken_for_a_missing_file() {
    use std::os::unix::fs::symlink;
    for target in ["gone.toml", "bus.toml"] {
        let directory = Directory::new();
        symlink(target, directory.0.join("bus.toml")).unwrap();
        let error = Config::read(&directory.0, [("PATH", "")]).expect_err(target).to_string();
        has(&error, &["the configuration: cannot read ", "bus.toml", "or remove it"]);
    }
}
