//! The message about a disk that another user has: where it is mounted, by which process, and how
//! to end that. Nothing here sends a request to a mounted file system, because its server may be
//! stuck.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use super::proc_locks::Lock;
use crate::below::backing::{Backing, Root};
use crate::below::mount_table::{MountEntry, mounts_in, own_mounts};
use crate::below::sysfs::node_path;
use crate::error::InUse;
use crate::process::processes::{process_name, process_owner, processes};

/// The message about the disk `disk` at `path`. `through`: the block device that was found to be in
/// use.
pub(crate) fn describe(path: &Path, disk: &Backing, through: Option<u64>) -> InUse {
    let users = believed(path);
    let is_it = |entry: &MountEntry| is_mount_of(entry, disk, through, &users);
    let mounted = own_mounts().unwrap_or_default().into_iter().find(is_it);
    let process = holder(disk);
    let is_held_by_kernel = through.is_some() && mounted.is_none() && process.is_none();
    let text = sentence(path, through, (is_it, &users), mounted.as_ref(), process);
    InUse { path: path.to_owned(), text, is_held_by_kernel }
}

/// The message about a disk at `path` that the kernel uses as swap space, by the name `area`.
pub(crate) fn describe_swap(path: &Path, area: &Path) -> InUse {
    let area = area.display();
    let text = format!("in use as swap space ({area}); to end that: swapoff {area}");
    InUse { path: path.to_owned(), text, is_held_by_kernel: false }
}

/// The message as one sentence. `is_it` finds its mounts, of which those of `users` are believed.
/// `mounted`: the mount in this namespace. `process`: a process with a lock on the disk.
fn sentence(
    path: &Path,
    through: Option<u64>,
    (is_it, users): (impl Fn(&MountEntry) -> bool, &[u32]),
    mounted: Option<&MountEntry>,
    process: Option<i32>,
) -> String {
    let who = process.map(|id| format!("process {id} ({})", name_of(id)));
    if let Some(entry) = mounted {
        let dir = entry.dir.display();
        return match (entry.is_volume(), who) {
            (true, Some(who)) => {
                format!("in use: mounted on {dir} by {who}; to unmount it: onejournal umount {dir}")
            }
            (true, None) => {
                format!("in use: mounted on {dir}; to unmount it: onejournal umount {dir}")
            }
            (false, _) => {
                let (kind, node) = (&entry.kind, node_path(entry.device_number()));
                let node = node.display();
                format!("in use: mounted on {dir} as {kind} ({node}); to unmount it: umount {dir}")
            }
        };
    }
    let elsewhere = find_elsewhere(is_it, users).map(|(id, entry)| {
        let dir = entry.dir.display();
        format!("mounted on {dir} in the mount namespace of process {id} ({})", name_of(id))
    });
    match (elsewhere, who, through) {
        (Some(place), _, _) => {
            format!("in use: {place}; to unmount it: onejournal umount {}", path.display())
        }
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
    }
}

/// The users whose mounts say truthfully what was mounted: root, this one, and the disk's owner.
fn believed(path: &Path) -> Vec<u32> {
    let owner = fs::metadata(path).ok().map(|found| found.uid());
    [0, geteuid().as_raw()].into_iter().chain(owner).collect()
}

/// A volume's mount in another mount namespace, and the first process there.
fn find_elsewhere(is_it: impl Fn(&MountEntry) -> bool, users: &[u32]) -> Option<(i32, MountEntry)> {
    let namespace = |id: &i32| fs::metadata(format!("/proc/{id}/ns/mnt")).map(|found| found.ino());
    let mut seen = HashSet::new();
    let mut is_new = |id: &i32| namespace(id).is_ok_and(|namespace| seen.insert(namespace));
    is_new(&std::process::id().cast_signed());
    let others = processes().into_iter().filter(is_new);
    let mut entries = others.flat_map(|id| {
        let table = mounts_in(Path::new(&format!("/proc/{id}/mountinfo")));
        table.unwrap_or_default().into_iter().map(move |entry| (id, entry))
    });
    // In a user namespace any user is shown as root. The kernel's device numbers are believed.
    let is_believed = |id, entry: &MountEntry| {
        entry.device.0 != 0 || process_owner(id).is_some_and(|(user, _)| users.contains(&user))
    };
    entries.find(|(id, entry)| entry.is_volume() && is_believed(*id, entry) && is_it(entry))
}

fn is_mount_of(entry: &MountEntry, disk: &Backing, through: Option<u64>, users: &[u32]) -> bool {
    if Some(entry.device_number()) == through {
        return true;
    }
    if entry.device.0 != 0 {
        let backing = Backing::of_device(entry.device_number());
        // What is a file on that device is no use of the device's own bytes.
        return backing.is_ok_and(|backing| backing.overlaps(disk));
    }
    // Another user's source may be a path that never answers.
    entry.is_volume()
        && entry.is_of(users)
        && entry.source.is_absolute()
        && is_file(&entry.source, disk)
}

fn is_file(path: &Path, disk: &Backing) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    match disk.root {
        Root::File { device, inode } => found.dev() == device && found.ino() == inode,
        Root::Disk(device) => found.rdev() == device,
    }
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

/// The name of the program, and its command if it is one of this project: "onejournal mount".
fn name_of(id: i32) -> String {
    let name = process_name(id);
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let command =
        line.split(|byte| *byte == 0).nth(1).and_then(|word| std::str::from_utf8(word).ok());
    match (name.as_str(), command) {
        ("onejournal", Some(command)) => format!("onejournal {command}"),
        (name, _) => name.to_owned(),
    }
}
