//! Reads the file and the variables into a [`Config`], and collects everything that is wrong with them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{ProcessorKey, TopKey, closest};
use super::problem::{Place, Problems};
use super::value::{self, Value};
use super::{Config, LOCKS_KEY, ProcessorConfig, transport_key};
use crate::settings::Setting;

/// Reads sources one after the other: what comes later wins.
#[derive(Default)]
pub(super) struct Reader {
    config: Config,
    problems: Problems,
}

impl Reader {
    /// Notes something that is wrong.
    pub(super) fn problem(&mut self, place: &Place, what: impl std::fmt::Display) {
        self.problems.add(place, what);
    }

    /// Reads a file's content; `name` is how to call the file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        let file = File { name, content };
        let text = match std::str::from_utf8(content) {
            Ok(text) => text,
            Err(error) => {
                return self.problem(
                    &file.line(error.valid_up_to()),
                    "is not UTF-8: save the file in that encoding",
                );
            }
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        // Not the error's own text: it repeats the line, and with it whatever secret stands there.
        for error in &errors {
            self.problem(&file.line(error.span().unwrap_or_default().start), error.message());
        }
        if errors.is_empty() {
            for (key, value) in table.get_ref() {
                self.top_of_file(&file, key, value);
            }
        }
    }

    fn top_of_file(&mut self, file: &File<'_>, key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        let place = file.place(key.span(), name.to_owned());
        let Some(known) = TopKey::find(name) else {
            return self.unknown(&place, "key", name, TopKey::names());
        };
        match (known, value.get_ref()) {
            (TopKey::Transports, DeValue::Table(transports)) => {
                for (name, value) in transports {
                    let place = file.place(name.span(), format!("transports.{}", name.get_ref()));
                    self.transport(&place, name.get_ref(), &Value::from(value.get_ref()));
                }
            }
            (TopKey::Processors, DeValue::Table(processors)) => {
                for (name, value) in processors {
                    self.processor_of_file(file, name, value);
                }
            }
            (known, value) => self.top(&place, known, &Value::from(value)),
        }
    }

    fn processor_of_file(
        &mut self,
        file: &File<'_>,
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let key = format!("processors.\"{}\"", name.get_ref());
        let place = file.place(name.span(), key.clone());
        let endpoint = match value::endpoint(name.get_ref()) {
            Ok(endpoint) => endpoint,
            Err(what) => return self.problem(&place, what),
        };
        let Some(settings) = value.get_ref().as_table() else {
            let found = Value::from(value.get_ref());
            return self.problem(&place, format_args!("expected a table of settings, found {found}"));
        };
        let mut processor = ProcessorConfig { written_at: Some(place), ..Default::default() };
        for (name, value) in settings {
            let place = file.place(name.span(), format!("{key}.{}", name.get_ref()));
            let Some(known) = ProcessorKey::find(name.get_ref()) else {
                self.unknown(&place, "setting", name.get_ref(), ProcessorKey::names());
                continue;
            };
            if let Err(what) = set_processor(&mut processor, known, &Value::from(value.get_ref())) {
                self.problem(&place, what);
            }
        }
        self.config.processors.insert(endpoint, processor);
    }

    /// Reads one environment variable; those that are not ours are passed over.
    pub(super) fn variable(&mut self, name: &OsStr, value: &OsStr) {
        let name = name.to_string_lossy();
        let Some(key) = name.strip_prefix("BUS_") else { return };
        if is_read_elsewhere(key) {
            return;
        }
        let place = Place::Variable(format!("BUS_{key}"));
        match value.to_str() {
            Some(text) => self.variable_of_ours(&place, key, &Value::Text(text.to_owned())),
            None => self.problem(&place, "is not valid UTF-8"),
        }
    }

    fn variable_of_ours(&mut self, place: &Place, key: &str, value: &Value) {
        let (top, inner) = key.split_once("__").map_or((key, None), |(top, inner)| (top, Some(inner)));
        let is_upper_case = key == key.to_ascii_uppercase();
        let known = TopKey::find(&top.to_ascii_lowercase()).filter(|_| is_upper_case);
        match (known, inner) {
            (Some(TopKey::Transports), Some(name)) => {
                self.transport(place, &name.to_ascii_lowercase().replace('_', "-"), value);
            }
            (Some(TopKey::Transports), None) => {
                self.problem(
                    place,
                    "names no transport; write BUS_TRANSPORTS__DEFAULT for the one called `default`",
                );
            }
            (Some(TopKey::Processors), _) => self.problem(
                place,
                "the settings of a processor are written in the file: a variable's name cannot hold the dashes and the \
                 slash of a processor's address",
            ),
            (Some(known), None) => self.top(place, known, value),
            _ if is_service_link(key) => {}
            _ => self.unknown_variable(place, key),
        }
    }

    /// What was read, or everything that is wrong with it.
    pub(super) fn finish(self) -> crate::Result<Config> {
        self.problems.into_result().map(|()| self.config)
    }

    fn top(&mut self, place: &Place, key: TopKey, value: &Value) {
        match set_top(&mut self.config, key, value) {
            Err(what) => self.problem(place, what),
            Ok(()) if key == TopKey::Locks => {
                self.config.addresses.insert(LOCKS_KEY.to_owned(), place.clone());
            }
            Ok(()) => {}
        }
    }

    fn transport(&mut self, place: &Place, name: &str, value: &Value) {
        // In TOML a key below a table's head belongs to that table, wherever it was meant to be.
        if matches!(place, Place::Key { .. }) && TopKey::find(name).is_some() {
            return self.problem(
                place,
                format_args!("`{name}` belongs to the top level: move it above [transports], whose keys name transports"),
            );
        }
        match value::transport_name(name).and_then(|name| Ok((name, value::transport_url(value)?))) {
            Ok((name, url)) => {
                self.config.addresses.insert(transport_key(name.as_str()), place.clone());
                self.config.transports.insert(name, url);
            }
            Err(what) => self.problem(place, what),
        }
    }

    fn unknown(
        &mut self,
        place: &Place,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'static str> + Clone,
    ) {
        match closest(name, known.clone()) {
            Some(meant) => {
                self.problem(place, format_args!("there is no such {what}; did you mean `{meant}`?"))
            }
            None => {
                let known = known.collect::<Vec<_>>().join(", ");
                self.problem(place, format_args!("there is no such {what}; there are {known}"));
            }
        }
    }

    fn unknown_variable(&mut self, place: &Place, key: &str) {
        let top = key.split_once("__").map_or(key, |(top, _)| top).to_ascii_lowercase();
        let hint = match closest(&top, TopKey::names()) {
            Some("transports") => "did you mean BUS_TRANSPORTS__DEFAULT?".to_owned(),
            Some(meant) => format!("did you mean BUS_{}?", meant.to_ascii_uppercase()),
            None => "the variables are listed in the documentation of bus::host::config".to_owned(),
        };
        self.problem(place, format_args!("is no variable of bus; {hint}"));
    }
}

fn set_top(config: &mut Config, key: TopKey, value: &Value) -> Result<(), String> {
    match key {
        TopKey::Transports => {
            return Err(format!(
                "expected a table of transports, found {value}; write [transports] and below it \
                                default = \"sqlite://bus.db\""
            ));
        }
        TopKey::Processors => {
            return Err(format!(
                "expected tables of settings, found {value}; write [processors.\"queue\"] and the \
                                settings below it"
            ));
        }
        TopKey::Locks => config.locks = Some(value::locks(value)?),
        TopKey::LocksReach => config.locks_reach = Some(value::locks_reach(value)?),
        TopKey::Namespace => config.namespace = Some(value::namespace(value)?),
        TopKey::LockLease => config.lock_lease = Some(value::duration(value)?),
        TopKey::LockRenewEvery => config.lock_renew_every = Some(value::duration(value)?),
        TopKey::LockTryTimeout => config.lock_try_timeout = Some(value::duration(value)?),
        TopKey::OnOverrun => config.on_overrun = value::on_overrun(value)?,
        TopKey::OnStoreDown => config.on_store_down = value::on_store_down(value)?,
        TopKey::StoreWaitLimit => config.store_wait_limit = Some(value::duration(value)?),
        TopKey::WarnUnreadAfter => config.warn_unread_after = value::duration_or_zero(value)?,
        TopKey::ShutdownGracePeriod => config.shutdown_grace_period = value::duration_or_zero(value)?,
        TopKey::Health => config.health = Some(value::address(value)?),
        TopKey::Alive => config.alive = Some(value::address(value)?),
        TopKey::Throttle => config.throttle = Some(value::limit(value)?),
        TopKey::ThrottlePerSecond => config.throttle_per_second = Some(value::limit(value)?),
    }
    Ok(())
}

fn set_processor(processor: &mut ProcessorConfig, key: ProcessorKey, value: &Value) -> Result<(), String> {
    let settings = &mut processor.settings;
    let setting = match key {
        ProcessorKey::MaxConcurrentCalls => {
            settings.max_concurrent_calls = Some(value::count(value)? as usize);
            Setting::MaxConcurrentCalls
        }
        ProcessorKey::PrefetchCount => {
            settings.prefetch_count = Some(value::count(value)? as usize);
            Setting::PrefetchCount
        }
        ProcessorKey::MessageLockTimeout => {
            settings.message_lock_timeout = Some(value::duration_or_zero(value)?);
            Setting::MessageLockTimeout
        }
        ProcessorKey::DeadLetterDeliveryLimit => {
            settings.dead_letter_delivery_limit = Some(value::count(value)?);
            Setting::DeadLetterDeliveryLimit
        }
        ProcessorKey::Lease => {
            settings.lease = Some(value::duration_or_zero(value)?);
            Setting::Lease
        }
        ProcessorKey::Retry => {
            settings.retry = Some(value::retry(value)?);
            Setting::Retry
        }
        ProcessorKey::Retention => {
            settings.retention = Some(value::duration_or_zero(value)?);
            Setting::Retention
        }
        ProcessorKey::LockLease => {
            processor.lock_lease = Some(value::duration(value)?);
            return Ok(());
        }
        ProcessorKey::LockRenewEvery => {
            processor.lock_renew_every = Some(value::duration(value)?);
            return Ok(());
        }
    };
    // The compiler judges the attributes by the same rules.
    settings.why_invalid(setting).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Whether a variable begins like ours and is no key: it is read before the file, by a backend, or by tests.
fn is_read_elsewhere(key: &str) -> bool {
    matches!(key, "CONFIG" | "AZURE_CONNECTION_STRING")
        || ["TEST_", "SIM_"].iter().any(|prefix| key.starts_with(prefix))
}

/// Kubernetes gives every container such variables for every service of its namespace: a service called `bus` must not
/// keep the host from starting.
fn is_service_link(key: &str) -> bool {
    key == "PORT"
        || key.starts_with("PORT_")
        || key.starts_with("SERVICE_")
        || key.ends_with("_SERVICE_HOST")
        || key.contains("_SERVICE_PORT")
        || key.ends_with("_PORT")
        || key.contains("_PORT_")
}

impl From<&DeValue<'_>> for Value {
    fn from(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Other("a number that is too large"), Value::Number),
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Boolean(_) => Value::Other("true or false"),
            DeValue::Datetime(_) => Value::Other("a date"),
            DeValue::Array(_) => Value::Other("an array"),
            DeValue::Table(table) => {
                let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                    (key.get_ref().to_string(), Value::from(value.get_ref()))
                };
                Value::Table(table.iter().map(entry).collect())
            }
        }
    }
}

/// A file that is being read: turns positions into lines.
struct File<'f> {
    name: &'f str,
    content: &'f [u8],
}

impl File<'_> {
    fn number(&self, at: usize) -> usize {
        1 + self.content.iter().take(at).filter(|byte| **byte == b'\n').count()
    }

    fn line(&self, at: usize) -> Place {
        Place::Line { file: self.name.to_owned(), line: self.number(at) }
    }

    fn place(&self, span: Range<usize>, key: String) -> Place {
        Place::Key { file: self.name.to_owned(), line: self.number(span.start), key }
    }
}
