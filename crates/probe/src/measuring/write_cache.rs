//! What the kernel believes about the write cache of a disk, and where it has that from.

use std::fs;
use std::path::Path;

/// What the kernel believes about the write cache of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// "write back": a write may be in a cache that a power cut empties, until a flush.
    Volatile,
    /// "write through", and disks of this kind say whether they have a volatile cache: what was
    /// written is durable. The kernel sends no flushes.
    None,
    /// "write through", which the kernel also assumes if a disk of this kind says nothing. It sends
    /// no flushes.
    NotReported,
    /// It is not known.
    Unknown,
}

/// The write cache of the disk with this directory in sysfs.
pub(crate) fn write_cache(directory: &Path) -> WriteCache {
    match fs::read_to_string(directory.join("queue/write_cache")).unwrap_or_default().trim() {
        "write back" => WriteCache::Volatile,
        "write through" if always_reports(directory) => WriteCache::None,
        "write through" => WriteCache::NotReported,
        _ => WriteCache::Unknown,
    }
}

/// Whether every disk of this kind says whether it has a volatile cache. NVMe, virtio and
/// persistent memory have a field for that, and eMMC has one; SD cards have none. A SCSI disk says
/// it in a page that many do not have, above all behind USB bridges.
fn always_reports(directory: &Path) -> bool {
    let device = directory.join("device");
    let subsystem = fs::canonicalize(device.join("subsystem")).unwrap_or_default();
    match subsystem.file_name().and_then(|name| name.to_str()) {
        Some("nvme" | "nvme-subsystem" | "virtio" | "nd") => true,
        Some("mmc") => {
            fs::read_to_string(device.join("type")).is_ok_and(|kind| kind.trim() == "MMC")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The cache of a disk of this subsystem and type whose queue shows this text.
    fn found(subsystem: &str, kind: &str, text: &str) -> WriteCache {
        let sys = tempfile::tempdir().expect("a directory");
        let at = |name: &str| sys.path().join(name);
        for directory in ["disk/queue", "device", subsystem] {
            fs::create_dir_all(at(directory)).expect("made");
        }
        symlink(at("device"), at("disk/device")).expect("made");
        symlink(at(subsystem), at("device/subsystem")).expect("made");
        fs::write(at("device/type"), kind).expect("written");
        fs::write(at("disk/queue/write_cache"), text).expect("written");
        write_cache(&at("disk"))
    }

    #[test]
    fn write_through_is_believed_only_of_disks_that_report() {
        use WriteCache::{None, NotReported, Unknown, Volatile};
        let cases = [
            ("bus/nvme", "", None),
            ("bus/virtio", "", None),
            ("bus/nd", "", None),
            ("bus/mmc", "MMC\n", None),
            ("bus/mmc", "SD\n", NotReported),
            ("bus/scsi", "0\n", NotReported),
            ("bus/other", "", NotReported),
        ];
        for (subsystem, kind, expected) in cases {
            assert_eq!(found(subsystem, kind, "write through\n"), expected, "{subsystem} {kind}");
            assert_eq!(found(subsystem, kind, "write back\n"), Volatile);
            assert_eq!(found(subsystem, kind, ""), Unknown);
        }
        let nothing = tempfile::tempdir().expect("a directory");
        assert_eq!(write_cache(nothing.path()), Unknown);
    }
}
