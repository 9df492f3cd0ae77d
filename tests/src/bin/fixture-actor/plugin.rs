//! A plugin that does what its test has said in `BUS_TEST_PLUGIN`, and writes down what is called: `start fails`,
//! `stop waits`, …, comma by comma.

use std::path::Path;
use std::time::Duration;

use bus::contract::BoxFuture;
use bus::host::{HostBuilder, Plugin, PluginContext};
use bus::{Error, ErrorKind, Result};
use bus_tests::journal::{Entry, Journal};

/// What there is to be done, and to be written down.
pub(crate) struct Scripted {
    name: String,
    script: String,
}

/// Adds the plugins that a test has asked for: `first` and `second`.
pub(crate) fn add(host: HostBuilder) -> HostBuilder {
    let Ok(script) = std::env::var("BUS_TEST_PLUGIN") else { return host };
    ["first", "second"]
        .into_iter()
        .fold(host, |host, name| host.plugin(Scripted { name: name.to_owned(), script: script.clone() }))
}

impl Scripted {
    fn note(&self, what: &str) {
        Journal::of_this_process().write(&Entry::now(format!("{} {what}", self.name)));
    }

    /// Does what is said for this one at this point.
    async fn act(&self, at: &str) -> Result<()> {
        self.note(&format!("{at} begins"));
        for said in self.script.split(',').map(str::trim) {
            let Some(act) = said.strip_prefix(&format!("{} {at} ", self.name)) else { continue };
            match act {
                "fails" => return Err(Error::new(ErrorKind::Handler, "the plugin does not want to")),
                "panics" => panic!("the plugin panics"),
                "hangs" => std::future::pending().await,
                "waits" => wait_for(Path::new(&format!("{} {at}", self.name))).await,
                other => panic!("{other:?} cannot be done"),
            }
        }
        self.note(&format!("{at} ends"));
        Ok(())
    }
}

/// Waits until the file is there.
async fn wait_for(file: &Path) {
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Plugin for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self) -> Result<()> {
        self.note("prepared");
        match self.script.contains(&format!("{} prepare fails", self.name)) {
            true => Err(Error::new(ErrorKind::Handler, "the plugin cannot be prepared")),
            false => Ok(()),
        }
    }

    fn start(&self, _host: PluginContext) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.act("start"))
    }

    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.act("stop"))
    }
}
