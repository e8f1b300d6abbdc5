//! The next opening recovers what a crash leaves: journal, free counts, orphans, feature bits.

use crate::common;

use std::sync::Arc;

use common::{Image, open, options};
use device::MemoryDevice;
use onejournal_ext4::{Attr, Error, InodeNo, NewNode, OpenOptions, Owner, RootVolume};
use onejournal_testing::{SimDevice, Survival};

const VARIANTS: [&[&str]; 3] =
    [&[], &["-O", "metadata_csum_seed,orphan_file"], &["-O", "^metadata_csum,uninit_bg"]];

fn make(volume: &RootVolume, name: &str, node: NewNode<'_>) -> Attr {
    volume.make(InodeNo::ROOT, name.as_bytes(), node, 0o644, 0, Owner::default()).unwrap()
}

/// The device as a crash leaves it now: the volume is dropped, nothing more is written.
fn crash(volume: RootVolume, device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    drop(volume);
    Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512))
}

#[test]
fn synced_files_survive_and_the_counts_are_right() {
    for arguments in VARIANTS {
        let image = Image::new(arguments, "64M");
        let device = image.device();
        let volume = open(&device).unwrap();
        let file = make(&volume, "kept", NewNode::Regular).ino;
        make(&volume, "directory", NewNode::Directory);
        volume.write(file, 0, &[7; 300_000]).unwrap();
        volume.sync().unwrap();
        let stat = volume.stat_fs().unwrap();
        make(&volume, "lost", NewNode::Regular);
        let device = crash(volume, &device);
        let volume = open(&device).unwrap();
        assert_eq!(volume.stat_fs().unwrap(), stat, "{arguments:?}");
        let kept = volume.lookup(InodeNo::ROOT, b"kept").unwrap();
        assert_eq!(kept.size_bytes, 300_000);
        assert!(matches!(volume.lookup(InodeNo::ROOT, b"lost"), Err(Error::NotFound)));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn a_read_only_opening_recovers_too() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    make(&volume, "kept", NewNode::Regular);
    volume.sync().unwrap();
    let device = crash(volume, &device);
    let volume =
        RootVolume::open(device.clone(), OpenOptions { read_only: true, ..options() }).unwrap();
    volume.lookup(InodeNo::ROOT, b"kept").unwrap();
    image.assert_clean(&device);
}

#[test]
fn unlinked_open_files_are_freed_after_a_crash() {
    for arguments in VARIANTS {
        let image = Image::new(arguments, "64M");
        let device = image.device();
        let volume = open(&device).unwrap();
        let before = volume.stat_fs().unwrap();
        let names: Vec<String> = (0..20).map(|i| format!("f{i}")).collect();
        let files: Vec<InodeNo> =
            names.iter().map(|name| make(&volume, name, NewNode::Regular).ino).collect();
        for (file, name) in files.iter().zip(&names) {
            volume.write(*file, 0, &[1; 50_000]).unwrap();
            volume.unlink(InodeNo::ROOT, name.as_bytes()).unwrap();
        }
        // Some are closed again, from the middle, both ends, and in both directions.
        for index in [10, 0, 19, 11, 9, 5, 6] {
            volume.forget(files[index], 1);
        }
        assert_eq!(volume.get_attr(files[3]).unwrap().link_count, 0);
        volume.sync().unwrap();
        let device = crash(volume, &device);
        let volume = open(&device).unwrap();
        assert_eq!(volume.stat_fs().unwrap(), before, "{arguments:?}");
        assert!(matches!(volume.get_attr(files[3]), Err(Error::NotFound)));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn unlinked_open_files_are_freed_at_closing() {
    for arguments in VARIANTS {
        let image = Image::new(arguments, "64M");
        let device = image.device();
        let volume = open(&device).unwrap();
        for name in ["a", "b", "c"] {
            let file = make(&volume, name, NewNode::Regular).ino;
            volume.write(file, 5_000_000, b"end").unwrap();
            volume.unlink(InodeNo::ROOT, name.as_bytes()).unwrap();
        }
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// A write of the superblock can be torn between its two sectors.
#[test]
fn a_torn_mark_is_understood() {
    let image = Image::new(&[], "64M");
    let unmarked = image.bytes();
    let device = image.device();
    let volume = open(&device).unwrap();
    let marked = crash(volume, &device).to_bytes();
    for sector in [1024..1536, 1536..2048] {
        for (base, other) in [(&marked, &unmarked), (&marked, &marked)] {
            let mut torn = base.clone();
            torn[sector.clone()].copy_from_slice(&other[sector.clone()]);
            let device = Arc::new(MemoryDevice::from_bytes(torn, 512));
            open(&device).unwrap().close().unwrap();
            image.assert_clean(&device);
        }
    }
}

/// The superblock is wrong at home where the journal says what is right: as it is when a
/// checkpoint's write of it was torn.
#[test]
fn a_torn_superblock_is_recovered_from_the_journal() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    make(&volume, "kept", NewNode::Regular);
    volume.sync().unwrap();
    let mut bytes = crash(volume, &device).to_bytes();
    bytes[1024 + 0x2F] ^= 0xFF; // of s_mtime, which the first transaction of the mount changes
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let volume = open(&device).unwrap();
    volume.lookup(InodeNo::ROOT, b"kept").unwrap();
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn space_freed_and_not_committed_can_be_had_again() {
    let image = Image::new(&[], "32M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let chunk = vec![3; 1 << 20];
    for round in 0..3 {
        let file = make(&volume, "big", NewNode::Regular).ino;
        let mut offset = 0;
        let full = loop {
            match volume.write(file, offset, &chunk) {
                Ok(count) => offset += count as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        assert!(offset > 20 << 20, "round {round}: full after {offset} bytes");
        volume.unlink(InodeNo::ROOT, b"big").unwrap();
        volume.forget(file, 1);
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// The power fails at every event of a short mount, from before the marks are set until after they
/// came off.
#[test]
fn every_cut_of_a_mount_is_recovered() {
    let image = Image::new(&["-O", "orphan_file"], "16M");
    let formatted = image.device();
    open(&formatted).unwrap().close().unwrap(); // the first mount writes zeros: not again
    let device = Arc::new(SimDevice::from_bytes(&formatted.to_bytes(), 512));
    device.start_trace();
    let volume = RootVolume::open(device.clone(), options()).unwrap();
    let open_file = make(&volume, "open", NewNode::Regular).ino;
    volume.write(open_file, 0, &[1; 20_000]).unwrap();
    volume.unlink(InodeNo::ROOT, b"open").unwrap();
    make(&volume, "kept", NewNode::Regular);
    volume.sync().unwrap();
    device.mark(1);
    volume.close().unwrap();
    let trace = device.take_trace();
    let mut cursor = trace.cursor();
    for cut in trace.cuts() {
        cursor.advance_to(cut);
        for survival in [Survival::Nothing, Survival::Random(cut as u64)] {
            let crashed = cursor.crash(survival).to_bytes();
            let device = Arc::new(MemoryDevice::from_bytes(crashed, 512));
            let what = format!("cut {cut} of {}, {survival:?}", trace.cuts().count());
            let volume = open(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
            let kept = volume.lookup(InodeNo::ROOT, b"kept").is_ok();
            assert!(kept || trace.marks_before(cut).next().is_none(), "{what}: lost");
            volume.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            image.assert_clean(&device);
        }
    }
}
