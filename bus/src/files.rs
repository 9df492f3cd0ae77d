//! What backends need that live in files: which file it is whatever its name, for whom it is made, and being told when
//! one is written to.

mod watch;

use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::path::Path;

pub(crate) use watch::DirectoryWatch;

/// Which file it is, whatever its name.
#[cfg(unix)]
pub(crate) fn number_of(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// Where files have no numbers, only whether there is one.
#[cfg(not(unix))]
pub(crate) fn number_of(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// Readable and writable for this user only.
#[cfg(unix)]
pub(crate) fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(not(unix))]
pub(crate) fn private(_options: &mut OpenOptions) {}

/// Makes a directory for this user only, unless there is one.
pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
