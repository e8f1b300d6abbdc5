//! Recorded emulated disks, loop devices on them, and mounts of the command under test.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use mount::{MountError, MountHandle};
use onejournal_testing::Image;
use onejournal_testing::drive::{Disk, Emulator, Mounted, Parameters, Recorder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::command::{COPYING, run, tool};

/// The user who is not root: `nobody`, because fusermount3 needs a user with a name.
pub const USER: u32 = 65_534;
/// The longest time until a daemon must have ended.
const END_LIMIT: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// An emulated disk in this process. It disappears when it is dropped, even if it is in use.
pub struct Drive {
    dir: PathBuf,
    handle: MountHandle,
    thread: Option<JoinHandle<Result<Emulator, MountError>>>,
}

impl Drive {
    /// Serves `image` as `DIR/disk`, a file of user `owner`. It is disk `number` of the record.
    /// `parameters` are those of `onejournal-bench device --set`.
    pub fn start(
        dir: PathBuf,
        image: &Image,
        parameters: &str,
        owner: u32,
        (recorder, number): (Recorder, u8),
    ) -> Result<Drive, String> {
        let text =
            |error: &dyn std::fmt::Display| format!("emulated disk {}: {error}", dir.display());
        fs::create_dir(&dir).map_err(|e| text(&e))?;
        let mut chosen = Parameters::preset("zero").map_err(|e| text(&e))?;
        chosen.apply(parameters).map_err(|e| text(&e))?;
        let mut disk = Disk::new(image.size_bytes());
        disk.restore(&image.to_bytes());
        let mut emulator = Emulator::new(chosen, disk);
        emulator.record(recorder, number);
        emulator.set_owner(owner);
        let mounted = Mounted::new(&dir, "onejournal-judge").map_err(|e| text(&e))?;
        let handle = mounted.handle();
        let body = move || mounted.serve(emulator);
        let thread = std::thread::Builder::new().name("drive".into()).spawn(body);
        let thread = Some(thread.map_err(|e| text(&e))?);
        Ok(Drive { dir, handle, thread })
    }

    /// The disk.
    pub fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _no_copies = COPYING.read();
        if self.handle.unmount().is_err() {
            let _ = self.handle.unmount_lazily();
        }
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("emulated disk {}: {error}", self.dir.display());
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// A loop device; detached when dropped.
pub struct Loop {
    pub path: PathBuf,
}

impl Loop {
    /// Attaches a file, with sectors of `sector_bytes` bytes.
    pub fn attach(file: &Path, sector_bytes: u32, direct: bool) -> Result<Loop, String> {
        let mut losetup = tool("losetup");
        losetup.args(["--find", "--show", "--sector-size", &sector_bytes.to_string()]);
        if direct {
            losetup.arg("--direct-io=on");
        }
        let path = run(losetup.arg(file))?;
        Ok(Loop { path: path.trim().into() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run(tool("losetup").arg("--detach").arg(&self.path)) {
            eprintln!("{error}");
        }
    }
}

/// A mount of the command under test.
pub struct Volume {
    onejournal: PathBuf,
    pub dir: PathBuf,
    by_user: bool,
    is_mounted: bool,
}

/// The command as that user.
pub fn command(onejournal: &Path, by_user: bool) -> Command {
    let mut command = Command::new(onejournal);
    if by_user {
        command.uid(USER).gid(USER);
    }
    command
}

impl Volume {
    /// Mounts `target` on `dir`, which exists.
    pub fn mount(
        onejournal: &Path,
        target: &Path,
        dir: &Path,
        options: &str,
        by_user: bool,
    ) -> Result<Volume, String> {
        if by_user {
            chown(dir, Some(USER), Some(USER)).map_err(|e| e.to_string())?;
        }
        let mut mount = command(onejournal, by_user);
        mount.arg("mount");
        if !options.is_empty() {
            mount.args(["-o", options]);
        }
        run(mount.arg(target).arg(dir))?;
        Ok(Volume { onejournal: onejournal.into(), dir: dir.into(), by_user, is_mounted: true })
    }

    /// `onejournal umount`.
    pub fn umount(mut self) -> Result<(), String> {
        let _no_copies = COPYING.read();
        run(command(&self.onejournal, self.by_user).arg("umount").arg(&self.dir))?;
        self.is_mounted = false;
        Ok(())
    }

    /// Kills the daemon and removes the mount.
    pub fn kill(mut self) -> Result<(), String> {
        let _no_copies = COPYING.read();
        self.is_mounted = false;
        self.end()
    }

    fn end(&self) -> Result<(), String> {
        let mut value = [0; 32];
        let found = rustix::fs::getxattr(&self.dir, "user.onejournal.pid", &mut value);
        let len = found.map_err(|errno| format!("pid of the daemon: {errno}"))?;
        let pid = std::str::from_utf8(&value[..len]).ok().and_then(|text| text.trim().parse().ok());
        let pid = pid.and_then(Pid::from_raw).ok_or("the pid of the daemon is no number")?;
        let daemon = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| e.to_string())?;
        pidfd_send_signal(&daemon, Signal::KILL).map_err(|e| e.to_string())?;
        let ended = poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&END_LIMIT));
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
        if ended == Ok(1) { Ok(()) } else { Err(format!("daemon {pid:?} does not end")) }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = self.end()
        {
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
            eprintln!("{}: {error}", self.dir.display());
        }
    }
}

/// Gives all users access to the content of a directory.
pub fn open_to_all(path: &Path) -> Result<(), String> {
    fs::set_permissions(path, Permissions::from_mode(0o777)).map_err(|e| e.to_string())
}

/// Returns when no process has a lock on a file or device. The kernel closes some files of a killed
/// process only after its end.
pub fn wait_until_free(path: &Path) -> Result<(), String> {
    let file = fs::File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive);
    locked.map_err(|e| format!("{}: {e}", path.display()))
}
