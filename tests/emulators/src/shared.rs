//! One Azurite for all processes that use one build directory: a test runner may give each test a process of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::azurite::{Content, command};
use crate::error::{Doing, Result};
use crate::install;
use crate::process::until_said;
use crate::storage::Storage;

/// Runs a program until nobody uses it any more, and a little longer, since the next test may be about to start.
///
/// `$1` is the file that everybody who uses it has locked; it stays open, so that nothing changes when the build
/// directory is removed. `$2` is the log, which shows newcomers where the program answers: hence it is removed in the
/// moment in which nobody can come, before the program is ended.
const HOST: &str = r#"
users=$1 log=$2
shift 2
"$@" </dev/null >"$log" 2>&1 &
exec 9<"$users"
while kill -0 $! 2>/dev/null; do
    flock --exclusive 9
    flock --unlock 9
    sleep 5
    if flock --exclusive --nonblock 9; then
        rm -f "$log"
        kill -KILL $!
        exit
    fi
done
"#;

/// The shared Azurite, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) storage: Storage,
    /// Locked, together with all others who use it. The system unlocks it, however a process ends.
    _users: File,
}

impl Shared {
    /// Joins the one that runs, or starts it.
    pub(crate) fn join() -> Result<Shared> {
        let azurite = install::azurite()?;
        let folder = azurite.folder.with_extension("shared");
        fs::create_dir_all(&folder).doing(format_args!("cannot make {}", folder.display()))?;
        let open = |name| {
            let path = folder.join(name);
            File::create(&path).doing(format_args!("cannot open {}", path.display()))
        };
        let (users, starting) = (open("users.lock")?, open("start.lock")?);
        users.lock_shared().doing("cannot join those who share an Azurite")?;
        starting.lock().doing("cannot wait for another process that starts an Azurite")?;
        let log = folder.join("azurite.log");
        let running = fs::read_to_string(&log).ok().and_then(|said| Storage::said(&said));
        let storage = match running.filter(Storage::answers) {
            Some(storage) => storage,
            None => start(&azurite.program, &folder, &log)?,
        };
        Ok(Shared { storage, _users: users })
    }
}

fn start(program: &Path, folder: &Path, log: &Path) -> Result<Storage> {
    // What another one has said that is no more.
    let _ = fs::remove_file(log);
    let azurite = command(program, &Content::InMemory, [0; 3]);
    let mut host = Command::new("sh");
    host.args(["-c", HOST, "sh"]).arg(folder.join("users.lock")).arg(log);
    host.arg(azurite.get_program()).args(azurite.get_args());
    host.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It outlives this process, as long as there are others.
    host.process_group(0);
    let mut host = host.spawn().doing("cannot start sh, to host a shared Azurite")?;
    let ended = || host.try_wait().doing("a child cannot be waited for");
    until_said(log, "the shared Azurite does not start", Storage::said, ended)
}
