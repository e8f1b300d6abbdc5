//! Opening and closing volumes as `mke2fs` makes them, refusing other volumes, and the feature
//! bits.

use crate::common;

use std::sync::Arc;

use common::{Image, open, options, refused};
use device::{MemoryDevice, Metered};
use onejournal_ext4::{
    Error, InodeNo, JournalChoice, NewNode, OpenOptions, Owner, RootVolume, Volume,
};

const VARIANTS: [&[&str]; 6] = [
    &[],
    &["-O", "metadata_csum_seed,orphan_file"],
    &["-O", "^metadata_csum,uninit_bg"],
    &["-O", "^metadata_csum,^64bit"],
    &["-O", "^flex_bg,^resize_inode"],
    &["-O", "sparse_super2,fast_commit"],
];

#[test]
fn opening_and_closing_leaves_a_clean_volume() {
    for arguments in VARIANTS {
        let image = Image::new(arguments, "160M");
        let device = image.device();
        for _ in 0..2 {
            open(&device).unwrap().close().unwrap();
            image.assert_clean(&device);
        }
        let superblock = &image.bytes()[1024..2048];
        assert_eq!(superblock[0x34], 2, "the mount count of {arguments:?}");
        assert_eq!(superblock[0x60] & 4, 0, "needs_recovery is off");
    }
}

#[test]
fn a_read_only_volume_is_not_written() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let options = OpenOptions { read_only: true, ..options() };
    let volume = RootVolume::open(device.clone(), options).unwrap();
    assert!(volume.is_read_only());
    assert_eq!(volume.get_attr(InodeNo::ROOT).unwrap().link_count, 3);
    volume.lookup(InodeNo::ROOT, b"lost+found").unwrap();
    let made = volume.make(InodeNo::ROOT, b"x", NewNode::Regular, 0o644, 0, Owner::default());
    assert!(matches!(made, Err(Error::ReadOnly)));
    volume.close().unwrap();
    assert!(device.to_bytes() == image.bytes());
}

#[test]
fn a_read_only_volume_becomes_writable_and_keeps_its_pins() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = RootVolume::open(device.clone(), options()).unwrap();
    let owner = Owner::default();
    let file = volume.make(InodeNo::ROOT, b"f", NewNode::Regular, 0o644, 0, owner).unwrap().ino;
    volume.write(file, 0, b"content").unwrap();
    volume.close().unwrap();
    let read_only = OpenOptions { read_only: true, ..options() };
    let first = Volume::open(device.clone(), read_only.clone()).unwrap();
    assert_eq!(first.lookup(InodeNo::ROOT, b"f").unwrap().ino, file);
    let mut volume = first.reopen_writable(JournalChoice::Own).unwrap();
    volume.take_place_of(first);
    assert!(!volume.is_read_only());
    volume.unlink(InodeNo::ROOT, b"f").unwrap();
    let mut bytes = [0; 7];
    volume.read(file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"content");
    assert!(volume.has_deleted_files());
    volume.forget(file, 1);
    assert!(!volume.has_deleted_files());
    // One that was opened to write has nothing to become.
    assert!(matches!(volume.reopen_writable(JournalChoice::Own), Err(Error::ReadOnly)));
    volume.close().unwrap();
    image.assert_clean(&device);
    // Another user opens the volume meanwhile.
    let first = Volume::open(device.clone(), read_only).unwrap();
    RootVolume::open(device, options()).unwrap().close().unwrap();
    match first.reopen_writable(JournalChoice::Own).map(drop) {
        Err(Error::NeedsCheck(why)) => assert!(why.contains("another user"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_features_and_sizes_are_refused_by_name() {
    let cases: [(&[&str], &str); 17] = [
        (&["-O", "bigalloc"], "bigalloc"),
        (&["-O", "quota"], "quota"),
        (&["-O", "project,quota"], "project"),
        (&["-O", "inline_data"], "inline_data"),
        (&["-O", "encrypt"], "encrypt"),
        (&["-O", "casefold"], "casefold"),
        (&["-O", "verity"], "verity"),
        (&["-O", "mmp"], "mmp"),
        (&["-O", "ea_inode"], "ea_inode"),
        (&["-O", "large_dir"], "large_dir"),
        (&["-O", "meta_bg,^resize_inode"], "meta_bg"),
        (&["-O", "^has_journal"], "has_journal"),
        (&["-O", "^extent,^64bit"], "extent"),
        (&["-O", "^huge_file"], "huge_file"),
        (&["-b", "1024"], "blocks have 1024 bytes"),
        (&["-I", "128"], "inodes have 128 bytes"),
        (&["-I", "512"], "inodes have 512 bytes"),
    ];
    for (arguments, word) in cases {
        let image = Image::new(arguments, "64M");
        match refused(&image.device()) {
            Error::Incompatible(why) => assert!(why.contains(word), "{arguments:?}: {why}"),
            other => panic!("{arguments:?}: {other}"),
        }
    }
}

#[test]
fn a_device_without_a_volume_is_refused() {
    for size_bytes in [0, 512, 4096, 1 << 20] {
        let device = Arc::new(MemoryDevice::new(size_bytes, 512));
        assert!(matches!(refused(&device), Error::NoVolume(_)));
    }
}

#[test]
fn a_device_smaller_than_the_volume_is_refused() {
    let image = Image::new(&[], "64M");
    let mut bytes = image.bytes();
    bytes.truncate(60 << 20);
    let device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), 512));
    assert!(matches!(refused(&device), Error::EndMissing { needed_bytes: 0x400_0000, .. }));
    // The count itself is damaged.
    bytes[1024 + 5] ^= 1;
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    assert!(matches!(refused(&device), Error::Corrupt { .. }));
}

#[test]
fn a_kernel_journal_that_is_not_empty_is_refused() {
    let image = Image::new(&[], "64M");
    image.debugfs("feature needs_recovery");
    match refused(&image.device()) {
        Error::NeedsCheck(why) => assert!(why.contains("e2fsck -p"), "{why}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_volume_with_errors_is_refused() {
    let image = Image::new(&[], "64M");
    image.debugfs("ssv state 2");
    assert!(matches!(refused(&image.device()), Error::MarkedAsDamaged));
}

#[test]
fn e2fsck_does_not_touch_a_mounted_volume() {
    for arguments in VARIANTS {
        let image = Image::new(arguments, "64M");
        let device = image.device();
        let volume = open(&device).unwrap();
        let made = volume.make(InodeNo::ROOT, b"x", NewNode::Regular, 0o644, 0, Owner::default());
        volume.fsync(made.unwrap().ino, false).unwrap();
        let mounted = device.to_bytes();
        image.put(&mounted);
        for how in ["-fy", "-p", "-fp"] {
            let (code, text) = image.e2fsck(how);
            assert!(code & 0xC != 0, "{arguments:?}: e2fsck {how}: {code} {text}");
            assert!(image.bytes() == mounted, "{arguments:?}: e2fsck {how} wrote: {text}");
        }
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn descriptors_are_read_once_when_one_flex_group_has_all_metadata() {
    let small = ["-g", "256", "-N", "2048", "-O", "^resize_inode", "-J", "size=40"];
    for how in [["-G", "128"], ["-E", "packed_meta_blocks=1"]] {
        let image = Image::new(&[&small[..], &how[..]].concat(), "127M");
        let device = Arc::new(Metered::new(MemoryDevice::from_bytes(image.bytes(), 512)));
        let volume = RootVolume::open(device.clone(), options()).unwrap();
        let read_count = device.counters().read_count;
        assert!(read_count < 40, "{how:?}: {read_count} reads for 127 groups");
        volume.close().unwrap();
    }
}
