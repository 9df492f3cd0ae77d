//! On which kind of file system a directory lies, and whether locks in it reach as far as they are to.
//!
//! What the system tells of its mounts is all there is to go by. It is looked at once, when the locks are opened.

use std::path::Path;

use super::error::error;
use crate::contract::Reach;
use crate::error::{ErrorKind, Result};

/// A layer over others: of one machine, and mostly of one container.
const LAYER: &str = "overlay";
/// File systems on disks and in memory of one machine.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "msdos", "ntfs3", LAYER, "ramfs",
    "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
];
/// File systems in which a file is not known again: its number is made up whenever the system has forgotten it.
const WITHOUT_NUMBERS: &[&str] = &["exfat", "msdos", "vfat"];
/// File systems of several machines whose file locks all of them see.
const SHARED: &[&str] =
    &["beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3"];
/// Options by which locks stay on the machine on which they are taken.
const LOCKS_STAY_HERE: &[&str] =
    &["nolock", "nobrl", "local_lock=all", "local_lock=flock", "noflock", "localflock"];

/// What the system says of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    kind: String,
    options: Vec<String>,
}

/// What is to be said of a directory, and whether it will do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Doubtful(&'static str),
    Unsafe(&'static str),
}

impl FileSystem {
    /// That of a directory, given by its absolute path; `None` where the system does not tell.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        // A mount of any name is no reason to know nothing of the others.
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        FileSystem::find(&String::from_utf8_lossy(&mounts), directory)
    }

    /// The mount under which the directory lies, in what `mountinfo` says: of those whose path it begins with the longest,
    /// and of several there the one that was mounted last.
    fn find(mounts: &str, directory: &Path) -> Option<Self> {
        let mounts = mounts.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(4);
            let (point, here) = (unescape(before.next()?), before.next()?);
            let mut after = after.split(' ');
            let (kind, whole) = (after.next()?, after.nth(1).unwrap_or_default());
            let options = here.split(',').chain(whole.split(',')).map(str::to_owned).collect();
            directory
                .starts_with(&point)
                .then(|| (point.len(), FileSystem { kind: kind.to_owned(), options }))
        });
        mounts.max_by_key(|(length, _)| *length).map(|(_, found)| found)
    }

    /// Whether it is of one machine for certain.
    pub(super) fn is_local(&self) -> bool {
        LOCAL.contains(&self.kind.as_str())
    }

    fn judge(&self, reach: Reach) -> Verdict {
        let kind = self.kind.as_str();
        let stays_here = self.options.iter().any(|option| LOCKS_STAY_HERE.contains(&option.as_str()));
        match reach {
            Reach::Fleet if self.is_local() => Verdict::Unsafe(
                "no other machine has this file system; where it is exported to others, the locks of this machine and theirs do not see each other",
            ),
            Reach::Fleet if stays_here => Verdict::Unsafe(
                "it is mounted so that locks stay on the machine on which they are taken (nolock, local_lock, nobrl): mount it without",
            ),
            Reach::Fleet if SHARED.contains(&kind) => Verdict::Fine,
            Reach::Fleet => {
                Verdict::Unsafe("it is not known to make locks on one machine seen by the others")
            }
            _ if WITHOUT_NUMBERS.contains(&kind) => Verdict::Unsafe(
                "it does not know a file again by its number, so that a lock's file seems to have been replaced now and then, and its holder has lost",
            ),
            _ if kind == LAYER => Verdict::Doubtful(
                "it is a layer of one container, which no other container shares: mount a directory of the machine",
            ),
            _ if self.is_local() => Verdict::Fine,
            _ if SHARED.contains(&kind) => Verdict::Doubtful(
                "other machines may have it too, and they are not kept apart: if there are any, write reach=fleet",
            ),
            _ => Verdict::Doubtful("it is not known to lock files as a disk does"),
        }
    }
}

/// Refuses a directory in which locks would not reach so far, and warns where that cannot be told.
///
/// # Errors
/// [`ErrorKind::Unsupported`], naming the file system and why it will not do.
pub(super) fn check(directory: &Path, found: Option<&FileSystem>, reach: Reach, any: bool) -> Result<()> {
    let unknown = Verdict::Doubtful("this system does not tell on which file system it lies");
    let verdict = found.map_or(unknown, |found| found.judge(reach));
    let kind = found.map_or("unknown", |found| found.kind.as_str());
    match verdict {
        Verdict::Fine => Ok(()),
        Verdict::Doubtful(why) => {
            tracing::warn!(directory = %directory.display(), file_system = kind, %reach, "the locks' directory: {why}");
            Ok(())
        }
        Verdict::Unsafe(why) if any => {
            tracing::warn!(directory = %directory.display(), file_system = kind, %reach, "file_system=any, although: {why}");
            Ok(())
        }
        Verdict::Unsafe(why) => Err(error(
            ErrorKind::Unsupported,
            format!(
                "locks in this directory {}: {why} (file_system=any goes on all the same)",
                match reach {
                    Reach::Fleet => "do not reach a fleet",
                    _ => "cannot be relied on",
                },
            ),
        )
        .with("directory", directory.display())
        .with("file_system", kind)),
    }
}

/// A path as `mountinfo` writes it: `\040` for a space.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(char::from(byte));
                path.push_str(part.get(3..).unwrap_or_default());
            }
            None => path.push_str(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = r"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /tmp rw,nosuid shared:2 - tmpfs tmpfs rw,size=65536k
31 22 0:50 / /mnt rw,relatime - nfs4 filer:/locks rw,vers=4.2,local_lock=none
32 31 0:51 / /mnt/old\040ones rw,relatime - nfs filer:/old rw,vers=3,nolock,local_lock=all
33 22 0:52 / /over rw - ext4 /dev/sdb rw
34 33 0:53 / /over rw - fuse.sshfs me@there: rw,user_id=0
35 22 0:54 / /layer rw,relatime - overlay overlay rw,lowerdir=/a
36 22 0:55 / /shares ro - cifs //filer/x rw,nobrl
37 22 8:33 / /stick rw,relatime - vfat /dev/sdc1 rw
";

    fn at(directory: &str) -> FileSystem {
        FileSystem::find(MOUNTS, Path::new(directory)).unwrap()
    }

    #[test]
    fn a_directory_lies_on_the_innermost_and_last_mount() {
        for (directory, kind) in [
            ("/", "ext4"),
            ("/srv/locks", "ext4"),
            ("/tmp/x", "tmpfs"),
            ("/tmpx", "ext4"),
            ("/mnt/locks", "nfs4"),
            ("/mnt/old ones/locks", "nfs"),
            ("/over/x", "fuse.sshfs"),
        ] {
            assert_eq!(at(directory).kind, kind, "{directory}");
        }
        assert_eq!(FileSystem::find("", Path::new("/")), None);
    }

    #[test]
    fn locks_reach_no_further_than_their_file_system() {
        let is_unsafe = |directory, reach| matches!(at(directory).judge(reach), Verdict::Unsafe(_));
        for directory in ["/srv", "/tmp", "/mnt/old ones", "/over", "/layer", "/shares"] {
            assert!(is_unsafe(directory, Reach::Fleet), "{directory}");
            assert!(!is_unsafe(directory, Reach::Machine), "{directory}");
        }
        assert!(is_unsafe("/stick", Reach::Machine) && is_unsafe("/stick", Reach::Fleet));
        assert_eq!(at("/mnt").judge(Reach::Fleet), Verdict::Fine);
        assert_eq!(at("/srv").judge(Reach::Machine), Verdict::Fine);
        assert!(matches!(at("/mnt").judge(Reach::Machine), Verdict::Doubtful(_)));
        assert!(matches!(at("/layer").judge(Reach::Machine), Verdict::Doubtful(_)));
    }

    #[test]
    fn an_unsafe_one_is_refused_unless_it_is_to_be_any() {
        let (directory, found) = (Path::new("/srv"), at("/srv"));
        let refused = check(directory, Some(&found), Reach::Fleet, false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("ext4") && refused.to_string().contains("/srv"), "{refused}");
        check(directory, Some(&found), Reach::Fleet, true).unwrap();
        check(directory, None, Reach::Fleet, false).unwrap();
    }
}
