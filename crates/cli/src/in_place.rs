//! Acts on the mount at a path of the mount table, and on no other.
//!
//! A user who may rename a directory above a mount can exchange it for a symbolic link after the
//! table was read. The path then leads to another mount. So the working directory becomes the
//! directory above the mount, and the kernel says which path that has. From there the name alone
//! leads to the mount: the kernel refuses to rename or remove the directory of a mount. A user may
//! also mount a server that never answers above it: its path is not followed through such a server.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use host::Trust;
use mount::{MountError, MountOptions};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{fchdir, getcwd};

/// Unmounts the topmost mount on `dir`, a path of the mount table.
pub fn unmount(dir: &Path, lazily: bool) -> Result<(), MountError> {
    by_name(dir, |name| mount::unmount_here(name, lazily))
}

/// Changes the flags of the mount on `dir`, a path of the mount table, to those of `options`.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    by_name(dir, |name| mount::remount(name, options))
}

/// Calls `act` with the name of `dir` in the working directory.
fn by_name(
    dir: &Path,
    act: impl FnOnce(&Path) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return act(dir) };
    let failed = |errno: Errno| refused(dir, errno.to_string());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let before = rustix::fs::open(".", flags, Mode::empty()).map_err(failed)?;
    let directory = Trust::own().and_root().reach_trusted(parent);
    let directory = directory.map_err(|error| refused(dir, error.to_string()))?;
    fchdir(directory).map_err(failed)?;
    let acted = match getcwd(Vec::new()) {
        Ok(now) if now.as_bytes() == parent.as_os_str().as_bytes() => act(Path::new(name)),
        Ok(_) => Err(refused(dir, "a directory above it was renamed meanwhile; try again".into())),
        Err(errno) => Err(failed(errno)),
    };
    // Fails if the one before was on the mount that was taken off, or may not be entered. A path
    // that is relative to it leads nowhere then.
    let _ = fchdir(before);
    acted.map_err(|error| at(dir, error))
}

fn refused(dir: &Path, why: String) -> MountError {
    MountError::Directory { dir: dir.to_owned(), why }
}

/// The error with the whole path in place of the name.
fn at(dir: &Path, error: MountError) -> MountError {
    match error {
        MountError::MountBusy(_) => MountError::MountBusy(dir.to_owned()),
        MountError::Remount { errno, .. } => MountError::Remount { dir: dir.to_owned(), errno },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use onejournal_testing::{Need, can_mount_fuse, is_root, own_process, skip};
    use rustix::mount::{MountFlags, mount, mount_bind};

    use super::*;

    #[test]
    fn regression_a_mount_is_not_taken_off_through_a_link() {
        own_process!();
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        // As the mount table has it.
        let home = home.path().canonicalize().unwrap();
        let (theirs, other) = (home.join("theirs/mnt"), home.join("other/mnt"));
        for dir in [&theirs, &other] {
            fs::create_dir_all(dir).unwrap();
        }
        if mount_bind(&home, &other).is_err() {
            return skip(Need::Fuse, "may not mount");
        }
        let is_mounted = || other.join("other").exists();
        // The directory above is exchanged after the table was read.
        fs::rename(home.join("theirs"), home.join("moved")).unwrap();
        symlink(home.join("other"), home.join("theirs")).unwrap();
        let before = std::env::current_dir().unwrap();
        for lazily in [false, true] {
            let error = unmount(&theirs, lazily).unwrap_err().to_string();
            assert!(error.contains("theirs/mnt: a directory above it was renamed"), "{error}");
        }
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        remount(&theirs, &read_only).unwrap_err();
        fs::write(other.join("new"), "").unwrap();
        assert!(is_mounted());
        unmount(&other, false).unwrap();
        assert!(!is_mounted());
        let error = unmount(&other, false).unwrap_err();
        assert!(matches!(error, MountError::System { errno: Errno::INVAL, .. }), "{error}");
        assert_eq!(std::env::current_dir().unwrap(), before);
    }

    #[test]
    fn regression_a_server_above_a_mount_is_not_asked() {
        own_process!();
        if !is_root() || !can_mount_fuse() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (theirs, dir) = (home.join("theirs"), home.join("theirs/mnt"));
        fs::create_dir_all(&dir).unwrap();
        mount_bind(&home, &dir).unwrap();
        let server = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!(
            "fd={},rootmode=40755,user_id=65534,group_id=65534,allow_other",
            server.as_raw_fd()
        );
        let data = CString::new(data).unwrap();
        mount("silent", &theirs, "fuse", MountFlags::empty(), data.as_c_str()).unwrap();
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        for refused in [unmount(&dir, false), unmount(&dir, true), remount(&dir, &read_only)] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("theirs/mnt: is on a file system that user 65534"), "{error}");
        }
        unmount(&theirs, true).unwrap();
        unmount(&dir, false).unwrap();
    }
}
