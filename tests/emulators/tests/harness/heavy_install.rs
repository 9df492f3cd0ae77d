//! Installing: once for all, again after a failure, and with a word where it cannot be.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bus_emulators::{Azurite, or_skip};

use crate::heavy_azurite::is_gone_soon;
use crate::http::ask;

/// Runs Azurite for a moment, with its own folder for emulators.
fn azurite(folder: &Path, path: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azurite"));
    command.env("BUS_EMULATORS_DIR", folder.join("emulators")).env("PATH", path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A `npm` that counts its calls, fails once, and then takes what the real one has installed before.
fn counting_npm(folder: &Path) -> String {
    let script = format!(
        "#!/bin/sh\ncd {0} && echo call >> calls && if rm fail 2>/dev/null; then echo no such registry >&2; exit 1; fi\n\
         cp --recursive --link {1}/node_modules \"$OLDPWD\"\n",
        folder.display(),
        installed().display()
    );
    let npm = folder.join("npm");
    fs::write(folder.join("fail"), "").unwrap();
    fs::write(&npm, script).unwrap();
    fs::set_permissions(&npm, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Where Azurite has been installed, as it is pinned now.
fn installed() -> PathBuf {
    let default = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("emulators");
    let emulators = std::env::var_os("BUS_EMULATORS_DIR").map_or(default, PathBuf::from);
    let pinned = include_str!("../../azurite/package-lock.json");
    let is_pinned = |folder: &PathBuf| {
        let complete = folder.extension().is_none() && folder.join("node_modules/azurite").exists();
        complete && fs::read_to_string(folder.join("package-lock.json")).is_ok_and(|lock| lock == pinned)
    };
    let mut folders = fs::read_dir(&emulators).unwrap().map(|entry| entry.unwrap().path());
    folders.find(is_pinned).expect("Azurite is installed")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn many_processes_install_once_share_one_and_the_last_ends_it() {
    if or_skip(Azurite::shared()).is_none() {
        return;
    }
    // On the file system of what is installed, which is linked.
    let folder = tempfile::tempdir_in(installed().parent().unwrap()).unwrap();
    let path = counting_npm(folder.path());
    let failed = azurite(folder.path(), &path).output().unwrap();
    assert!(!failed.status.success());
    assert!(
        said(&failed).contains("npm ci") && said(&failed).contains("no such registry"),
        "{}",
        said(&failed)
    );

    let start = || azurite(folder.path(), &path).arg("--shared").stdin(Stdio::piped()).spawn().unwrap();
    let mut many: Vec<Child> = (0..3).map(|_| start()).collect();
    let endpoints: Vec<String> = many.iter_mut().map(endpoint).collect();
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 2, "one that failed, and one for all three");
    assert!(endpoints.iter().all(|endpoint| *endpoint == endpoints[0]), "{endpoints:?}");

    // Whoever started it goes, one is killed, and the third still has it; so does one that comes before it ends.
    for child in &mut many[..2] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(ask("GET", &endpoints[0]).is_ok());
    // Waiting closes standard input, which ends it.
    many[2].wait().unwrap();
    let mut late = start();
    assert_eq!(endpoint(&mut late), endpoints[0]);
    late.wait().unwrap();
    is_gone_soon(&endpoints[0]);

    let mut new = start();
    let another = endpoint(&mut new);
    assert!(ask("GET", &another).is_ok(), "another one is started after that");
    folder.close().unwrap();
    new.wait().unwrap();
    // It ends, although the folder is gone by which it was found.
    is_gone_soon(&another);
}

/// Where a process says that its Azurite answers.
fn endpoint(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (_, rest) = line.split_once("BlobEndpoint=").unwrap();
    rest.split(';').next().unwrap().to_owned()
}

#[test]
fn without_node_it_is_said_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let output = azurite(folder.path(), "").output().unwrap();
    assert!(!output.status.success());
    assert!(said(&output).contains("node cannot be run"), "{}", said(&output));
    assert!(said(&output).contains("Install Node.js"), "{}", said(&output));
    assert!(!folder.path().join("emulators").exists());
}
