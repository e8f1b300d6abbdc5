//! A mount of another user, which may say that it is a volume. Its server never answers.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::OTHER_USER;

/// Taken away with the value.
pub struct ClaimedMount {
    pub dir: PathBuf,
    _server: OwnedFd,
}

impl ClaimedMount {
    /// On `dir`, which is made if it is missing. Says that it serves `target`. The kernel refuses
    /// other users at once.
    pub fn new(target: &Path, dir: &Path) -> ClaimedMount {
        ClaimedMount::with(target, dir, "fuse.onejournal", "")
    }

    /// On `dir`, which is made if it is missing. Does not say that it is a volume, and lets all
    /// users wait for an answer.
    pub fn silent(dir: &Path) -> ClaimedMount {
        ClaimedMount::with(Path::new("none"), dir, "fuse", ",allow_other")
    }

    fn with(target: &Path, dir: &Path, kind: &str, option: &str) -> ClaimedMount {
        fs::create_dir_all(dir).unwrap();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let server = rustix::fs::open("/dev/fuse", flags, Mode::empty()).unwrap();
        let fd = server.as_raw_fd();
        let data =
            format!("fd={fd},rootmode=40000,user_id={OTHER_USER},group_id={OTHER_USER}{option}");
        let data = CString::new(data).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(target, dir, kind, flags, data.as_c_str()).unwrap();
        ClaimedMount { dir: dir.to_owned(), _server: server }
    }
}

impl Drop for ClaimedMount {
    fn drop(&mut self) {
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}
