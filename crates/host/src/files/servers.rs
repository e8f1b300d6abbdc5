//! File systems that a user serves, who may not be trusted.
//!
//! A user may mount a FUSE server on a directory or a file that belongs to that user. With
//! `user_allow_other` in `/etc/fuse.conf`, its files are open to other users. The server says to
//! whom its files belong: to root, or to the user who looks. So the owner of a file means something
//! only where a trusted user serves the file system.
//!
//! The checks send no request to the server, which may never answer.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, fstatfs, open, openat,
    openat2, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::below::mount_table::{is_taken_off, mount_of};
use crate::files::fuse::is_fuse;
use crate::files::trust::Trust;

impl Trust {
    /// Refuses what is on a FUSE file system that another user serves. The descriptor may be one of
    /// `O_PATH`.
    ///
    /// A mount that was taken off after the file was opened is refused, too: who served it cannot
    /// be told any more.
    pub(crate) fn check_server(self, opened: impl AsFd) -> io::Result<()> {
        let Some(mount) = mount_of(&opened) else {
            let why = "is on a file system that the mount table does not show: it was unmounted \
                       meanwhile, or is of another mount namespace (nsenter -m)";
            return match is_taken_off(opened)? {
                true => Err(Error::new(ErrorKind::PermissionDenied, why)),
                false => Ok(()),
            };
        };
        let Some(user) = mount.user().filter(|user| *user != 0 && !self.has(*user)) else {
            return Ok(());
        };
        let (kind, dir) = (mount.kind, mount.dir.display());
        let why = format!(
            "is on a file system that user {user} serves ({kind} on {dir}): that user says what it \
             holds, to whom it belongs, and whether it answers. Unmount it (umount {dir}), or name \
             another path"
        );
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }

    /// The same for the directory of a log. Refuses also a server that is mounted on the directory,
    /// if it is not root's or the own user's: the file system of the database, which its owner may
    /// serve, has answered, and this one may never answer.
    pub(super) fn check_place(self, opened: impl AsFd) -> io::Result<()> {
        let trust = if is_mounted_on(&opened) { Trust::own() } else { self };
        trust.check_server(opened)
    }

    /// Whether something is called `name` in the directory `path`. Only the server of the directory
    /// is asked. What [`Folder::open`](crate::Folder::open) refuses counts as if it had everything:
    /// a link, another file, a server of another user.
    pub fn may_hold(self, path: &Path, name: &str) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match open(path, flags, Mode::empty()) {
            Ok(opened) => self.check_place(&opened).is_err() || has_name(&opened, name),
            Err(errno) => !is_absent(errno),
        }
    }
}

/// Whether something is called `name` in an open directory: also a link, or a place on which
/// something is mounted, whose server is not asked.
pub fn has_name(directory: impl AsFd, name: &str) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_on_same_mount(directory, name, flags).map_or_else(|errno| !is_absent(errno), |_| true)
}

/// Whether an error says that nothing is there, for this user. Others, such as too many open files,
/// say nothing.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::ACCESS)
}

/// Whether a file system is mounted on an open directory. Before Linux 5.8 the kernel does not say
/// so.
fn is_mounted_on(opened: impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(opened, c"", flags, StatxFlags::empty()).is_ok_and(|found| is_root_of_mount(&found))
}

fn is_root_of_mount(found: &Statx) -> bool {
    found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// User and group of the process that serves the file system of an open file, if that is a user
/// other than root and the own one: what the file system says of users is the word of that user.
pub fn server_of(opened: impl AsFd) -> Option<(u32, u32)> {
    // A server may answer this with an error.
    if fstatfs(&opened).is_ok_and(|found| !is_fuse(&found)) {
        return None;
    }
    let mount = mount_of(opened)?;
    let user = mount.user().filter(|user| ![0, geteuid().as_raw()].contains(user))?;
    Some((user, mount.group().unwrap_or(user)))
}

/// Opens `name` in a directory. `EXDEV` if something is mounted there, which a user may have done
/// who owns what is below the mount. Before Linux 5.6, and where a filter of system calls forbids
/// `openat2`, it is looked at first.
pub(super) fn open_on_same_mount(
    directory: impl AsFd,
    name: &str,
    how: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::NO_XDEV;
    match openat2(&directory, name, how, Mode::empty(), within) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
            match statx(&directory, name, flags, StatxFlags::empty()) {
                Ok(found) if is_root_of_mount(&found) => Err(Errno::XDEV),
                _ => openat(&directory, name, how, Mode::empty()),
            }
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use onejournal_testing::{again_words, can_mount_fuse, has_namespaces};
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;
    use crate::access::Access;
    use crate::files::folder::Folder;

    const OTHER: u32 = 65_534;

    /// Runs an ignored test in a mount namespace of its own.
    fn in_namespace(test: &str) {
        if !has_namespaces() || !can_mount_fuse() {
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        let ran = command.args(again_words(module_path!(), test)).output().expect("unshare");
        assert!(ran.status.success(), "{ran:?}");
    }

    /// Mounts a server of the user that answers each request with an error, because it has ended.
    fn mount_server(place: &Path, mode: &str, user: u32) {
        mount_kind(OsStr::new("fuse"), place, mode, user);
    }

    fn mount_kind(kind: &OsStr, place: &Path, mode: &str, user: u32) {
        let server = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let number = std::os::fd::AsRawFd::as_raw_fd(&server);
        let data =
            format!("fd={number},rootmode={mode},user_id={user},group_id={user},allow_other");
        let data = std::ffi::CString::new(data).expect("text");
        mount("server", place, kind, MountFlags::empty(), data.as_c_str()).expect("mounted");
    }

    fn refusal<T>(result: io::Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    #[test]
    fn regression_a_server_of_another_user_is_refused() {
        in_namespace("server_of_another_user");
    }

    #[test]
    #[ignore = "in a namespace of the test above"]
    fn server_of_another_user() {
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        let (us, both) = (Trust::own(), Trust::own_and(OTHER, OTHER));
        for (name, user) in [("theirs", OTHER), ("ours", 0)] {
            fs::create_dir(at(name)).expect("made");
            mount_server(&at(name), "40700", user);
        }
        let served = "user 65534 serves (fuse on";
        assert!(refusal(Folder::open(&at("theirs"), us)).contains(served));
        assert!(refusal(Folder::open_or_make(&at("theirs"), 0o700, us)).contains(served));
        assert!(refusal(Folder::open(&at("theirs"), both)).contains(served));
        // The log of a database that the server of its owner holds.
        assert!(refusal(Folder::open(&at("theirs/log"), both)).contains("not connected"));
        assert!(refusal(Folder::open(&at("theirs/log"), us)).contains("not connected"));
        assert!(refusal(Folder::open(&at("ours"), us)).contains("not connected"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let server = |name: &str| server_of(open(at(name), flags, Mode::empty()).expect("there"));
        assert_eq!(server("theirs"), Some((OTHER, OTHER)));
        assert_eq!((server("ours"), server("")), (None, None));
        // A path that a file of that user names.
        for name in ["theirs", "theirs/log"] {
            assert!(refusal(Folder::found(&at(name), both)).contains(served), "{name}");
        }
        for name in ["ours", "ours/log"] {
            assert!(refusal(Folder::found(&at(name), both)).contains("not connected"), "{name}");
        }
        assert!(us.may_hold(&at("theirs"), "x") && both.may_hold(&at("theirs"), "x"));
        // A server that has ended does not say that nothing is there.
        assert!(us.may_hold(&at("ours"), "x") && !us.may_hold(&at("none"), "x"));
        // On the way to a file.
        symlink("theirs/file", at("link")).expect("made");
        for name in ["theirs/file", "theirs/..", "link"] {
            assert!(refusal(us.reach(&at(name))).contains(served), "{name}");
        }
        assert!(refusal(us.reach(&at("ours/file"))).contains("not connected"));
        let root = us.reach(&at("theirs")).expect("no server is asked");
        assert!(refusal(us.check_server(root)).contains(served));
        // A file of its own.
        fs::write(at("file"), "").expect("written");
        mount_server(&at("file"), "100600", OTHER);
        let opened = us.and_root().open(&at("file"), OFlags::RDONLY, Mode::empty());
        let why = opened.expect_err("refused").to_string();
        assert!(why.contains(served), "{why}");
        // It is there, and is not asked. A link is not followed.
        assert!(us.may_hold(home.path(), "link") && us.may_hold(&at("link"), "x"));
        assert!(!refusal(Folder::open(&at("file"), us)).contains("not connected"));
        assert!(us.may_hold(home.path(), "file") && !us.may_hold(home.path(), "other"));
        // Its type is no text.
        fs::create_dir(at("nameless")).expect("made");
        mount_kind(OsStr::from_bytes(b"fuse.\xff"), &at("nameless"), "40700", OTHER);
        // It is taken off after it was opened.
        let opened = open(at("nameless"), flags, Mode::empty()).expect("there");
        assert!(refusal(us.check_server(&opened)).contains("user 65534 serves"));
        unmount(at("nameless"), UnmountFlags::DETACH).expect("taken off");
        assert!(refusal(us.check_server(&opened)).contains("table does not show"));
        us.check_server(open("/", flags, Mode::empty()).expect("there")).expect("root's");
    }

    #[test]
    fn regression_too_many_open_files_do_not_mean_that_nothing_is_there() {
        onejournal_testing::own_process!();
        let home = tempfile::tempdir().expect("directory");
        let may_hold = || Trust::own().may_hold(home.path(), "x");
        assert!(!may_hold());
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), ..limit };
        setrlimit(Resource::Nofile, none).expect("lowered");
        let found = may_hold();
        setrlimit(Resource::Nofile, limit).expect("raised");
        assert!(found);
    }

    #[test]
    fn regression_a_mount_inside_a_directory_is_refused() {
        in_namespace("mount_inside_a_directory");
    }

    #[test]
    #[ignore = "in a namespace of the test above"]
    fn mount_inside_a_directory() {
        let home = tempfile::tempdir().expect("directory");
        let (folder, _) =
            Folder::open_or_make(&home.path().join("log"), 0o700, Trust::own()).expect("made");
        folder.new_file("file", 0o600).expect("made");
        folder.new_file("other", 0o600).expect("made");
        folder.open_or_make_folder("inner", 0o700).expect("made");
        mount("none", folder.at("inner"), "tmpfs", MountFlags::empty(), c"mode=700")
            .expect("mount");
        mount_bind(folder.at("other"), folder.at("file")).expect("mount");
        let other = "on another mount";
        assert!(refusal(folder.folder("inner")).contains(other));
        assert!(refusal(folder.open_or_make_folder("inner", 0o700)).contains(other));
        assert!(refusal(folder.file("file", Access::ReadOnly)).contains(other));
        assert!(refusal(folder.stat("file")).contains(other));
        assert!(refusal(folder.open_or_make_file("file", 0o600)).contains(other));
        folder.file("other", Access::ReadWrite).expect("not mounted there");
        // The first directory is the caller's choice: a volume of a container, for example.
        Folder::open(&folder.at("inner"), Trust::own()).expect("named");
    }
}
