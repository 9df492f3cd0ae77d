//! The files for a cluster fit together, and to what the host promises.

use std::collections::BTreeMap;
use std::fs;

use bus::host::config::Config;
use saphyr::{LoadableYamlNode, Yaml};

use crate::read;

const MANIFEST: &str = "examples/deploy/deployment.yaml";
const DOCKERFILE: &str = "examples/deploy/Dockerfile";
const PAGE: &str = "bus/docs/shutdown.md";

/// What a host needs at most to end after its grace period, in seconds.
const BEYOND_THE_GRACE_PERIOD: u64 = 10;

/// What stands at a path such as `spec/replicas`; `0` is the first of a list.
fn at<'y>(yaml: &'y Yaml<'y>, path: &str) -> &'y Yaml<'y> {
    path.split('/').fold(yaml, |yaml, key| {
        let inner = match key.parse() {
            Ok(index) => yaml.as_sequence_get(index),
            Err(_) => yaml.as_mapping_get(key),
        };
        inner.unwrap_or_else(|| panic!("{MANIFEST} has no {path}: {key} is missing"))
    })
}

fn text<'y>(yaml: &'y Yaml<'y>, path: &str) -> &'y str {
    at(yaml, path).as_str().unwrap_or_else(|| panic!("{path} is no text"))
}

fn number(yaml: &Yaml<'_>, path: &str) -> u64 {
    let number = at(yaml, path).as_integer().and_then(|number| u64::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{path} is no number"))
}

fn is_true(yaml: &Yaml<'_>, path: &str) -> bool {
    at(yaml, path).as_bool() == Some(true)
}

/// Calls `test` with the manifest's two documents: the configuration and the deployment.
fn with_manifest<T>(test: impl FnOnce(&Yaml<'_>, &Yaml<'_>) -> T) -> T {
    let manifest = read(MANIFEST);
    let documents = Yaml::load_from_str(&manifest).expect("the manifest is YAML");
    let [config, deployment] = documents.as_slice() else {
        panic!("{MANIFEST} has {} documents", documents.len());
    };
    assert_eq!([text(config, "kind"), text(deployment, "kind")], ["ConfigMap", "Deployment"]);
    test(config, deployment)
}

/// The configuration as the program in the pod reads it.
fn configuration(config: &Yaml<'_>, deployment: &Yaml<'_>) -> Config {
    let pod = at(deployment, "spec/template/spec");
    let (mount, volume) = (at(pod, "containers/0/volumeMounts/0"), at(pod, "volumes/0"));
    assert_eq!(text(mount, "name"), text(volume, "name"));
    assert_eq!(text(volume, "configMap/name"), text(config, "metadata/name"));
    let mounted = format!("{}/bus.toml", text(mount, "mountPath"));

    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("bus.toml");
    fs::write(&file, text(config, "data/bus.toml")).expect("the file can be written");
    let variables = at(pod, "containers/0/env").as_sequence().expect("`env` is a list");
    let value_of = |variable, name: &str| match name {
        "BUS_CONFIG" => {
            assert_eq!(text(variable, "value"), mounted, "it names the file that is mounted");
            file.display().to_string()
        }
        // In the cluster it is a secret.
        "BUS_TRANSPORTS__DEFAULT" => {
            assert_eq!(text(variable, "valueFrom/secretKeyRef/key"), "url");
            "redis://orders:secret@db/0".to_owned()
        }
        _ => text(variable, "value").to_owned(),
    };
    let variables: BTreeMap<String, String> = variables
        .iter()
        .map(|variable| (text(variable, "name").to_owned(), value_of(variable, text(variable, "name"))))
        .collect();
    // Ours, and the program's own.
    let is_known = |name: &String| name.starts_with("BUS_") || name.starts_with("ORDERS_");
    assert!(variables.keys().all(is_known), "who reads them? {:?}", variables.keys());
    Config::read(directory.path(), variables).expect("the pod's configuration is one")
}

/// Where the probes ask, the host answers.
#[test]
fn a_pod_is_asked_where_its_host_answers() {
    with_manifest(|config, deployment| {
        let container = at(deployment, "spec/template/spec/containers/0");
        let port = number(container, "ports/0/containerPort");
        let health = format!("health = \"0.0.0.0:{port}\"\n");
        assert!(text(config, "data/bus.toml").contains(&health), "it does not say {health}");
        for (probe, path) in [("livenessProbe", "/live"), ("readinessProbe", "/ready")] {
            assert_eq!(text(container, &format!("{probe}/httpGet/path")), path);
            assert_eq!(text(container, &format!("{probe}/httpGet/port")), text(container, "ports/0/name"));
        }
    });
}

#[test]
fn a_pod_gets_the_time_that_its_host_needs_to_end() {
    with_manifest(|config, deployment| {
        let grace = configuration(config, deployment).shutdown_grace_period.as_secs();
        let pod = at(deployment, "spec/template/spec");
        let pre_stop = number(pod, "containers/0/lifecycle/preStop/sleep/seconds");
        let given = number(pod, "terminationGracePeriodSeconds");
        let needed = pre_stop + grace + BEYOND_THE_GRACE_PERIOD;
        assert!(
            given >= needed,
            "{given} s are given, {pre_stop} + {grace} + {BEYOND_THE_GRACE_PERIOD} needed"
        );
        let said = format!("| `terminationGracePeriodSeconds` | **{given}** |");
        assert!(read(PAGE).contains(&said), "{PAGE} does not say {said}");
    });
}

#[test]
fn a_pod_has_locks_that_reach_its_fleet() {
    with_manifest(|config, deployment| {
        let config = configuration(config, deployment);
        assert!(number(deployment, "spec/replicas") > 1, "it is no fleet");
        assert_eq!(config.locks.map(|locks| locks.to_string()).as_deref(), Some("default"));
        let rolling = at(deployment, "spec/strategy/rollingUpdate");
        assert_eq!(number(rolling, "maxUnavailable"), 0, "a new pod stands by before an old one goes");
        let labels = at(deployment, "spec/template/metadata/labels");
        assert_eq!(text(labels, "app"), text(deployment, "spec/selector/matchLabels/app"));
    });
}

#[test]
fn a_pod_is_nobody_of_importance() {
    let user = with_manifest(|_, deployment| {
        let pod = at(deployment, "spec/template/spec");
        assert!(is_true(pod, "securityContext/runAsNonRoot"));
        let container = at(pod, "containers/0/securityContext");
        assert_eq!(at(container, "allowPrivilegeEscalation").as_bool(), Some(false));
        assert!(is_true(container, "readOnlyRootFilesystem"));
        assert_eq!(text(container, "capabilities/drop/0"), "ALL");
        assert_eq!(at(pod, "enableServiceLinks").as_bool(), Some(false));
        number(pod, "securityContext/runAsUser")
    });
    assert_ne!(user, 0);
    let dockerfile = read(DOCKERFILE);
    assert_eq!(instructions(&dockerfile, "USER").last(), Some(&format!("{user}:{user}").as_str()));
}

/// What follows an instruction, each time that it is given.
fn instructions<'f>(dockerfile: &'f str, name: &str) -> Vec<&'f str> {
    dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

#[test]
fn an_image_has_the_program_alone_and_gives_it_the_signal() {
    let dockerfile = read(DOCKERFILE);
    let [build, last] = instructions(&dockerfile, "FROM")[..] else { panic!("it has two stages") };
    assert!(last.starts_with("gcr.io/distroless/cc-debian12:"), "{last} has more, or another C library");
    let toolchain = build.strip_prefix("rust:").and_then(|rest| rest.strip_suffix("-bookworm AS build"));
    let needed = read("Cargo.toml");
    let needed = needed.lines().find_map(|line| line.strip_prefix("rust-version = "));
    assert_eq!(toolchain, needed.map(|version| version.trim_matches('"')), "another version of Rust");

    let copied = instructions(&dockerfile, "COPY");
    let program = copied.last().and_then(|copy| copy.rsplit(' ').next()).expect("something is copied");
    let started = instructions(&dockerfile, "ENTRYPOINT");
    assert_eq!(started, [format!("[\"{program}\"]")], "a shell would keep the signal to itself");
    assert!(instructions(&dockerfile, "CMD").is_empty());
}

#[test]
fn the_page_shows_the_files_as_they_are() {
    let page = read(PAGE);
    for (path, language) in [(MANIFEST, "yaml"), (DOCKERFILE, "dockerfile")] {
        let shown = format!("`{path}`:\n\n```{language}\n{}```\n", read(path));
        assert!(page.contains(&shown), "{PAGE} shows {path} as it is not");
    }
}
