//! Finds the volume that a path of the command line means, where it is mounted, and which process
//! serves it.
//!
//! The path is a directory on which the volume is mounted, or its image or device. Everything is
//! read from `/proc` and `/sys`. So a volume is found even if its root directory does not answer,
//! if it is mounted in another namespace, or if it is not mounted any more. Processes that `/proc`
//! does not show (of another user, or outside of this PID namespace) are not found.
//!
//! Every user can start a process that looks like a daemon: it has the image open, and the command
//! line and the name of one. So only a process of a user who can have mounted the volume counts as
//! its daemon: root or this user, or else the user of the mount or the owner of the image. And no
//! wait for a daemon is without an end.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::{MountEntry, Trust, backing_file, cached_stat, link_to};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, makedev};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::namespaces::{self, Holder};
use crate::output::plain_path;
use crate::process_looks::{Finding, TELL_LIMIT};
use crate::{CliError, Result, aside, users};

/// How long a mount namespace that is just being made may have copies of all mounts.
pub const HELD_PATIENCE: Duration = Duration::from_secs(2);
/// A daemon whose volume is not mounted anywhere begins to close within this time, unless an
/// invisible process uses the volume.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(5);

/// How long a daemon is waited for that brings everything home.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1800);

const ROOT: u32 = 0;
/// The name of the command's file.
const PROGRAM: &str = "onejournal";
const LOOP_MAJOR: u32 = 7;
/// Most images and devices that are looked at among the open files of a process. A daemon has
/// fewer.
const MEDIA_COUNT_MAX: usize = 64;
/// The interval at which the state of a daemon is checked.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The kernel keeps this much of a process's name (`TASK_COMM_LEN` without the zero).
const PROCESS_NAME_LEN: usize = 15;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The image or device that a volume is on. One volume has several: an image, and the loop device
/// through which the kernel sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Medium {
    Block((u32, u32)),
    File { device: u64, inode: u64 },
}

impl Medium {
    /// At a link of `/proc` to an open file.
    fn at(link: &Path) -> Option<Medium> {
        let found = cached_stat(link).ok()?;
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => {
                Some(Medium::Block((found.stx_rdev_major, found.stx_rdev_minor)))
            }
            FileType::RegularFile => {
                let device = makedev(found.stx_dev_major, found.stx_dev_minor);
                Some(Medium::File { device, inode: found.stx_ino })
            }
            _ => None,
        }
    }

    /// At any path. An error if another user serves a part of it, who may never answer.
    fn named(path: &Path) -> Result<Option<Medium>> {
        let reached = reach(path)?;
        Ok(reached.and_then(|file| Medium::at(&link_to(&file))))
    }

    /// The backing file of a loop device. An error as for [`Medium::named`].
    fn behind(device: (u32, u32)) -> Result<Option<Medium>> {
        backing_file(device).map_or(Ok(None), |path| Medium::named(&path))
    }

    /// The media of a mounted volume, and the error of one that could not be looked at.
    fn of_mount(entry: &MountEntry) -> (Vec<Medium>, Option<CliError>) {
        let (device, file) = match entry.kind.starts_with("fuseblk") {
            true => (Some(Medium::Block(entry.device)), Medium::behind(entry.device)),
            false => (None, Medium::named(&entry.source)),
        };
        let (file, error) = match file {
            Ok(file) => (file, None),
            Err(error) => (None, Some(error)),
        };
        (device.into_iter().chain(file).collect(), error)
    }

    /// The same for a mount that [`is_believed`].
    fn of_believed(entry: &MountEntry, users: &[u32]) -> (Vec<Medium>, Option<CliError>) {
        match is_believed(entry, users) {
            true => Medium::of_mount(entry),
            false => (Vec::new(), None),
        }
    }
}

/// The file at any path, opened without access. An error if another user serves a part of the path.
/// `None`: there is none, or this user may not look.
fn reach(path: &Path) -> Result<Option<OwnedFd>> {
    match Trust::own().and_root().reach(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error().is_some() => Ok(None),
        Err(error) => Err(CliError::at(path, error)),
    }
}

/// A volume that is in use, or may be.
#[derive(Debug)]
pub struct ServedVolume {
    media: Vec<Medium>,
    /// The directories of this namespace on which it is mounted, the topmost last.
    pub dirs: Vec<PathBuf>,
    /// Device numbers that its file system may have.
    devices: Vec<(u32, u32)>,
    /// Its image or device.
    pub target: PathBuf,
    /// The users besides root and this one who can have mounted it.
    other_users: Vec<u32>,
    /// Whether another user named the target. Then it is compared with the files that daemons of
    /// that user have open, and not followed: it may be a path that never answers.
    is_claimed: bool,
    /// The mounts that may be this volume's, with the reason why that could not be seen.
    unseen: Vec<String>,
}

impl ServedVolume {
    /// The volume that is mounted on the directory `path`, with only that directory. `None` if
    /// nothing is mounted there.
    pub fn mounted_on(path: &Path) -> Result<Option<ServedVolume>> {
        // Its daemon is not asked: it may be stopped.
        let dir = reach(path)?.and_then(|dir| fs::read_link(link_to(&dir)).ok());
        let table = mounts()?;
        let entry = table.iter().rev().find(|entry| Some(&entry.dir) == dir.as_ref());
        let Some(entry) = entry.filter(|entry| entry.is_volume()) else { return Ok(None) };
        let target = backing_file(entry.device).unwrap_or_else(|| entry.source.clone());
        let users = own_users();
        let is_claimed = !is_believed(entry, &users);
        let owner = if is_claimed { None } else { owner_of(&target) };
        Ok(Some(ServedVolume {
            media: Medium::of_believed(entry, &users).0,
            dirs: vec![entry.dir.clone()],
            devices: vec![entry.device],
            other_users: entry.user().into_iter().chain(owner).collect(),
            target,
            is_claimed,
            unseen: Vec::new(),
        }))
    }

    /// The volume in an image or on a device; `None` if `path` is neither. An error if another user
    /// serves a part of the path.
    pub fn on_target(path: &Path) -> Result<Option<ServedVolume>> {
        let Some(medium) = Medium::named(path)? else { return Ok(None) };
        let mut media = vec![medium];
        let mut devices = Vec::new();
        match medium {
            Medium::Block(device) => {
                devices.push(device);
                // If it cannot be seen, its mount counts as unseen below.
                media.extend(Medium::behind(device).ok().flatten());
            }
            Medium::File { .. } => {
                devices.extend(loops_on(medium));
                media.extend(devices.iter().copied().map(Medium::Block));
            }
        }
        let believed = believed(path);
        let (mut dirs, mut unseen) = (Vec::new(), Vec::new());
        let mut other_users = Vec::from_iter(owner_of(path));
        for entry in mounts()?.into_iter().filter(MountEntry::is_volume) {
            let (found, error) = Medium::of_believed(&entry, &believed);
            if !found.iter().any(|found| media.contains(found)) {
                unseen.extend(error.map(|why| format!("{} ({why})", plain_path(&entry.dir))));
                continue;
            }
            if !devices.contains(&entry.device) {
                devices.push(entry.device);
            }
            // The entry names the true user: it is a device, which only root can mount for a user,
            // or a mount of a believed user.
            other_users.extend(entry.user());
            dirs.push(entry.dir);
        }
        let target = path.to_owned();
        let is_claimed = false;
        Ok(Some(ServedVolume { media, dirs, devices, target, other_users, is_claimed, unseen }))
    }

    /// What to add to a message that it is not mounted.
    pub fn unless_unseen(&self) -> String {
        match self.unseen.as_slice() {
            [] => String::new(),
            unseen => format!(
                ", as far as could be seen. It may be what is mounted on {}",
                unseen.join(", or on ")
            ),
        }
    }

    /// Whether it is on one of the media of `other`.
    pub fn is_on(&self, other: &ServedVolume) -> bool {
        self.media.iter().any(|medium| other.media.contains(medium))
    }

    /// Whether its target may be opened: it is not only another user's word, or `daemon` has it.
    pub fn has_target(&self, daemon: Option<&Daemon>) -> bool {
        !self.is_claimed || daemon.is_some()
    }

    /// Whether it was on a disk that the kernel does not know any more.
    pub fn is_pulled(&self) -> bool {
        let is_pulled = |medium: &Medium| match medium {
            Medium::Block((major, minor)) => {
                !Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists()
            }
            Medium::File { .. } => false,
        };
        self.media.iter().any(is_pulled)
    }

    /// The programs that use its file system, if there are visible ones.
    pub fn users(&self) -> Option<String> {
        self.devices.iter().find_map(|device| users::named(*device))
    }

    /// The process that serves it. The process of another user counts only if neither root nor this
    /// user has one.
    pub fn daemon(&self) -> Result<Option<Daemon>> {
        let own = own_users();
        // The process of another user may keep everybody waiting who looks at it.
        let is_like = |pid: &i32| belongs_to(*pid, &own) && is_daemon(*pid);
        let mut like = host::processes().into_iter().filter(is_like).map(|pid| {
            let media = open_media(pid).map(|(_, medium)| medium).collect();
            (pid, media)
        });
        let serves =
            |(_, media): &(i32, Vec<Medium>)| media.iter().any(|open| self.media.contains(open));
        let found = like.find(serves).or_else(|| self.daemon_of_others());
        found.map_or(Ok(None), |(pid, media)| Daemon::open(pid, media))
    }

    /// The same of the other users, as far as their processes let themselves be looked at: the
    /// process, and what it has open.
    fn daemon_of_others(&self) -> Option<(i32, Vec<Medium>)> {
        let own = own_users();
        if self.other_users.iter().all(|user| own.contains(user)) {
            return None;
        }
        let told = aside::told_within(["look", "daemons"], TELL_LIMIT).lines;
        let mut told = told.iter().filter_map(|line| serde_json::from_str(line).ok());
        let target = self.target.to_string_lossy();
        let has_open = |found: &LikeDaemon| match self.is_claimed {
            true => found.paths.iter().any(|path| *path == target),
            false => found.media.iter().any(|medium| self.media.contains(medium)),
        };
        let serves = |found: &LikeDaemon| self.other_users.contains(&found.user) && has_open(found);
        told.find(serves).map(|found| (found.pid, found.media))
    }

    /// Where it is mounted, one place for each namespace.
    pub fn holders(&self) -> Vec<(Holder, (u32, u32))> {
        let of = |device| namespaces::holders(device).into_iter().map(move |h| (h, device));
        self.devices.iter().copied().flat_map(of).collect()
    }

    /// Paths by which its root can be reached, in any namespace.
    pub fn reachable_dirs(&self) -> Vec<PathBuf> {
        let through = self.holders().into_iter().map(|(holder, _)| holder.reachable_dir());
        self.dirs.iter().cloned().chain(through).collect()
    }

    /// The device number that its file system most likely has.
    pub fn first_device(&self) -> Option<(u32, u32)> {
        self.devices.first().copied()
    }

    /// Whether its daemon may still serve when `waited` has passed since the volume was unmounted
    /// in this namespace. Looks for other mounts, which takes a process, only when that decides.
    pub fn may_serve_after(&self, waited: Duration) -> bool {
        waited < HELD_PATIENCE || waited < UNSEEN_PATIENCE && self.holders().is_empty()
    }

    /// The places where it is mounted, as text for the user.
    pub fn whereabouts(&self) -> String {
        let places: Vec<String> = self.holders().iter().map(|(holder, _)| holder.place()).collect();
        if places.is_empty() {
            return "mounted nowhere that is visible from here; programs may have files on it open"
                .into();
        }
        format!("mounted on {}", places.join(" and on "))
    }
}

fn mounts() -> Result<Vec<MountEntry>> {
    host::own_mounts().map_err(|error| CliError::new(format!("/proc/self/mountinfo: {error}")))
}

fn loops_on(medium: Medium) -> Vec<(u32, u32)> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = names.filter_map(|entry| {
        let number = entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok()?;
        let device = (LOOP_MAJOR, number);
        (Medium::behind(device).ok()? == Some(medium)).then_some(device)
    });
    devices.collect()
}

/// Whether the process has one of these open.
fn has_open(pid: i32, media: &[Medium]) -> bool {
    open_media(pid).any(|(_, medium)| media.contains(&medium))
}

/// The images and devices that a process has open, with links of `/proc` to them, in the order of
/// their descriptors.
fn open_media(pid: i32) -> impl Iterator<Item = (PathBuf, Medium)> {
    host::open_files(pid).filter_map(|link| Medium::at(&link).map(|medium| (link, medium)))
}

/// The paths of the first images and devices that a process has open.
pub fn media_of(pid: i32) -> Vec<PathBuf> {
    let media = open_media(pid).take(MEDIA_COUNT_MAX);
    media.filter_map(|(link, _)| fs::read_link(link).ok()).collect()
}

/// Whether the process has the medium of one of these mounts open, by its path here or in the
/// mount's namespace. The source of another user's mount is only compared as text: it may be a path
/// that never answers. In a user namespace any user is shown as root.
pub fn serves_any(pid: i32, mounts: &[(Holder, MountEntry)]) -> bool {
    let users = own_users();
    let is_believed = |(holder, entry): &&(Holder, MountEntry)| {
        entry.kind.starts_with("fuseblk") || entry.is_of(&users) && belongs_to(holder.pid, &users)
    };
    let (believed, others): (Vec<_>, Vec<_>) = mounts.iter().partition(is_believed);
    let open = media_of(pid);
    if others.iter().any(|(_, entry)| open.contains(&entry.source)) {
        return true;
    }
    let of = |(holder, entry): &(Holder, MountEntry)| {
        let root = Path::new("/proc").join(holder.pid.to_string()).join("root");
        let there = root.join(entry.source.strip_prefix("/").unwrap_or(&entry.source));
        Medium::of_mount(entry).0.into_iter().chain(Medium::at(&there)).collect::<Vec<_>>()
    };
    has_open(pid, &believed.into_iter().flat_map(of).collect::<Vec<_>>())
}

/// The users whose mounts say truthfully what was mounted: root, this one, and the target's owner.
fn believed(target: &Path) -> Vec<u32> {
    own_users().into_iter().chain(owner_of(target)).collect()
}

/// The users whose word is good everywhere: root and this one.
fn own_users() -> [u32; 2] {
    [ROOT, geteuid().as_raw()]
}

/// Whether the mount's source is true: a device is the kernel's word, and the rest that of one of
/// `users`. Another user can name any source, also one that never answers.
fn is_believed(entry: &MountEntry, users: &[u32]) -> bool {
    entry.kind.starts_with("fuseblk") || entry.is_of(users)
}

/// The owner of an image or device.
fn owner_of(target: &Path) -> Option<u32> {
    let file = reach(target).ok().flatten()?;
    cached_stat(&link_to(&file)).ok().map(|found| found.stx_uid)
}

/// Whether it is a process of one of these users, who can have mounted a volume.
fn belongs_to(pid: i32, users: &[u32]) -> bool {
    host::process_owner(pid).is_some_and(|(user, _)| users.contains(&user))
}

/// A process that looks like a daemon, and what it has open.
#[derive(Serialize, Deserialize)]
pub struct LikeDaemon {
    pid: i32,
    user: u32,
    media: Vec<Medium>,
    /// Their paths, as text.
    paths: Vec<String>,
}

impl Finding for LikeDaemon {
    fn memory_bytes(&self) -> usize {
        let path_bytes: usize = self.paths.iter().map(String::len).sum();
        let media_bytes = self.media.len() * (size_of::<Medium>() + size_of::<String>());
        size_of::<Self>() + media_bytes + path_bytes
    }
}

/// The process, if it looks like a daemon. May wait without an end.
pub fn looks_like_daemon(pid: i32) -> Option<LikeDaemon> {
    let (user, _) = host::process_owner(pid).filter(|_| is_daemon(pid))?;
    let open = open_media(pid).take(MEDIA_COUNT_MAX).filter_map(|(link, medium)| {
        let path = fs::read_link(link).ok()?;
        Some((medium, path.to_string_lossy().into_owned()))
    });
    let (media, paths) = open.unzip();
    Some(LikeDaemon { pid, user, media, paths })
}

/// Whether the process looks like a `mount` command that serves a volume, and is not closing it.
pub fn is_serving(pid: i32) -> bool {
    is_daemon(pid) && host::process_name(pid) != mount::CLOSING_NAME
}

/// Whether the process looks like a `mount` command that serves a volume. A process of any user can
/// look like one.
fn is_daemon(pid: i32) -> bool {
    host::command_line(pid).get(1).is_some_and(|word| word == "mount") && runs_command(pid)
}

/// Whether the process runs this command: wherever it is installed, also if an upgrade has replaced
/// it since, or a copy of it. `true` where that cannot be seen.
fn runs_command(pid: i32) -> bool {
    let Some(program) = host::process_program(pid) else { return true };
    let name = program.file_name().unwrap_or_default();
    name.as_bytes().starts_with(PROGRAM.as_bytes()) || Some(name) == host::own_program().file_name()
}

/// A process that serves a volume.
#[derive(Debug)]
pub struct Daemon {
    pub pid: i32,
    process: OwnedFd,
    /// What it had open when it was found. Another user's process is not looked at again: it may
    /// keep everybody waiting who does.
    media: Vec<Medium>,
}

impl Daemon {
    /// The process `pid`, if it has not ended.
    fn open(pid: i32, media: Vec<Medium>) -> Result<Option<Daemon>> {
        let Some(number) = Pid::from_raw(pid) else { return Ok(None) };
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Daemon { pid, process, media })),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(CliError::new(format!("process {pid}: {errno}"))),
        }
    }

    /// Whether it has stopped serving: it brings everything home and then ends.
    fn is_closing(&self) -> bool {
        host::process_name(self.pid) == mount::CLOSING_NAME
    }

    /// Whether to wait on for its end, because it brings everything home; `waited` has passed.
    ///
    /// # Errors
    /// It has taken too long.
    pub fn is_closing_after(&self, waited: Duration) -> Result<bool> {
        if !self.is_closing() || waited < CLOSING_PATIENCE {
            return Ok(self.is_closing());
        }
        let (pid, seconds) = (self.pid, CLOSING_PATIENCE.as_secs());
        let name = host::process_name(pid);
        Err(CliError::new(format!(
            "process {pid} ({name}) has been closing it for {seconds} s, and has not ended. If it \
             still writes to its disk, wait on: run this command again. If not, end it: kill -KILL \
             {pid}; the next mount recovers the volume, and nothing that was synced is lost"
        )))
    }

    /// Whether its volume, that of `target`, is mounted in this namespace, by any path.
    fn is_mounted_here(&self, target: &Path) -> Result<bool> {
        let users = believed(target);
        let mut volumes = mounts()?.into_iter().filter(MountEntry::is_volume);
        let is_on = |medium: &Medium| self.media.contains(medium);
        Ok(volumes.any(|entry| Medium::of_believed(&entry, &users).0.iter().any(is_on)))
    }

    /// Waits a short time. Returns whether the daemon has ended.
    pub fn ended(&self) -> Result<bool> {
        self.ended_within(&LOOK_EVERY)
    }

    fn ended_within(&self, time: &Timespec) -> Result<bool> {
        match poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(time)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(CliError::new(format!("process {}: {errno}", self.pid))),
        }
    }
}

/// The name of a daemon's process: that of our executable, even if this process was started by
/// another name for it (`fsck.onejournal`).
fn daemon_name() -> String {
    let path = host::own_program();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars().take(PROCESS_NAME_LEN).collect()
}

/// A daemon that was killed and has not ended: it has no memory any more, and perhaps still files
/// open. Which volume it served cannot be seen, only that its user can have
/// mounted `target`.
pub fn dying_daemon(target: &Path) -> Result<Option<Daemon>> {
    let own = daemon_name();
    let users = believed(target);
    let is_dying = |pid: &i32| {
        let name = host::process_name(*pid);
        (name == own || name == mount::CLOSING_NAME)
            && belongs_to(*pid, &users)
            && host::has_no_memory(*pid)
    };
    for pid in host::processes().into_iter().filter(is_dying) {
        if let Some(daemon) = Daemon::open(pid, Vec::new())?
            && !daemon.ended_within(&NO_TIME)?
        {
            return Ok(Some(daemon));
        }
    }
    Ok(None)
}

/// The daemon of a volume that cannot be had.
pub struct User {
    pub daemon: Daemon,
    volume: ServedVolume,
    is_mounted_here: bool,
}

impl User {
    /// Whether it is worth while to wait for its end, `waited` having passed: it brings everything
    /// home, or it is about to begin with that, because the volume is not mounted here any more.
    ///
    /// # Errors
    /// It brings everything home and has taken too long.
    pub fn is_leaving(&self, waited: Duration) -> Result<bool> {
        let is_about_to = || !self.is_mounted_here && self.volume.may_serve_after(waited);
        Ok(self.daemon.is_closing_after(waited)? || is_about_to())
    }
}

/// The daemon of the image or device `path`, if there is one. `None` also if another user serves a
/// part of the path: such a daemon is not waited for.
pub fn user_of(path: &Path) -> Result<Option<User>> {
    let Ok(Some(volume)) = ServedVolume::on_target(path) else { return Ok(None) };
    let Some(daemon) = volume.daemon()? else { return Ok(None) };
    let is_mounted_here = daemon.is_mounted_here(path)?;
    Ok(Some(User { daemon, volume, is_mounted_here }))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process with the name of a daemon that closes its volume.
    struct Closing(Child);

    impl Closing {
        fn start() -> Closing {
            let script =
                format!("echo {} >/proc/$$/comm && echo here && read x", mount::CLOSING_NAME);
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "here\n");
            Closing(child)
        }
    }

    impl Drop for Closing {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    #[test]
    fn regression_the_wait_for_a_daemon_that_closes_has_an_end_that_names_it() {
        let closing = Closing::start();
        let pid = i32::try_from(closing.0.id()).unwrap();
        let daemon = Daemon::open(pid, Vec::new()).unwrap().unwrap();
        let almost = CLOSING_PATIENCE - Duration::from_millis(1);
        assert!(daemon.is_closing_after(almost).unwrap());
        let error = daemon.is_closing_after(CLOSING_PATIENCE).unwrap_err().text;
        let named =
            format!("process {pid} ({}) has been closing it for 1800 s", mount::CLOSING_NAME);
        assert!(error.contains(&named), "{error}");
        let own = i32::try_from(std::process::id()).unwrap();
        let own = Daemon::open(own, Vec::new()).unwrap().unwrap();
        assert!(!own.is_closing_after(CLOSING_PATIENCE).unwrap());
    }

    #[test]
    fn a_disk_that_sysfs_does_not_list_is_pulled() {
        let on = |medium| ServedVolume {
            media: vec![medium],
            dirs: Vec::new(),
            devices: Vec::new(),
            target: PathBuf::new(),
            other_users: Vec::new(),
            is_claimed: false,
            unseen: Vec::new(),
        };
        assert!(on(Medium::Block((4095, 7))).is_pulled());
        assert!(!on(Medium::File { device: 4095, inode: 7 }).is_pulled());
        let mut listed = fs::read_dir("/sys/dev/block").unwrap().peekable();
        let is_there = |name: &str| {
            let (major, minor) = name.split_once(':').unwrap();
            !on(Medium::Block((major.parse().unwrap(), minor.parse().unwrap()))).is_pulled()
        };
        // Another test may be taking one of them away.
        assert!(
            listed.peek().is_none()
                || listed.any(|entry| is_there(entry.unwrap().file_name().to_str().unwrap()))
        );
    }

    #[test]
    fn regression_the_source_of_another_users_mount_is_not_believed() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let medium = Medium::at(image.path()).unwrap();
        let own = geteuid().as_raw();
        let media = |user: u32| {
            let source = image.path().display();
            let line = format!(
                "31 20 0:66 / /mnt rw - fuse.onejournal {source} rw,user_id={user},group_id=0\n"
            );
            let entry = host::parse_mounts(line.as_bytes()).remove(0);
            Medium::of_believed(&entry, &believed(image.path())).0
        };
        assert_eq!(media(own), [medium]);
        assert_eq!(media(ROOT), [medium]);
        assert_eq!(media(own + 1), []);
    }

    #[test]
    fn a_process_belongs_to_its_user_and_runs_its_program() {
        let own = i32::try_from(std::process::id()).unwrap();
        let user = geteuid().as_raw();
        assert!(belongs_to(own, &[user + 1, user]) && !belongs_to(own, &[user + 1]));
        assert!(runs_command(own), "this program");
        let shell = Closing::start();
        assert!(!runs_command(i32::try_from(shell.0.id()).unwrap()));
    }
}
