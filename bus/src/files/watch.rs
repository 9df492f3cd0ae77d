//! Being told when a file in a directory is written to, by whatever process of this machine: inotify.

use std::io;
use std::path::Path;

/// Tells which of a directory's files are written to, until it is dropped or the directory is gone.
#[derive(Debug)]
pub(crate) struct DirectoryWatch {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    _inotify: inotify::Watch,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl DirectoryWatch {
    /// Calls `tell` with the name of each file that is written to, on a thread of its own; with `None` if events were
    /// missed.
    ///
    /// # Errors
    /// If the system has no more inotify instances for this user (`fs.inotify.max_user_instances`).
    pub(crate) fn start(
        directory: &Path,
        thread: &str,
        tell: impl FnMut(Option<&str>) + Send + 'static,
    ) -> io::Result<Self> {
        Ok(DirectoryWatch { _inotify: inotify::Watch::start(directory, thread, tell)? })
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl DirectoryWatch {
    /// There is no inotify here: whoever wants to know has to look.
    pub(crate) fn start(
        _directory: &Path,
        _thread: &str,
        _tell: impl FnMut(Option<&str>) + Send + 'static,
    ) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod inotify {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;

    #[derive(Debug)]
    pub(super) struct Watch {
        fd: Arc<OwnedFd>,
        number: i32,
    }

    impl Watch {
        pub(super) fn start(
            directory: &Path,
            thread: &str,
            mut tell: impl FnMut(Option<&str>) + Send + 'static,
        ) -> io::Result<Self> {
            let fd = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
            let number = inotify::add_watch(&fd, directory, WatchFlags::MODIFY)?;
            let watch = Watch { fd: Arc::clone(&fd), number };
            thread::Builder::new().name(thread.to_owned()).spawn(move || read(&fd, &mut tell))?;
            Ok(watch)
        }
    }

    impl Drop for Watch {
        fn drop(&mut self) {
            // Wakes the thread with its last event. Fails only if the directory is gone, and with it the watch.
            let _ = inotify::remove_watch(&*self.fd, self.number);
        }
    }

    fn read(fd: &OwnedFd, tell: &mut impl FnMut(Option<&str>)) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => return tell(None),
                Ok(event) => tell(event.file_name().and_then(|name| name.to_str().ok())),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::fs;
        use std::sync::mpsc;
        use std::time::Duration;

        use super::*;

        #[test]
        fn it_tells_what_is_written_to_and_ends_when_it_is_dropped() {
            let directory = std::env::temp_dir().join(format!("bus-watch-{}", uuid::Uuid::new_v4()));
            fs::create_dir(&directory).unwrap();
            let (told, hear) = mpsc::channel();
            let watch = Watch::start(&directory, "test", move |name| {
                let _ = told.send(name.map(str::to_owned));
            })
            .unwrap();
            fs::write(directory.join("a"), "!").unwrap();
            assert_eq!(hear.recv_timeout(Duration::from_secs(20)), Ok(Some("a".to_owned())));
            drop(watch);
            // Whatever is still told: at last the thread ends, and with it its end of the channel.
            while hear.recv_timeout(Duration::from_secs(20)) != Err(mpsc::RecvTimeoutError::Disconnected) {}
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
