//! Faults of the system beneath a process, by libraries that are loaded before all others: `shims/*.c`, compiled by
//! whichever test needs them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{Setup, Site};
use crate::skip::not_run;

/// The path of a file in `shims`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shims").join(name)
}

/// Compiles `shims/<name>.c`; `None` where there is no C compiler.
fn compile(name: &str, site: &Site) -> Option<PathBuf> {
    compile_with(name, site, &["-ldl"])
}

/// The same with other arguments for the linker.
fn compile_with(name: &str, site: &Site, linking: &[&str]) -> Option<PathBuf> {
    let (source, library) = (source(&format!("{name}.c")), site.path(&format!("{name}.so")));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    match cc.arg(&library).arg(&source).args(linking).output() {
        Ok(output) if output.status.success() => Some(library),
        Ok(output) => panic!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr)),
        Err(e) => {
            not_run(format_args!("no C compiler: {e}"));
            None
        }
    }
}

/// Writes a file in one step, so that nobody reads half of it.
fn write_whole(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a file");
    fs::rename(&new, path).expect("a file");
}

/// A disk that can fail, beneath a store's files: `shims/disk.c`.
#[derive(Debug)]
pub struct Disk {
    library: PathBuf,
    says: PathBuf,
    eio: PathBuf,
    loss: PathBuf,
}

impl Disk {
    /// For the processes of a site, one at a time; `None` where there is no C compiler.
    pub fn new(site: &Site) -> Option<Disk> {
        let library = compile("disk", site)?;
        let (says, eio, loss) = (site.path("disk.says"), site.path("disk.eio"), site.path("disk.loss"));
        Some(Disk { library, says, eio, loss })
    }

    /// Puts a process that is about to be started on this disk. `keeps` is 0 if nothing has reached the disk that was not
    /// flushed, else the seed by which some pages have.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>, keeps: u32) -> Setup<'s> {
        setup
            .env("LD_PRELOAD", self.library.display().to_string())
            .env("BUS_TEST_DISK", "bus.db")
            .env("BUS_TEST_DISK_SAYS", self.says.display().to_string())
            .env("BUS_TEST_DISK_EIO", self.eio.display().to_string())
            .env("BUS_TEST_DISK_LOSS", self.loss.display().to_string())
            .env("BUS_TEST_DISK_KEEPS", keeps.to_string())
    }

    /// The same; the power is lost at this write or flush, counted from 1.
    #[must_use]
    pub fn under_until<'s>(&self, setup: Setup<'s>, keeps: u32, loss: u32) -> Setup<'s> {
        self.under(setup, keeps).env("BUS_TEST_DISK_LOSS", loss.to_string())
    }

    /// The next flushes fail, so many of them.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn fail_times(&self, flushes: u32) {
        write_whole(&self.eio, &flushes.to_string());
    }

    /// All flushes fail from now on.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn fail(&self) {
        write_whole(&self.eio, "always");
    }

    /// Flushes work again.
    ///
    /// # Panics
    /// If a file cannot be removed.
    pub fn mend(&self) {
        fs::remove_file(&self.eio).expect("it has failed until now");
    }

    /// The power is lost with the next write or flush.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn lose_power(&self) {
        fs::write(&self.loss, "").expect("a file");
    }

    /// How many flushes have failed.
    pub fn failures(&self) -> usize {
        self.said().lines().filter(|line| line.starts_with("flush failed")).count()
    }

    /// How many pages were lost when the power was; `None` if it was not.
    pub fn lost_pages(&self) -> Option<u64> {
        self.said().lines().find_map(|line| line.strip_prefix("power lost, pages: ")?.parse().ok())
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.says).unwrap_or_default()
    }
}

/// The exit code of a process whose power was lost.
pub const POWER_LOST: i32 = 99;

/// A wall clock that can be put forward and back, for all processes of a site: `shims/clock.c`.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// One that is right; `None` where there is no C compiler.
    pub fn new(site: &Site) -> Option<WallClock> {
        let clock = WallClock { library: compile("clock", site)?, offset: site.path("clock.offset") };
        clock.set(0);
        Some(clock)
    }

    /// Gives this clock to a process that is about to be started.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>) -> Setup<'s> {
        setup
            .env("LD_PRELOAD", self.library.display().to_string())
            .env("BUS_TEST_CLOCK_OFFSET", self.offset.display().to_string())
    }

    /// Sets it so many seconds before or behind the true time.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn set(&self, seconds: i64) {
        write_whole(&self.offset, &seconds.to_string());
    }
}

/// A wall clock that can be put forward and back, for programs in Go, which ask no library for the time: `shims/go_clock.c`.
#[derive(Debug)]
pub struct GoClock {
    library: PathBuf,
    vdso: PathBuf,
    offset: PathBuf,
    _site: Site,
}

impl GoClock {
    /// One that is right; `None` where there is no C compiler, or another processor than what it is written for.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn new() -> Option<GoClock> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            not_run("no clock for programs in Go but on Linux on x86-64");
            return None;
        }
        let site = Site::new();
        let script = format!("-Wl,-T,{}", source("vdso.lds").display());
        let image = [
            "-nostdlib",
            &script,
            "-Wl,-soname,linux-vdso.so.1",
            "-Wl,--hash-style=both",
            "-Wl,--build-id=none",
        ];
        let (library, vdso) = (compile("go_clock", &site)?, compile_with("vdso", &site, &image)?);
        let clock = GoClock { library, vdso, offset: site.path("go_clock.offset"), _site: site };
        clock.set(0);
        Some(clock)
    }

    /// What a process has to find in its environment that is to go by this clock.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("BUS_TEST_VDSO", self.vdso.clone()),
            ("BUS_TEST_CLOCK_OFFSET", self.offset.clone()),
        ]
    }

    /// Sets it so many seconds before or behind the true time.
    ///
    /// # Panics
    /// If the file cannot be written, in whose place no other may come.
    pub fn set(&self, seconds: i64) {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.offset)
            .expect("a file");
        file.write_all(&seconds.to_ne_bytes()).expect("a file");
    }
}

/// A machine beside this one, or a container that is shown a boot id of its own, for the processes that are put onto it:
/// `shims/machine.c`. They share the files of the site.
#[derive(Debug)]
pub struct Machine {
    library: PathBuf,
    id: PathBuf,
    ahead: Option<Ahead>,
}

impl Machine {
    /// One that tells no boot id; `None` where there is no C compiler.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn without_boot_id(site: &Site) -> Option<Machine> {
        let machine = Machine::new(site, "nameless")?;
        write_whole(&machine.id, "");
        Some(machine)
    }

    /// One of that name; `None` where there is no C compiler.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn new(site: &Site, name: &str) -> Option<Machine> {
        let (library, id) = (compile("machine", site)?, site.path(&format!("{name}.boot")));
        let machine = Machine { library, id, ahead: None };
        write_whole(&machine.id, &format!("boot-of-{name}\n"));
        Some(machine)
    }

    /// The same, which has been up for so many seconds longer than this one, where there are time namespaces.
    #[must_use]
    pub fn up_longer_by(mut self, seconds: u32) -> Machine {
        self.ahead = Ahead::by(seconds);
        self
    }

    /// Puts a process that is about to be started onto this machine.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>) -> Setup<'s> {
        let setup = match self.ahead {
            Some(ahead) => ahead.under(setup),
            None => setup,
        };
        setup
            .env("LD_PRELOAD", self.library.display().to_string())
            .env("BUS_TEST_BOOT_ID", self.id.display().to_string())
    }
}

/// A boot clock that is ahead of the machine's, whose boot id is the same: a time namespace.
#[derive(Clone, Copy, Debug)]
pub struct Ahead(u32);

impl Ahead {
    /// By so many seconds; `None` where we may make no time namespaces.
    pub fn by(seconds: u32) -> Option<Ahead> {
        let output = Command::new("unshare").args(["-rT", "true"]).output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(Ahead(seconds));
        }
        not_run("no time namespaces (unshare -rT)");
        None
    }

    /// Gives this clock to a process that is about to be started.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>) -> Setup<'s> {
        setup.through("unshare", &["-rT", "--boottime", &self.0.to_string()])
    }
}

/// A file system without hard links, for the processes that are put onto it: `shims/links.c`.
#[derive(Debug)]
pub struct NoLinks {
    library: PathBuf,
    says: PathBuf,
}

impl NoLinks {
    /// For the processes of a site; `None` where there is no C compiler.
    pub fn new(site: &Site) -> Option<NoLinks> {
        Some(NoLinks { library: compile("links", site)?, says: site.path("links.says") })
    }

    /// Puts a process that is about to be started onto it.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>) -> Setup<'s> {
        setup
            .env("LD_PRELOAD", self.library.display().to_string())
            .env("BUS_TEST_LINKS_SAYS", self.says.display().to_string())
    }

    /// How many links it has refused.
    pub fn refused(&self) -> usize {
        fs::read_to_string(&self.says).unwrap_or_default().lines().count()
    }
}

/// A file system that hangs for some files, for the processes that are put onto it: `shims/hang.c`.
#[derive(Debug)]
pub struct Hang {
    library: PathBuf,
    on: PathBuf,
    says: PathBuf,
    files: String,
}

impl Hang {
    /// For files whose path contains `files`; `None` where there is no C compiler.
    pub fn new(site: &Site, files: &str) -> Option<Hang> {
        let (on, says) = (site.path("hang.on"), site.path("hang.says"));
        Some(Hang { library: compile("hang", site)?, on, says, files: files.to_owned() })
    }

    /// Puts a process that is about to be started onto it.
    #[must_use]
    pub fn under<'s>(&self, setup: Setup<'s>) -> Setup<'s> {
        setup
            .env("LD_PRELOAD", self.library.display().to_string())
            .env("BUS_TEST_HANG", &self.files)
            .env("BUS_TEST_HANG_ON", self.on.display().to_string())
            .env("BUS_TEST_HANG_SAYS", self.says.display().to_string())
    }

    /// Flushes of these files hang from now on.
    ///
    /// # Panics
    /// If no file can be written.
    pub fn begin(&self) {
        fs::write(&self.on, "").expect("a file");
    }

    /// They go on.
    ///
    /// # Panics
    /// If they did not hang.
    pub fn end(&self) {
        fs::remove_file(&self.on).expect("it has hung until now");
    }

    /// How many calls have hung so far.
    pub fn calls(&self) -> usize {
        fs::read_to_string(&self.says).unwrap_or_default().lines().count()
    }
}
