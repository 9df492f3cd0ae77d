//! `check`: the wiring of this program.

use serde::Serialize;

use super::options::Options;
use super::output::{Listing, Output, Record};
use crate::error::Result;
use crate::host::Host;
use crate::processor::Processor;
use crate::registry;

#[derive(Serialize)]
struct Line {
    processor: &'static str,
    transport: &'static str,
    endpoint: String,
    singleton: bool,
    settings: &'static str,
    #[serde(rename = "crate")]
    krate: &'static str,
    file: &'static str,
    line: u32,
}

impl Line {
    fn new(processor: &Processor) -> Self {
        Line {
            processor: processor.name,
            transport: processor.transport,
            endpoint: processor.endpoint.to_string(),
            singleton: processor.singleton,
            settings: processor.settings_name,
            krate: processor.krate,
            file: processor.file,
            line: processor.line,
        }
    }
}

impl Record for Line {
    const COLUMNS: &'static [&'static str] =
        &["PROCESSOR", "TRANSPORT", "ENDPOINT", "RUNS", "SETTINGS", "CRATE", "AT"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.processor.to_owned(),
            self.transport.to_owned(),
            self.endpoint.clone(),
            if self.singleton { "singleton" } else { "everywhere" }.to_owned(),
            self.settings.to_owned(),
            self.krate.to_owned(),
            format!("{}:{}", self.file, self.line),
        ]
    }
}

pub(super) fn run(options: &Options, output: &mut Output<'_>) -> Result<()> {
    Host::builder().config(options.host()?).build()?;
    let mut listing = Listing::new(output);
    registry::processors().iter().try_for_each(|processor| listing.add(&Line::new(processor)))?;
    listing.end("no processors")?;
    output.say("the wiring fits together")
}
