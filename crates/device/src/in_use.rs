//! What to say of a disk that somebody else uses: where it is mounted, by which process, and what
//! ends that. Nothing here asks a mounted file system: its server may be stuck.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::backing::{Backing, Root, node_path};
use crate::mount_table::{Mounted, mounts};
use crate::other_users::Lock;

/// Why a disk cannot be had: a sentence without its path. `through`: the block device that was
/// found to be in use.
pub(crate) fn describe(disk: &Backing, through: Option<u64>) -> String {
    let process = holder(disk);
    let table = process.map_or("/proc/self/mountinfo".into(), |id| format!("/proc/{id}/mountinfo"));
    let is_it = |mounted: &Mounted| is_mount_of(mounted, disk, through);
    let mounted = mounts("/proc/self/mountinfo").into_iter().find(is_it);
    let mounted = mounted.or_else(|| mounts(table).into_iter().find(is_it));
    match (mounted, process) {
        (Some(mounted), Some(id)) if mounted.is_ours() => format!(
            "in use: mounted on {0} by process {id}; to unmount it: onejournal umount {0}",
            mounted.point.display()
        ),
        (Some(mounted), _) if mounted.is_ours() => format!(
            "in use: mounted on {0}; to unmount it: onejournal umount {0}",
            mounted.point.display()
        ),
        (Some(Mounted { device, point, kind, .. }), _) => format!(
            "in use: mounted on {0} as {kind} ({1}); to unmount it: umount {0}",
            point.display(),
            node_path(device).display()
        ),
        (None, Some(id)) => format!("in use by process {id} ({})", name_of(id)),
        (None, None) => match through {
            Some(device) => format!(
                "in use: somebody has {} open exclusively (a mount in another namespace, swap, \
                 RAID, a check)",
                node_path(device).display()
            ),
            None => "in use: a process that cannot be seen from here holds its lock (in another \
                     container, or on another machine that shares its file system)"
                .into(),
        },
    }
}

fn is_mount_of(mounted: &Mounted, disk: &Backing, through: Option<u64>) -> bool {
    if Some(mounted.device) == through {
        return true;
    }
    let is_block = rustix::fs::major(mounted.device) != 0;
    if is_block {
        let backing = Backing::of_device(mounted.device);
        // What is a file on that device is no use of the device's own bytes.
        return backing.is_ok_and(|backing| backing.overlaps(disk));
    }
    mounted.is_ours() && mounted.source.is_absolute() && is_file(&mounted.source, disk)
}

fn is_file(path: &Path, disk: &Backing) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    match disk.root {
        Root::File { device, inode } => found.dev() == device && found.ino() == inode,
        Root::Disk(device) => found.rdev() == device,
    }
}

/// The process that holds a lock on a part of the disk, as far as it can be seen.
fn holder(disk: &Backing) -> Option<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != own).find(|id| holds(*id, disk))
}

fn holds(id: u32, disk: &Backing) -> bool {
    let files = fs::read_dir(format!("/proc/{id}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.into_iter().any(|text| {
        let locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.filter_map(Lock::parse).any(|lock| lock.is_on(disk))
    })
}

fn name_of(id: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    name.trim().to_owned()
}
