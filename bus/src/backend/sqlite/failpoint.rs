//! A fail point for demonstrations and tests: a program is called in the middle of each commit, and may stop there.

use std::fmt;
use std::sync::OnceLock;

type Hook = Box<dyn Fn() + Send + Sync>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// There is one hook in a process, and it is set already.
#[derive(Debug)]
pub struct AlreadySet;

impl fmt::Display for AlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fail point has its hook already")
    }
}

impl std::error::Error for AlreadySet {}

/// Has `hook` called in every transaction of this process that writes, on the thread that writes: after everything has
/// been written and before the commit, with the gate passed and SQLite's write lock held. Whoever stops there keeps
/// all processes waiting that share the file.
///
/// # Errors
/// [`AlreadySet`] the second time.
pub fn before_commit(hook: impl Fn() + Send + Sync + 'static) -> Result<(), AlreadySet> {
    HOOK.set(Box::new(hook)).map_err(|_| AlreadySet)
}

/// Called by the writer.
pub(super) fn reached() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}
