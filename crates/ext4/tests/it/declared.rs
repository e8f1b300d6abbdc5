//! Files that are declared to need atomic writes: the declaration is inherited and durable, the
//! volume knows that it has such files, and nothing gives them a data mode that tears.

use crate::common;

use std::sync::Arc;

use common::{Image, make, open_in, options};
use device::MemoryDevice;
use onejournal_ext4::{
    ATOMIC_VOLUME_XATTR, ATOMIC_XATTR, DATA_MODE_XATTR, DataMode, Error, FileKind, InodeNo,
    NewNode, OpenOptions, Owner, RootVolume, SetAttr, XattrFlags,
};
use onejournal_testing::{SimDevice, Survival};

const JOURNAL_DATA: u32 = 0x4000;
const SIZE: &[u8] = b"16384";

fn set(volume: &RootVolume, ino: InodeNo, name: &str, value: &[u8]) -> Result<(), Error> {
    volume.set_xattr(ino, name.as_bytes(), value, XattrFlags::Any)
}

fn declare(volume: &RootVolume, ino: InodeNo) {
    set(volume, ino, ATOMIC_XATTR, SIZE).unwrap();
}

fn make_in(volume: &RootVolume, parent: InodeNo, name: &str, node: NewNode<'_>) -> InodeNo {
    volume.make(parent, name.as_bytes(), node, 0o755, 0, Owner::default()).unwrap().ino
}

fn change_flag(volume: &RootVolume, ino: InodeNo, is_on: bool) -> Result<(), Error> {
    let flags = volume.get_attr(ino)?.flags;
    let flags = if is_on { flags | JOURNAL_DATA } else { flags & !JOURNAL_DATA };
    volume.set_attr(ino, &SetAttr { flags: Some(flags), ..SetAttr::default() }).map(drop)
}

#[track_caller]
fn refused(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::WouldTear)), "{result:?}");
}

fn reopened(volume: RootVolume, device: &Arc<MemoryDevice>, mode: DataMode) -> RootVolume {
    volume.close().unwrap();
    open_in(device.clone(), mode)
}

#[test]
fn new_files_inherit_the_declaration() {
    for mode in DataMode::ALL {
        let image = Image::new(&[], "64M");
        let device = image.device();
        let volume = open_in(device.clone(), mode);
        let (root, dir_node) = (InodeNo::ROOT, NewNode::Directory);
        let dir = make_in(&volume, root, "dir", dir_node);
        declare(&volume, dir);
        let below = make_in(&volume, dir, "below", dir_node);
        let file = make_in(&volume, below, "file", NewNode::Regular);
        let unnamed = volume.make_unnamed(below, 0o644, 0, Owner::default()).unwrap().ino;
        let link = make_in(&volume, below, "link", NewNode::Symlink(b"file"));
        let fifo = make_in(&volume, below, "fifo", NewNode::Special(FileKind::Fifo, 0));
        let beside = make(&volume, "beside");
        let volume = {
            assert_eq!(volume.declared_bytes_of(unnamed).unwrap(), Some(16384));
            volume.forget(unnamed, 1);
            reopened(volume, &device, mode)
        };
        for ino in [dir, below, file] {
            assert_eq!(volume.declared_bytes_of(ino).unwrap(), Some(16384), "{mode:?}");
            assert_eq!(volume.get_xattr(ino, ATOMIC_XATTR.as_bytes()).unwrap(), SIZE);
            assert!(volume.data_mode_of(ino).unwrap().is_atomic(), "{mode:?}");
            assert!(volume.atomic_write_bytes_of(ino).unwrap() >= 16384, "{mode:?}");
        }
        for ino in [link, fifo, beside] {
            assert_eq!(volume.declared_bytes_of(ino).unwrap(), None);
        }
        assert_eq!(volume.data_mode_of(beside).unwrap(), mode);
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// Whatever the default is, with or without the declaration, and when it changes.
#[test]
fn a_declared_file_takes_no_default_that_tears() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let mut volume = open_in(device.clone(), DataMode::Ordered);
    let ino = make(&volume, "file");
    assert_eq!(volume.data_mode_of(ino).unwrap(), DataMode::Ordered);
    declare(&volume, ino);
    for mode in DataMode::ALL {
        volume = reopened(volume, &device, mode);
        let kept = if mode.is_atomic() { mode } else { DataMode::Auto };
        assert_eq!(volume.data_mode_of(ino).unwrap(), kept, "{mode:?}");
    }
    volume = reopened(volume, &device, DataMode::Ordered);
    volume.remove_xattr(ino, ATOMIC_XATTR.as_bytes()).unwrap();
    assert_eq!(volume.data_mode_of(ino).unwrap(), DataMode::Ordered);
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// Every way to change a mode, for files and directories.
#[test]
fn no_door_gives_a_declared_inode_a_mode_that_tears() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open_in(device.clone(), DataMode::Delta);
    let dir = make_in(&volume, InodeNo::ROOT, "dir", NewNode::Directory);
    for ino in [make(&volume, "file"), dir] {
        declare(&volume, ino);
        for mode in DataMode::ALL {
            let name = mode.name().as_bytes();
            if mode.is_atomic() {
                volume.set_data_mode(ino, Some(mode)).unwrap();
                set(&volume, ino, DATA_MODE_XATTR, name).unwrap();
            } else {
                let before = volume.data_mode_of(ino).unwrap();
                refused(volume.set_data_mode(ino, Some(mode)));
                refused(set(&volume, ino, DATA_MODE_XATTR, name));
                assert_eq!(volume.data_mode_of(ino).unwrap(), before, "nothing was changed");
            }
        }
        volume.set_data_mode(ino, None).unwrap();
        // With the flag, the mode of the attribute does not count, until the flag goes.
        volume.remove_xattr(ino, ATOMIC_XATTR.as_bytes()).unwrap();
        volume.set_data_mode(ino, Some(DataMode::Ordered)).unwrap();
        change_flag(&volume, ino, true).unwrap();
        declare(&volume, ino);
        refused(change_flag(&volume, ino, false));
        assert_eq!(volume.data_mode_of(ino).unwrap(), DataMode::Journal);
        volume.set_data_mode(ino, Some(DataMode::Auto)).unwrap();
        change_flag(&volume, ino, false).unwrap();
        // A file that has such a mode is not declared.
        volume.remove_xattr(ino, ATOMIC_XATTR.as_bytes()).unwrap();
        volume.set_data_mode(ino, Some(DataMode::Selective)).unwrap();
        refused(set(&volume, ino, ATOMIC_XATTR, SIZE));
        assert_eq!(volume.declared_bytes_of(ino).unwrap(), None);
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn declarations_that_the_volume_cannot_keep_are_refused() {
    let image = Image::new(&["-J", "size=4"], "64M");
    let device = image.device();
    let volume = open_in(device.clone(), DataMode::Auto);
    let ino = make(&volume, "file");
    assert_eq!(volume.untorn_bytes(), 64 << 10);
    refused(set(&volume, ino, ATOMIC_XATTR, b"131072"));
    volume.set_unsplit_write_bytes(0);
    refused(set(&volume, ino, ATOMIC_XATTR, b"4096"));
    assert_eq!(volume.declared_bytes(), 0, "the volume has no declared file");
    volume.set_unsplit_write_bytes(u64::MAX);
    for value in ["", "yes", "12288", "2048", "2097152"] {
        let set = set(&volume, ino, ATOMIC_XATTR, value.as_bytes());
        assert!(matches!(set, Err(Error::InvalidArgument)), "{value:?}: {set:?}");
    }
    let link = make_in(&volume, InodeNo::ROOT, "link", NewNode::Symlink(b"file"));
    let set = set(&volume, link, ATOMIC_XATTR, b"4096");
    assert!(matches!(set, Err(Error::NotPermitted)), "{set:?}");
    assert_eq!(volume.declared_bytes(), 0);
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn the_volume_knows_the_largest_size_until_it_is_told_to_forget() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let mut volume = open_in(device.clone(), DataMode::Auto);
    let (one, other) = (make(&volume, "one"), make(&volume, "other"));
    assert_eq!(volume.declared_bytes(), 0);
    set(&volume, one, ATOMIC_XATTR, b"32768").unwrap();
    set(&volume, other, ATOMIC_XATTR, b"8192").unwrap();
    volume.remove_xattr(one, ATOMIC_XATTR.as_bytes()).unwrap();
    // A copy of the root does not take it along, and only the volume itself sets it.
    let root = InodeNo::ROOT;
    let names = volume.list_xattr(root).unwrap();
    assert!(!names.contains(&ATOMIC_VOLUME_XATTR.as_bytes().to_vec()), "{names:?}");
    for ino in [root, one] {
        let set = set(&volume, ino, ATOMIC_VOLUME_XATTR, b"4096");
        assert!(matches!(set, Err(Error::NotPermitted)), "{set:?}");
        let removed = volume.remove_xattr(ino, ATOMIC_VOLUME_XATTR.as_bytes());
        assert!(matches!(removed, Err(Error::NotPermitted)), "{removed:?}");
    }
    volume = reopened(volume, &device, DataMode::Ordered);
    assert_eq!(volume.declared_bytes(), 32768);
    volume.forget_declared().unwrap();
    volume = reopened(volume, &device, DataMode::Auto);
    assert_eq!(
        (volume.declared_bytes(), volume.declared_bytes_of(other).unwrap()),
        (0, Some(8192))
    );
    set(&volume, other, ATOMIC_XATTR, b"8192").unwrap();
    assert_eq!(volume.declared_bytes(), 8192, "declared anew");
    volume.close().unwrap();
    image.assert_clean(&device);
    let read_only = OpenOptions { read_only: true, ..options() };
    let volume = RootVolume::open(device, read_only).unwrap();
    assert!(volume.declared_bytes_of(other).unwrap().is_some());
}

/// Wherever the power is cut: no declared file on a volume that does not know it.
#[test]
fn a_crash_leaves_no_declared_file_that_the_volume_does_not_know() {
    let device = Image::new(&["-J", "size=4"], "32M").sim_device();
    let volume = open_in(device.clone(), DataMode::Journal);
    // Each has its inode in a block of its own.
    let far = |name: &str| {
        for nth in 0..16 {
            make(&volume, &format!("before {name} {nth}"));
        }
        make(&volume, name)
    };
    let (filler, file) = (far("filler"), far("file"));
    let touched: Vec<InodeNo> = (0..16).map(|nth| far(&format!("touched {nth}"))).collect();
    let most = volume.journal().max_credit_count();
    volume.write(filler, 0, &vec![7; most * 4096]).unwrap();
    // How many more blocks of data fit. After them, there is room for a few changes of attributes.
    let begun = most - 70;
    volume.journal().checkpoint().unwrap();
    volume.write(filler, 0, &vec![1; begun * 4096]).unwrap();
    let full = volume.journal().running_tid();
    let mut fitting_count = 0;
    while volume.journal().running_tid() == full {
        let at = ((begun + fitting_count) * 4096) as u64;
        volume.write(filler, at, &[1; 4096]).unwrap();
        fitting_count += 1;
    }
    let mut between = 0;
    for touched_count in 0..touched.len() {
        volume.forget_declared().unwrap();
        volume.journal().checkpoint().unwrap();
        let noise = 2 + touched_count as u8;
        volume.write(filler, 0, &vec![noise; begun * 4096]).unwrap();
        for nth in 0..fitting_count - 1 {
            let at = ((begun + nth) * 4096) as u64;
            volume.write(filler, at, &[noise; 4096]).unwrap();
        }
        for ino in &touched[..touched_count] {
            set(&volume, *ino, "user.touched", &[noise]).unwrap();
        }
        declare(&volume, file);
        let image = device.crash(Survival::Nothing);
        let crashed = open_in(Arc::new(SimDevice::from_image(image, 512)), DataMode::Journal);
        let is_declared = crashed.declared_bytes_of(file).unwrap().is_some();
        let is_known = crashed.declared_bytes() > 0;
        assert!(is_known || !is_declared, "{touched_count}");
        between += usize::from(is_known && !is_declared);
        volume.remove_xattr(file, ATOMIC_XATTR.as_bytes()).unwrap();
    }
    assert!(between > 0, "no crash came between the two");
}
