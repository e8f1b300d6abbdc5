//! Mount namespaces, as `/proc` shows them: which exist, which processes are in them, and what is
//! mounted there.
//!
//! Processes that `/proc` does not show (of another user, or outside of our PID namespace) are not
//! found. A process may keep everybody waiting who looks at its namespace, though not at its mount
//! table. So another process looks (`crate::looks`), and is left behind after a time.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use host::{Account, MountEntry, process_name};
use mount::{MountError, Unmounter};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, Result};
use crate::output::{plain, plain_path};
use crate::process_looks::{Finding, TELL_LIMIT};
use crate::{aside, fusectl, in_place};

/// Longest that a program may look at a mount before it counts as using it.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which a mount or a block device that is in use is tried again. The kernel gives
/// no sign when it becomes free.
pub const TRY_EVERY: Duration = Duration::from_millis(10);

/// Identifies a mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// That of this process.
    pub fn own() -> io::Result<NamespaceId> {
        fs::metadata("/proc/self/ns/mnt").map(|found| NamespaceId::of(&found))
    }

    /// That of the process. May wait without an end.
    pub fn of_process(pid: i32) -> Option<NamespaceId> {
        let found = fs::metadata(format!("/proc/{pid}/ns/mnt"));
        found.ok().map(|found| NamespaceId::of(&found))
    }

    fn of(found: &fs::Metadata) -> NamespaceId {
        NamespaceId { device: found.dev(), inode: found.ino() }
    }
}

/// A process of it.
impl Finding for (i32, NamespaceId) {}

/// A mount of a volume in some namespace.
#[derive(Debug)]
pub struct Holder {
    pub namespace: NamespaceId,
    /// A process of the namespace.
    pub pid: i32,
    /// Where it is mounted there.
    pub dir: PathBuf,
}

impl Holder {
    /// A path by which it can be reached from here.
    pub fn reachable_dir(&self) -> PathBuf {
        if NamespaceId::own().is_ok_and(|own| own == self.namespace) {
            return self.dir.clone();
        }
        let dir = self.dir.strip_prefix("/").unwrap_or(&self.dir);
        Path::new("/proc").join(self.pid.to_string()).join("root").join(dir)
    }

    /// Where that is, for a person.
    pub fn place(&self) -> String {
        let dir = plain_path(&self.dir);
        if NamespaceId::own().is_ok_and(|own| own == self.namespace) {
            return dir;
        }
        let (pid, program) = (self.pid, plain(&process_name(self.pid)));
        format!("{dir} in the mount namespace of process {pid} ({program})")
    }
}

/// A process of each namespace, of this namespace this one, which is the first.
fn one_of_each() -> Vec<(i32, NamespaceId)> {
    let own = i32::try_from(std::process::id()).ok().zip(NamespaceId::own().ok());
    let told = aside::told_within(["look", "namespaces"], TELL_LIMIT).lines;
    let told = told.iter().filter_map(|line| serde_json::from_str(line).ok());
    let mut others: Vec<(i32, NamespaceId)> = told.collect();
    others.sort_unstable_by_key(|(pid, _)| *pid);
    let mut seen = HashSet::new();
    own.into_iter().chain(others).filter(|(_, namespace)| seen.insert(*namespace)).collect()
}

/// The mounts of the volume with this device number: one for each namespace.
pub fn holders(device: (u32, u32)) -> Vec<Holder> {
    let found = one_of_each().into_iter().filter_map(|(pid, namespace)| {
        let mut table = host::each_mount(Path::new(&format!("/proc/{pid}/mountinfo"))).ok()?;
        let entry = table.find(|found| found.device == device && found.is_volume())?;
        Some(Holder { namespace, pid, dir: entry.dir })
    });
    found.collect()
}

/// The mounts of all volumes in all namespaces, this namespace first, each mount once. Also whether
/// that is all.
pub fn all_mounts() -> (Vec<(Holder, MountEntry)>, bool) {
    let mut found = Vec::new();
    let mut shares: HashMap<Account, Share> = HashMap::new();
    let mut is_all = true;
    for (pid, namespace) in one_of_each() {
        let table = host::each_mount(Path::new(&format!("/proc/{pid}/mountinfo")));
        let owner = host::process_owner(pid).map(|(user, _)| Account::of(user));
        let share = shares.entry(owner.unwrap_or(Account::UNKNOWN)).or_default();
        for entry in table.into_iter().flatten() {
            let is_kept = owner.is_some_and(Account::is_trusted) || share.take(&entry);
            is_all &= is_kept;
            if !is_kept {
                break;
            }
            if entry.is_volume() {
                found.push((Holder { namespace, pid, dir: entry.dir.clone() }, entry));
            }
        }
    }
    (found, is_all)
}

/// How much was looked at of the mount tables of a user's namespaces. A user can make any number of
/// namespaces and of mounts in them.
#[derive(Default)]
struct Share {
    line_count: usize,
    volume_count: usize,
}

impl Share {
    /// Most lines of all tables, and most mounts of volumes.
    const LINE_LIMIT: usize = 200_000;
    const VOLUME_LIMIT: usize = 1024;

    /// Whether the entry is within the limits.
    fn take(&mut self, entry: &MountEntry) -> bool {
        self.line_count += 1;
        self.volume_count += usize::from(entry.is_volume());
        self.line_count <= Share::LINE_LIMIT && self.volume_count <= Share::VOLUME_LIMIT
    }
}

/// Opens a mount namespace, to pass it to [`detach`].
pub fn of_process(pid: &str) -> io::Result<File> {
    File::open(format!("/proc/{pid}/ns/mnt"))
}

/// What to do about a mount that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Manner {
    /// Fail.
    AtOnce,
    /// Wait for programs that only look at it.
    Patiently,
    /// Detach it.
    Lazily,
}

impl Manner {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("none is hidden");
        value.get_name().to_owned()
    }
}

/// Unmounts. A program that only looks at a mount (`onejournal ls`, `df`) has it in use for a
/// moment. So a mount that is in use is tried again until [`LOOK_PATIENCE`] has passed.
pub fn unmount_patiently(
    unmount: impl Fn() -> std::result::Result<(), MountError>,
) -> std::result::Result<(), MountError> {
    let begun = Instant::now();
    loop {
        match unmount() {
            Err(MountError::MountBusy(_)) if begun.elapsed() < LOOK_PATIENCE => {
                std::thread::sleep(TRY_EVERY);
            }
            unmounted => return unmounted,
        }
    }
}

/// How an attempt to remove mounts ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    Done,
    /// The namespace is that of a user who may not remove what it was copied with (`MNT_LOCKED` in
    /// mount_namespaces(7)), and so no user may.
    Locked,
}

/// Exit status of `onejournal detach` for [`Detached::Locked`].
const LOCKED_STATUS: u8 = 77;

/// Removes the mounts of `device` in `namespace`, through a process of its own.
pub fn detach(namespace: File, device: (u32, u32), manner: Manner) -> Result<Detached> {
    let (major, minor) = device;
    let mut command = Command::new("/proc/self/exe");
    command.arg("detach").arg(format!("{major}:{minor}")).arg(manner.name());
    let output = command.stdin(namespace).output();
    let output = output.map_err(|error| CliError::new(format!("/proc/self/exe: {error}")))?;
    match output.status.code() {
        Some(0) => return Ok(Detached::Done),
        Some(code) if code == i32::from(LOCKED_STATUS) => return Ok(Detached::Locked),
        _ => {}
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(CliError::new(text.trim().trim_start_matches("onejournal: ")))
}

#[derive(Args)]
pub struct DetachArgs {
    /// The number of the device, MAJOR:MINOR
    #[arg(value_parser = fusectl::parse_device)]
    device: (u32, u32),
    /// How mounts are removed that programs use
    manner: Manner,
}

/// `onejournal detach`, which [`detach`] runs: its standard input is the namespace.
pub fn run_detach(args: &DetachArgs) -> Result<u8> {
    let failed = |what: &str, errno| CliError::new(format!("{what}: {errno}"));
    // The namespace may have another /proc, or none.
    let process = rustix::fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/proc/self", errno))?;
    let stdin = io::stdin();
    let wanted = rustix::fs::fstat(&stdin).map_err(|errno| failed("standard input", errno))?;
    let own = NamespaceId::own().map_err(|error| CliError::new(error.to_string()))?;
    if (wanted.st_dev, wanted.st_ino) != (own.device, own.inode) {
        move_into_link_name_space(stdin.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|errno| failed("entering the mount namespace", errno))?;
    }
    let table = rustix::fs::openat(&process, "mountinfo", OFlags::RDONLY, Mode::empty())
        .map_err(|errno| failed("mountinfo", errno))?;
    let mut text = Vec::new();
    io::Read::read_to_end(&mut File::from(table), &mut text)
        .map_err(|error| CliError::new(error.to_string()))?;
    // The topmost first.
    let mounts = host::parse_mounts(&text).into_iter().rev();
    let unmounted = mounts
        .filter(|entry| entry.device == args.device && entry.is_volume())
        .try_for_each(|entry| match args.manner {
            Manner::AtOnce => in_place::unmount(&entry.dir, false),
            Manner::Patiently => unmount_patiently(|| in_place::unmount(&entry.dir, false)),
            Manner::Lazily => in_place::unmount(&entry.dir, true),
        });
    match unmounted {
        Ok(()) => Ok(0),
        Err(MountError::System { errno: Errno::INVAL, .. }) => Ok(LOCKED_STATUS),
        Err(error) => Err(CliError::new(error.to_string())),
    }
}

/// Unmounts for the daemon, through a process of its own.
#[derive(Debug)]
pub struct ByProcess;

impl Unmounter for ByProcess {
    fn unmount(&self, device: (u32, u32), lazily: bool) -> std::result::Result<(), MountError> {
        let failed = |why| MountError::Unmounter { why };
        let own = of_process("self").map_err(|error| failed(error.to_string()))?;
        let manner = if lazily { Manner::Lazily } else { Manner::AtOnce };
        match detach(own, device, manner).map_err(|error| failed(error.text))? {
            Detached::Done => Ok(()),
            Detached::Locked => Err(failed(Errno::INVAL.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_part_of_a_users_mounts_is_looked_at() {
        let entry = |kind| {
            let line = format!("31 20 0:66 / /mnt rw - {kind} source rw,user_id=7,group_id=0\n");
            host::parse_mounts(line.as_bytes()).remove(0)
        };
        let taken = |kind| {
            let (mut share, entry) = (Share::default(), entry(kind));
            std::iter::from_fn(|| share.take(&entry).then_some(())).count()
        };
        assert_eq!(taken("tmpfs"), Share::LINE_LIMIT);
        assert_eq!(taken("fuse.onejournal"), Share::VOLUME_LIMIT);
    }
}
