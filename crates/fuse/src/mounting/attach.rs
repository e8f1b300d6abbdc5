//! Mounting a FUSE file system on a directory, and unmounting it: by mount(2) as root, otherwise by
//! `fusermount3`, which is set-user-ID root and passes the opened `/dev/fuse` through a socket.

use std::ffi::{CString, OsString};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::{MountEntry, Trust, above_standard, link_to, own_mounts};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::error::MountError;
use crate::mounting::page_cache::READ_BYTES_MAX;
use crate::options::{MountOptions, Source};

const FUSERMOUNT: &str = "fusermount3";

/// What can unmount it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Helper {
    /// umount(2), by this process or an [`Unmounter`].
    Kernel,
    /// fusermount3.
    Fusermount,
}

/// Unmounts in a process of its own.
///
/// The end of a `fuseblk` mount waits for the answer to DESTROY, and nothing else ends the wait but
/// the closing of `/dev/fuse`. If a thread of the serving process unmounts and the process is
/// killed, that thread waits for ever: it keeps `/dev/fuse` open itself.
pub trait Unmounter: fmt::Debug + Send + Sync {
    /// Unmounts all mounts of the file system with the number `device` (major, minor) in the mount
    /// namespace of this process. `lazily`: also while programs use them.
    fn unmount(&self, device: (u32, u32), lazily: bool) -> Result<(), MountError>;
}

/// A mount, which any thread can unmount.
#[derive(Debug, Clone)]
pub struct MountHandle {
    dir: PathBuf,
    helper: Helper,
    /// Number of the file system. It differs from that of another one that is mounted there later.
    device: Option<(u32, u32)>,
    /// It was unmounted, or the kernel has ended it.
    is_over: Arc<AtomicBool>,
    unmounter: Option<Arc<dyn Unmounter>>,
}

impl MountHandle {
    fn new(dir: PathBuf, helper: Helper) -> MountHandle {
        let table = own_mounts().unwrap_or_default();
        let device = mount_on(&table, &dir).map(|entry| entry.device);
        MountHandle { dir, helper, device, is_over: Arc::default(), unmounter: None }
    }

    /// The mount on `dir` whose file system has this number, made by a process of this user.
    pub(crate) fn resumed(dir: PathBuf, device: Option<(u32, u32)>) -> MountHandle {
        let helper = match rustix::process::geteuid().is_root() {
            true => Helper::Kernel,
            false => Helper::Fusermount,
        };
        MountHandle { dir, helper, device, is_over: Arc::default(), unmounter: None }
    }

    /// The same mount. As root it is unmounted by `unmounter` instead of umount(2) in this process.
    pub fn unmounted_by(self, unmounter: Arc<dyn Unmounter>) -> MountHandle {
        MountHandle { unmounter: Some(unmounter), ..self }
    }

    /// The directory, without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Number of the file system (major, minor), if it is known.
    pub fn device(&self) -> Option<(u32, u32)> {
        self.device
    }

    /// Whether this file system is the one that is mounted on the directory now, as far as that can
    /// be known.
    pub fn is_mounted(&self) -> bool {
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        match (self.device, own_mounts()) {
            (Some(device), Ok(table)) => {
                mount_on(&table, &self.dir).is_some_and(|found| found.device == device)
            }
            _ => true,
        }
    }

    /// Notes that it is no longer mounted.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Unmounts. [`MountError::MountBusy`] while programs use the mount. [`crate::Connection::run`]
    /// then returns.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.unmount_with(false).inspect(|()| self.end())
    }

    /// Takes the mount out of the name space now. [`crate::Connection::run`] returns when no
    /// program uses it any more.
    pub fn unmount_lazily(&self) -> Result<(), MountError> {
        self.unmount_with(true).inspect(|()| self.end())
    }

    fn unmount_with(&self, lazily: bool) -> Result<(), MountError> {
        match (self.helper, self.device, &self.unmounter) {
            (Helper::Kernel, Some(device), Some(unmounter)) => unmounter.unmount(device, lazily),
            (Helper::Kernel, ..) => unmount_here(&self.dir, lazily),
            (Helper::Fusermount, ..) => unmount_by_fusermount(&self.dir, lazily),
        }
    }
}

/// Unmounts the topmost mount on `dir`, by umount(2) in this process.
pub fn unmount_here(dir: &Path, lazily: bool) -> Result<(), MountError> {
    let how = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW | how).map_err(|errno| match errno {
        Errno::BUSY => MountError::MountBusy(dir.to_owned()),
        errno => MountError::System { what: "unmounting", errno },
    })
}

/// Unmounts the topmost mount on `dir` as a user who is not root.
pub fn unmount_by_fusermount(dir: &Path, lazily: bool) -> Result<(), MountError> {
    let how: &[&str] = if lazily { &["-u", "-z"] } else { &["-u"] };
    let output = Command::new(FUSERMOUNT)
        .args(how)
        .arg("--")
        .arg(dir)
        .output()
        .map_err(|_| MountError::NoFusermount)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        return Err(MountError::MountBusy(dir.to_owned()));
    }
    Err(MountError::Fusermount(message))
}

/// The topmost mount on `dir`. From the mount table: to ask the mount itself would wait for this
/// process.
fn mount_on<'a>(table: &'a [MountEntry], dir: &Path) -> Option<&'a MountEntry> {
    table.iter().rev().find(|entry| entry.dir == dir)
}

/// A directory to mount on, open since it was checked.
///
/// Recovery can take minutes between the check and the mount. A user who may rename a directory
/// above it could meanwhile exchange it for a symbolic link, and lead root's mount to any place. So
/// root mounts on the open directory.
#[derive(Debug)]
pub struct MountPoint {
    directory: OwnedFd,
    dir: PathBuf,
}

impl MountPoint {
    /// Opens a directory on which something can be mounted. Follows symbolic links. Refuses a
    /// directory that another user serves, or that a path through such a server leads to: that
    /// server may never answer.
    pub fn open(dir: &Path) -> Result<MountPoint, MountError> {
        let refuse = |why: String| MountError::Directory { dir: dir.to_owned(), why };
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(errno) if is_daemon_gone(errno) => MountError::DaemonGone(dir.to_owned()),
            Some(Errno::NOENT) => {
                refuse(format!("does not exist; to make it: mkdir -p {}", dir.display()))
            }
            Some(Errno::NOTDIR) => {
                refuse("is not a directory: give an empty one to mount on".into())
            }
            Some(errno) => refuse(errno.to_string()),
            None => refuse(error.to_string()),
        };
        let reached = Trust::own().and_root().reach_trusted(dir).map_err(failed)?;
        // The kernel asks the daemon for these numbers each time; it still has the attributes when
        // the daemon is dead.
        if rustix::fs::fstatfs(&reached).is_err_and(is_daemon_gone) {
            return Err(MountError::DaemonGone(dir.to_owned()));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            above_standard(|| rustix::fs::open(link_to(&reached), flags, Mode::empty()));
        let directory = directory.map_err(|errno| failed(errno.into()))?;
        let now = path_of(&directory).map_err(|errno| refuse(errno.to_string()))?;
        Ok(MountPoint { directory, dir: now })
    }

    /// The same for a path that had no symbolic links when it was checked: it must still have none.
    pub fn open_checked(dir: &Path) -> Result<MountPoint, MountError> {
        let place = MountPoint::open(dir)?;
        if place.dir != dir {
            return Err(moved(dir));
        }
        Ok(place)
    }

    /// Its path without symbolic links, at the time of its opening.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Refuses a directory that has another path now.
    fn check(&self) -> Result<(), MountError> {
        match path_of(&self.directory) {
            Ok(now) if now == self.dir => Ok(()),
            Ok(_) | Err(_) => Err(moved(&self.dir)),
        }
    }
}

/// The path that the kernel has for an open directory.
fn path_of(directory: &OwnedFd) -> Result<PathBuf, Errno> {
    let path = rustix::fs::readlink(link_to(directory), vec![])?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

fn moved(dir: &Path) -> MountError {
    let why = "it or a directory above it was renamed or exchanged meanwhile; try again".into();
    MountError::Directory { dir: dir.to_owned(), why }
}

/// Mounts, and returns the device on which the kernel sends its requests.
pub(crate) fn attach(
    source: &Source,
    place: &MountPoint,
    options: &MountOptions,
) -> Result<(OwnedFd, MountHandle), MountError> {
    let dir = place.dir.clone();
    if rustix::process::geteuid().is_root() {
        Ok((attach_as_root(source, place, options)?, MountHandle::new(dir, Helper::Kernel)))
    } else {
        let device = attach_by_fusermount(source, &dir, options)?;
        Ok((device, MountHandle::new(dir, Helper::Fusermount)))
    }
}

/// Whether a mount whose daemon is gone answers with `errno`: `ENOTCONN`, or while the kernel ends
/// the connection, `ECONNABORTED` or `ECANCELED`.
pub fn is_daemon_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

fn attach_as_root(
    source: &Source,
    place: &MountPoint,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    place.check()?;
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(MountError::NoFuse)?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={READ_BYTES_MAX}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let (name, kind) = match source {
        Source::BlockDevice(path) => {
            data.push_str(",blksize=4096");
            (path.clone(), "fuseblk")
        }
        Source::Plain { name } => (options.fsname.as_ref().unwrap_or(name).into(), "fuse"),
    };
    let data = CString::new(data).expect("digits and words");
    let kind = match &options.subtype {
        Some(subtype) => format!("{kind}.{subtype}"),
        None => kind.into(),
    };
    let (target, flags) = (link_to(&place.directory), mount_flags(options));
    rustix::mount::mount(&name, target, kind, flags, data.as_c_str()).map_err(
        |errno| match source {
            Source::BlockDevice(path) if errno == Errno::BUSY => {
                MountError::DeviceBusy(path.clone())
            }
            _ => MountError::Refused { dir: place.dir.clone(), errno },
        },
    )?;
    Ok(device)
}

/// Changes the flags of the mount on `dir` to those of `options`: `ro`, `nosuid`, `nodev` and
/// `noexec`. All other options are ignored.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    let flags = mount_flags(options).difference(MountFlags::NOATIME);
    rustix::mount::mount_remount(dir, flags, "").map_err(|errno| match errno {
        Errno::BUSY => MountError::MountBusy(dir.to_owned()),
        errno => MountError::Remount { dir: dir.to_owned(), errno },
    })
}

fn mount_flags(options: &MountOptions) -> MountFlags {
    [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
    ]
    .into_iter()
    .filter_map(|(wanted, flag)| wanted.then_some(flag))
    .collect()
}

fn attach_by_fusermount(
    source: &Source,
    dir: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let system = |what| move |errno| MountError::System { what, errno };
    // Without CLOEXEC on the child's end: it is inherited by fusermount3.
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )
    .map_err(system("socketpair"))?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(system("fcntl"))?;
    let child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(fusermount_options(source, options))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|_| MountError::NoFusermount)?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child
        .wait_with_output()
        .map_err(|_| MountError::Fusermount("its end could not be waited for".into()))?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        _ => Err(fusermount_error(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn fusermount_error(message: &str) -> MountError {
    if message.contains("user_allow_other") {
        return MountError::NoUserAllowOther;
    }
    let message = message.trim().trim_start_matches("fusermount3: ").to_owned();
    match message.as_str() {
        "" => MountError::Fusermount("failed without a word".into()),
        text if text.contains("/dev/fuse") => MountError::FuseDenied(message),
        _ => MountError::Fusermount(message),
    }
}

fn fusermount_options(source: &Source, options: &MountOptions) -> String {
    let name = match (&options.fsname, source) {
        (Some(name), _) => name.clone(),
        (None, Source::BlockDevice(path)) => path.display().to_string(),
        (None, Source::Plain { name }) => name.clone(),
    };
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={}", escaped(&name));
    if let Some(subtype) = &options.subtype {
        list.push_str(",subtype=");
        list.push_str(&escaped(subtype));
    }
    for (wanted, word) in [
        (options.read_only, "ro"),
        (options.nosuid, "nosuid"),
        (options.nodev, "nodev"),
        (options.noexec, "noexec"),
        (options.noatime, "noatime"),
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
    ] {
        if wanted {
            list.push(',');
            list.push_str(word);
        }
    }
    list
}

/// Receives the descriptor that fusermount3 sends with one byte; `None` when it sent none.
fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let message = MountPoint::open(&file).unwrap_err().to_string();
        assert!(message.contains("file: is not a directory"), "{message}");
        let message = MountPoint::open(&dir.path().join("none")).unwrap_err().to_string();
        assert!(message.contains("none: does not exist; to make it: mkdir -p /"), "{message}");
        assert!(MountPoint::open(dir.path()).is_ok());
    }

    #[test]
    fn regression_a_mount_point_that_was_exchanged_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for dir in ["theirs/mnt", "other/mnt"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        let asked = home.join("theirs/mnt");
        let place = MountPoint::open_checked(&asked).unwrap();
        place.check().unwrap();
        std::fs::rename(home.join("theirs"), home.join("moved")).unwrap();
        std::os::unix::fs::symlink(home.join("other"), home.join("theirs")).unwrap();
        let source = Source::Plain { name: "test".into() };
        let options = MountOptions::default();
        for refused in [
            place.check().unwrap_err(),
            attach_as_root(&source, &place, &options).unwrap_err(),
            MountPoint::open_checked(&asked).unwrap_err(),
        ] {
            let message = refused.to_string();
            assert!(message.contains("exchanged meanwhile"), "{message}");
        }
        // A link that was there from the beginning is the caller's choice.
        assert_eq!(MountPoint::open(&asked).unwrap().dir(), home.join("other/mnt"));
    }

    #[test]
    fn regression_a_server_of_another_user_is_not_asked_for_a_mount_point() {
        if !rustix::process::geteuid().is_root() || !onejournal_testing::can_mount_fuse() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let server = rustix::fs::open("/dev/fuse", flags, Mode::empty()).unwrap();
        let data = format!(
            "fd={},rootmode=40755,user_id=65534,group_id=65534,allow_other",
            server.as_raw_fd()
        );
        let data = CString::new(data).unwrap();
        rustix::mount::mount("silent", home.path(), "fuse", MountFlags::empty(), data.as_c_str())
            .unwrap();
        for dir in [home.path().to_owned(), home.path().join("below")] {
            let message = MountPoint::open(&dir).unwrap_err().to_string();
            assert!(message.contains("that user 65534 serves (fuse on /"), "{message}");
        }
        unmount_here(home.path(), true).unwrap();
    }

    #[test]
    fn a_mount_that_has_ended_is_not_mounted() {
        let handle = MountHandle::new("/".into(), Helper::Kernel);
        assert!(handle.device.is_some() && handle.is_mounted());
        let other = MountHandle { device: Some((u32::MAX, 0)), ..handle.clone() };
        assert!(!other.is_mounted());
        let unknown = MountHandle { device: None, ..handle.clone() };
        assert!(unknown.is_mounted());
        unknown.end();
        assert!(!handle.is_mounted(), "the number may be another's by now");
    }

    #[test]
    fn options_for_fusermount_are_escaped() {
        let source = Source::Plain { name: "a,b".into() };
        let options = MountOptions { read_only: true, allow_other: false, ..Default::default() };
        assert_eq!(fusermount_options(&source, &options), "fsname=a\\,b,ro,default_permissions");
        let options = MountOptions { subtype: Some("words".into()), ..options };
        assert_eq!(
            fusermount_options(&source, &options),
            "fsname=a\\,b,subtype=words,ro,default_permissions"
        );
    }

    #[test]
    fn a_missing_permission_is_recognised() {
        let text = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in \
                    /etc/fuse.conf\n";
        assert!(matches!(fusermount_error(text), MountError::NoUserAllowOther));
        let text = "fusermount3: mount failed: Operation not permitted\n";
        assert_eq!(
            fusermount_error(text).to_string(),
            "fusermount3: mount failed: Operation not permitted"
        );
    }

    #[test]
    fn a_device_that_users_may_not_open_is_explained() {
        let text = "fusermount3: failed to open /dev/fuse: Permission denied\n";
        let message = fusermount_error(text).to_string();
        let (said, advice) = message.split_once("; ").unwrap();
        assert_eq!(said, "fusermount3: failed to open /dev/fuse: Permission denied");
        for command in ["modprobe fuse", "chmod 666 /dev/fuse", "docker run --device /dev/fuse"] {
            assert!(advice.contains(command), "{message}");
        }
    }
}
