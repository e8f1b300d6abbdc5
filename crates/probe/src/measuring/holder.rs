//! What holds the bytes of an area: its mount, its medium, the disks below, and what they survive.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use device::{Durability, block_durability, known_durability};
use host::{MountEntry, Store, mount_of, store_of};
use rustix::fs::{Mode, OFlags};

use super::disks::{DisksBelow, disks_below_device, disks_below_file};
use super::medium::Medium;

/// What holds the bytes of an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The mount of a directory, as the mount table of this process shows it.
    pub mount: Option<MountEntry>,
    /// The medium. An overlay has that of the file system that stores its files.
    pub medium: Medium,
    /// The whole disks below.
    pub disks: DisksBelow,
    /// What durable writes survive. `None`: what stores the bytes is not known.
    pub durability: Option<Durability>,
}

impl Holder {
    /// The holder of the files of a directory.
    pub(crate) fn of_directory(dir: &Path) -> io::Result<Holder> {
        let own: OwnedFd = rustix::fs::open(
            dir,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let mount = mount_of(&own);
        let (store, store_mount) = match store_of(&own) {
            Store::Own => (own, mount.clone()),
            Store::Upper(upper) => {
                let mount = mount_of(&upper);
                (upper, mount)
            }
            Store::Unknown => {
                let disks = DisksBelow::unknown();
                return Ok(Holder { mount, medium: Medium::Other, disks, durability: None });
            }
        };
        let device = rustix::fs::fstat(&store)?.st_dev;
        // A loop device, or a RAM disk, may be below the file system.
        let durability = known_durability(&store).map(|own| own.min(block_durability(device)));
        Ok(Holder {
            mount,
            medium: Medium::of(&store, store_mount.as_ref()),
            disks: disks_below_file(store.as_fd())?,
            durability,
        })
    }

    /// The holder of the bytes of the block device with this number.
    pub(crate) fn of_device(device: u64) -> Holder {
        Holder {
            mount: None,
            medium: Medium::BlockDevice,
            disks: disks_below_device(device),
            durability: Some(block_durability(device)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_survives_nothing_and_is_on_no_disk() {
        if !onejournal_testing::has_shm() {
            return;
        }
        let found = Holder::of_directory(Path::new("/dev/shm")).expect("found");
        assert_eq!(found.mount.expect("a mount").dir, Path::new("/dev/shm"));
        assert_eq!((found.medium, found.durability), (Medium::Other, Some(Durability::Process)));
        assert_eq!((found.disks.disks.len(), found.disks.is_complete), (0, false));
    }
}
