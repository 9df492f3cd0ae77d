//! The tool, over stores in memory: what it answers, what it does, and what it never shows.

#[path = "cli/blind.rs"]
mod blind;
#[path = "cli/dead.rs"]
mod dead;
#[path = "cli/mounted.rs"]
mod mounted;
#[path = "cli/store.rs"]
mod store;
#[path = "cli/stores.rs"]
mod stores;
#[path = "cli/subscription.rs"]
mod subscription;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/views.rs"]
mod views;

use std::io::Write;

use bus::ErrorKind;
use bus::cli::cli_from;
use serde_json::Value;

#[derive(serde::Serialize, serde::Deserialize, bus::Command)]
#[command(queue = "imports")]
struct Import;

#[bus::processor(singleton)]
async fn import(_import: Import) -> bus::Result<()> {
    Ok(())
}

/// What the tool has written, and whether it failed.
struct Answer {
    text: String,
    error: Option<bus::Error>,
}

impl Answer {
    fn succeeded(self) -> String {
        match self.error {
            None => self.text,
            Some(error) => panic!("{error:?}\nafter:\n{}", self.text),
        }
    }

    /// What it wrote before it failed, the kind of failure, and its whole report.
    fn failed(self) -> (String, ErrorKind, String) {
        match self.error {
            Some(error) => (self.text, error.kind(), format!("{error:?}")),
            None => panic!("did not fail, but wrote:\n{}", self.text),
        }
    }

    fn objects(self) -> Vec<Value> {
        self.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn bus(args: &[&str]) -> Answer {
    let mut out = Vec::new();
    let error = cli_from(["bus"].iter().chain(args).copied(), &mut out).await.err();
    Answer { text: String::from_utf8(out).unwrap(), error }
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}
