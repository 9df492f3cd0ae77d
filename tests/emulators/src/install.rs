//! Installs the emulators that come from npm, once for all processes that use one build directory.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Doing, Error, Result};

const PACKAGE: &str = include_str!("../azurite/package.json");
const LOCK: &str = include_str!("../azurite/package-lock.json");

/// Names another folder to install to than the build directory.
const FOLDER_VARIABLE: &str = "BUS_EMULATORS_DIR";
/// Every cargo target directory has this file.
const TARGET_MARK: &str = "CACHEDIR.TAG";
/// The oldest Node.js that the pinned packages run on.
const OLDEST_NODE: u32 = 18;

/// An emulator that is there.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    /// Of its own; what stands beside it with another extension belongs to it.
    pub(crate) folder: PathBuf,
    /// Its main file.
    pub(crate) program: PathBuf,
}

/// Azurite as pinned. The first of all processes installs it, the others wait for that one.
///
/// # Errors
/// When Node.js is missing or too old, or npm cannot install: [`Error::is_unavailable`].
pub(crate) fn azurite() -> Result<Installed> {
    require_node()?;
    let emulators = folder()?;
    let folder = emulators.join(format!("azurite-{:016x}", fingerprint(&[PACKAGE, LOCK])));
    if !folder.exists() {
        install(&emulators, &folder)?;
    }
    let program = folder.join("node_modules/azurite/dist/src/azurite.js");
    Ok(Installed { folder, program })
}

/// The folder comes into being complete, so that whoever sees it can use it.
fn install(emulators: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(emulators).doing(format_args!("cannot make {}", emulators.display()))?;
    let guard = emulators.join("install.lock");
    let guard = File::create(&guard).doing(format_args!("cannot open {}", guard.display()))?;
    guard.lock().doing("cannot wait for another process that installs")?;
    if folder.exists() {
        return Ok(());
    }
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).doing(format_args!("cannot remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).doing(format_args!("cannot make {}", partial.display()))?;
    for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCK)] {
        fs::write(partial.join(name), text).doing(format_args!("cannot write {name}"))?;
    }
    run_npm(&partial)?;
    fs::rename(&partial, folder).doing(format_args!("cannot name {}", folder.display()))
}

fn run_npm(folder: &Path) -> Result<()> {
    let output = Command::new("npm")
        .args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::unavailable(format!("npm cannot be run: {error}. {}", what_to_install())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let from = said.len().saturating_sub(1_000);
    let last = said.get(from..).unwrap_or(&said);
    Err(Error::unavailable(format!("`npm ci` in {} ended with {}: {last}", folder.display(), output.status)))
}

fn require_node() -> Result<()> {
    let output =
        Command::new("node").arg("--version").stdin(Stdio::null()).output().map_err(|error| {
            Error::unavailable(format!("node cannot be run: {error}. {}", what_to_install()))
        })?;
    let version = String::from_utf8_lossy(&output.stdout);
    match major(&version) {
        Some(major) if major >= OLDEST_NODE => Ok(()),
        _ => Err(Error::unavailable(format!(
            "node says it is version `{}`. {}",
            version.trim(),
            what_to_install()
        ))),
    }
}

/// Of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn what_to_install() -> String {
    format!(
        "Install Node.js {OLDEST_NODE} or later with npm (https://nodejs.org; Debian: apt-get install nodejs npm)"
    )
}

/// The folder of all emulators: as told by [`FOLDER_VARIABLE`], else in the target directory of this very program.
fn folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    let program = env::current_exe().doing("this program does not know its own path")?;
    let target = program.ancestors().find(|folder| folder.join(TARGET_MARK).exists());
    target.map(|target| target.join("emulators")).ok_or_else(|| {
        let program = program.display();
        Error::unavailable(format!(
            "{program} is in no target directory of cargo: set {FOLDER_VARIABLE} to a folder for emulators"
        ))
    })
}

/// FNV-1a, so that every build of every compiler comes to the same name.
fn fingerprint(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_node_is_understood() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.20.2"), None);
        assert_eq!(major(""), None);
    }

    #[test]
    fn a_fingerprint_is_that_of_the_whole_text() {
        // The test vectors of FNV-1a.
        assert_eq!(fingerprint(&[""]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(&["foobar"]), 0x85944171f73967e8);
        assert_eq!(fingerprint(&["foo", "bar"]), fingerprint(&["foobar"]));
    }

    #[test]
    fn the_lock_file_names_no_registry() {
        assert!(LOCK.contains("\"integrity\"") && !LOCK.contains("\"resolved\""));
    }
}
