//! The message about a disk that another user has: where it is mounted, by which process, and how
//! to end that. Nothing here sends a request to a mounted file system, because its server may be
//! stuck.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rustix::fs::{Statx, makedev};
use rustix::process::geteuid;

use super::proc_locks::Lock;
use crate::below::backing::{Backing, Root};
use crate::below::mount_table::{MountEntry, mounts_in, own_mounts};
use crate::below::sysfs::node_path;
use crate::error::InUse;
use crate::files::reach::cached_attributes;
use crate::files::trust::Trust;
use crate::processes::{process_name, process_owner, processes};

/// The kernel makes a line at a time, which must fit.
const FIRST_LINE_BYTES: usize = 4096;

/// The message about the disk `disk` at `path`. `through`: the block device that was found to be in
/// use.
pub(crate) fn describe(path: &Path, disk: &Backing, through: Option<u64>) -> InUse {
    let users = believed(path);
    let is_it = |entry: &MountEntry| is_mount_of(entry, disk, through, &users);
    let mounted = own_mounts().unwrap_or_default().into_iter().find(is_it);
    let process = holder(disk);
    let is_held_by_kernel = through.is_some() && mounted.is_none() && process.is_none();
    let (text, volume) = sentence(path, through, (is_it, &users), mounted.as_ref(), process);
    InUse { path: path.to_owned(), text, is_held_by_kernel, volume }
}

/// The message about a disk at `path` that the kernel uses as swap space, by the name `area`.
pub(crate) fn describe_swap(path: &Path, area: &Path) -> InUse {
    let area = area.display();
    let text = format!("in use as swap space ({area}); to end that: swapoff {area}");
    InUse { path: path.to_owned(), text, is_held_by_kernel: false, volume: None }
}

/// The message as one sentence, and the path by which a volume is unmounted. `is_it` finds its
/// mounts, of which those of `users` are believed. `mounted`: the mount in this namespace.
/// `process`: a process with a lock on the disk.
fn sentence(
    path: &Path,
    through: Option<u64>,
    (is_it, users): (impl Fn(&MountEntry) -> bool, &[u32]),
    mounted: Option<&MountEntry>,
    process: Option<i32>,
) -> (String, Option<PathBuf>) {
    let who = process.map(|id| format!("process {id} ({})", name_of(id)));
    if let Some(entry) = mounted {
        let (dir, kind) = (entry.dir.display(), &entry.kind);
        if entry.is_volume() {
            let by = who.map(|who| format!(" by {who}")).unwrap_or_default();
            return (format!("in use: mounted on {dir}{by}"), Some(entry.dir.clone()));
        }
        let node = node_path(entry.device_number());
        let node = node.display();
        let text =
            format!("in use: mounted on {dir} as {kind} ({node}); to unmount it: umount {dir}");
        return (text, None);
    }
    let elsewhere = find_elsewhere(is_it, users).map(|(id, entry)| {
        let dir = entry.dir.display();
        format!("mounted on {dir} in the mount namespace of process {id} ({})", name_of(id))
    });
    let volume = elsewhere.is_some().then(|| path.to_owned());
    let text = match (elsewhere, who, through) {
        (Some(place), _, _) => format!("in use: {place}"),
        (None, Some(who), _) => format!("in use by {who}"),
        (None, None, Some(device)) => format!(
            "in use: {} is open exclusively, and no process that is visible from here has a lock \
             on it (a mount in another namespace, swap, RAID, a check)",
            node_path(device).display()
        ),
        (None, None, None) => {
            "in use: a process that cannot be seen from here holds its lock (in another container, \
                               or on another machine that shares its file system)"
                .into()
        }
    };
    (text, volume)
}

/// The users whose mounts say truthfully what was mounted: root, this one, and the disk's owner.
fn believed(path: &Path) -> Vec<u32> {
    let owner = attributes(path).map(|found| found.stx_uid);
    [0, geteuid().as_raw()].into_iter().chain(owner).collect()
}

/// A volume's mount in another mount namespace, and the first process there.
///
/// The mount of its root directory tells which namespace it is. The link of `/proc` does, too, but
/// a process in execve(2) keeps everybody waiting who looks at its links.
fn find_elsewhere(is_it: impl Fn(&MountEntry) -> bool, users: &[u32]) -> Option<(i32, MountEntry)> {
    let mut seen = HashSet::new();
    let mut is_new = |table: &Path| root_mount(table).is_some_and(|root| seen.insert(root));
    is_new(Path::new("/proc/self/mountinfo"));
    let tables = processes().into_iter().map(|id| (id, format!("/proc/{id}/mountinfo")));
    let mut entries =
        tables.filter(|(_, table)| is_new(Path::new(table))).flat_map(|(id, table)| {
            let table = mounts_in(Path::new(&table)).unwrap_or_default();
            table.into_iter().map(move |entry| (id, entry))
        });
    // In a user namespace any user is shown as root. The kernel's device numbers are believed.
    let is_believed = |id, entry: &MountEntry| {
        entry.device.0 != 0 || process_owner(id).is_some_and(|(user, _)| users.contains(&user))
    };
    entries.find(|(id, entry)| entry.is_volume() && is_believed(*id, entry) && is_it(entry))
}

/// The kernel's number of a table's first mount, which no other namespace has. The kernel makes
/// no more of the table than is read.
fn root_mount(table: &Path) -> Option<Vec<u8>> {
    let mut table = BufReader::with_capacity(FIRST_LINE_BYTES, File::open(table).ok()?);
    let mut number = Vec::new();
    table.read_until(b' ', &mut number).ok()?;
    Some(number)
}

fn is_mount_of(entry: &MountEntry, disk: &Backing, through: Option<u64>, users: &[u32]) -> bool {
    if Some(entry.device_number()) == through {
        return true;
    }
    if entry.device.0 != 0 {
        let backing = Backing::of_device(entry.device_number());
        // A mount of a file on that device does not use the device's own bytes.
        return backing.is_ok_and(|backing| backing.overlaps(disk));
    }
    // Another user can name any source.
    entry.is_volume()
        && entry.is_of(users)
        && entry.source.is_absolute()
        && is_file(&entry.source, disk)
}

fn is_file(path: &Path, disk: &Backing) -> bool {
    let Some(found) = attributes(path) else { return false };
    match disk.root {
        Root::File { device, inode } => {
            makedev(found.stx_dev_major, found.stx_dev_minor) == device && found.stx_ino == inode
        }
        Root::Disk(device) => makedev(found.stx_rdev_major, found.stx_rdev_minor) == device,
    }
}

/// Attributes of the file at a path that another user may have chosen. `None` also if such a user
/// serves a part of the path: the mount whose source that is cannot be named then.
fn attributes(path: &Path) -> Option<Statx> {
    cached_attributes(Trust::own().and_root().reach(path).ok()?)
}

/// The process that holds a lock on a part of the disk, if it is visible.
fn holder(disk: &Backing) -> Option<i32> {
    let own = std::process::id().cast_signed();
    processes().into_iter().filter(|id| *id != own).find(|id| holds(*id, disk))
}

fn holds(id: i32, disk: &Backing) -> bool {
    let files = fs::read_dir(format!("/proc/{id}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.into_iter().any(|text| {
        let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.filter_map(Lock::parse).any(|lock| lock.is_on(disk))
    })
}

/// The name of the program, and its command if it is one of this project: "onejournal mount". The
/// command line of another user's process is not read: it is in the memory of that process, which
/// can keep its memory locked without an end.
fn name_of(id: i32) -> String {
    let name = process_name(id);
    let own = [0, geteuid().as_raw()];
    let is_own = process_owner(id).is_some_and(|(user, _)| own.contains(&user));
    if name != "onejournal" || !is_own {
        return name;
    }
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let command =
        line.split(|byte| *byte == 0).nth(1).and_then(|word| std::str::from_utf8(word).ok());
    command.map_or(name, |command| format!("onejournal {command}"))
}
