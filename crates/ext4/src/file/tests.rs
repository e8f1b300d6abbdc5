//! Promises of file data that the model does not see, and images made to attack.

use std::sync::Arc;

use device::{MemoryDevice, Metered};

use super::model::{BLOCK, MODES, SMALL_GROUPS, read_all, set_size};
use crate::bench::Bench;
use crate::extent;
use crate::inode::read_inode;
use crate::{
    Allocate, DataMode, Error, InodeNo, NewNode, OpenOptions, Owner, Result, RootVolume, SeekTo,
};
use onejournal_testing::{test_name, tier};

/// The first of several operations of a truncate is durable, and the others never ran.
#[test]
fn an_interrupted_truncate_is_finished_at_the_next_opening() {
    let bench = Bench::with_options(DataMode::Ordered, 96, 1, &SMALL_GROUPS);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let data = vec![7; 70 << 20];
    volume.write(ino, 0, &data).expect("a write");
    let rest = volume
        .spending()
        .with_op(crate::extent::FREE_CREDIT_COUNT, |op| {
            let mut inode = op.inode(ino)?;
            let rest = super::truncate::resize(op, &mut inode, 5000)?;
            op.put_inode(&inode)?;
            Ok(rest)
        })
        .expect("a part of a truncate");
    assert!(rest.is_some(), "70 groups are too many for one operation");
    volume.sync().expect("a sync");
    drop(volume); // a crash
    let volume = bench.open();
    let inode = read_inode(&**volume, ino).expect("an inode");
    assert_eq!((inode.size(), inode.sectors()), (5000, 16));
    assert!(read_all(&volume, ino, 5000).iter().all(|byte| *byte == 7));
    volume.close().expect("a clean close");
    bench.fsck();
}

/// The last block used to be read alone, after the rest: a revolution of a disk for each file.
#[test]
fn the_block_in_which_a_file_ends_is_read_with_the_rest() {
    let bench = Bench::new(DataMode::Ordered, 64, 1);
    let (volume, ino, len) = (bench.open(), bench.files[0], 2 * BLOCK as usize + 100);
    volume.write(ino, 0, &vec![7; len]).expect("a write");
    volume.close().expect("a clean close");
    let device = Arc::new(Metered::new(MemoryDevice::from_bytes(bench.device.to_bytes(), 512)));
    let volume = bench.open_on(device.clone());
    assert_eq!(read_all(&volume, ino, 1), [7; 11], "the metadata are in memory now");
    let before = device.counters().read_count;
    let mut out = vec![9; 3 * BLOCK as usize];
    assert_eq!(volume.read(ino, 0, &mut out).expect("a read"), len);
    assert_eq!(device.counters().read_count - before, 1);
    assert!(out[..len].iter().all(|byte| *byte == 7) && out[len..].iter().all(|byte| *byte == 0));
    // Where there is no room for it, nothing is written after what was asked for.
    assert_eq!(read_all(&volume, ino, len), vec![7; len]);
    volume.close().expect("a clean close");
}

#[test]
fn overwriting_in_place_needs_no_commit_for_fdatasync() {
    for mode in MODES {
        let bench = Bench::new(mode, 64, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        let data = vec![1; 200_000];
        volume.write(ino, 0, &data).expect("a write");
        volume.fsync(ino, false).expect("an fsync");
        let committed = volume.committed();
        volume.fsync(ino, false).expect("an fsync of nothing");
        assert_eq!(volume.committed(), committed);
        let make = |volume: &RootVolume, name: &[u8]| {
            let made =
                volume.make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, Owner::default());
            made.expect("a file");
        };
        make(&volume, b"earlier");
        volume.write(ino, 10, &[2; 150_000]).expect("a write");
        volume.fsync(ino, true).expect("an fdatasync");
        let in_place =
            [DataMode::Ordered, DataMode::Writeback, DataMode::Selective].contains(&mode);
        assert_eq!(volume.committed() == committed, in_place, "{mode:?}");
        drop(volume); // a crash
        let volume = bench.open();
        let bytes = read_all(&volume, ino, data.len());
        assert!(bytes[10..150_010].iter().all(|byte| *byte == 2), "{mode:?}");
        assert_eq!((bytes[9], bytes[150_010], bytes.len()), (1, 1, data.len()));
        // An fdatasync leaves metadata of other files uncommitted, as docs/reference/syncs.md says.
        // An fsync commits them.
        let is_there =
            |volume: &RootVolume, name: &[u8]| volume.lookup(InodeNo::ROOT, name).is_ok();
        assert_eq!(is_there(&volume, b"earlier"), !in_place, "{mode:?}");
        make(&volume, b"next");
        volume.write(ino, 10, &[3; 150_000]).expect("a write");
        volume.fsync(ino, false).expect("an fsync");
        drop(volume); // a crash
        let volume = bench.open();
        assert!(is_there(&volume, b"next"), "{mode:?}");
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn access_times_follow_changes_only() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let attr = || read_inode(&**volume, ino).expect("an inode").attr();
    let read = || volume.read(ino, 0, &mut [0; 4]).expect("a read");
    volume.write(ino, 0, b"text").expect("a write");
    assert!(attr().atime < attr().mtime);
    read();
    let atime = attr().atime;
    assert!(atime > attr().mtime && attr().ctime == attr().mtime);
    read();
    assert_eq!(attr().atime, atime);
    volume.write(ino, 0, b"TEXT").expect("a write");
    read();
    assert!(attr().atime > atime);
}

#[test]
fn writes_of_others_clear_privileges() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let cases = [(0o6755, 0o755), (0o6644, 0o2644), (0o1777, 0o1777)];
    for (before, after) in cases {
        let set = crate::SetAttr { mode: Some(before), ..Default::default() };
        volume.set_attr(ino, &set).expect("a chmod");
        volume.write(ino, 0, b"x").expect("a write");
        assert_eq!(volume.get_attr(ino).expect("attributes").mode & 0o7777, before);
        volume.write_accepting(ino, 0, b"x", true, &mut |_| {}).expect("a write");
        assert_eq!(volume.get_attr(ino).expect("attributes").mode & 0o7777, after);
    }
}

/// Each chunk of a write to scattered blocks is counted once, with its length.
#[test]
fn regression_appended_bytes_are_counted_once() {
    let bench = Bench::new(DataMode::Auto, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..32).for_each(|at| {
        volume.write(ino, 2 * at * BLOCK, &[1; BLOCK as usize]).expect("a write");
    });
    volume.fsync(ino, false).expect("a sync");
    let (in_core, data) = (volume.in_core(ino), vec![2; 64 * BLOCK as usize]);
    assert_eq!(volume.write(ino, 0, &data).expect("a write"), data.len());
    assert_eq!(in_core.appended_bytes(), data.len() as u64);
    volume.write(ino, 0, &data).expect("a write over what is there");
    assert_eq!(in_core.appended_bytes(), data.len() as u64);
    let pieces = [(0, &data[..4096]), (1 << 20, &data[..8192])];
    volume.write_atomic(ino, &pieces).expect("an atomic write");
    assert_eq!(in_core.appended_bytes(), data.len() as u64 + 8192);
}

/// An extent that names the file system's own blocks.
#[test]
fn metadata_cannot_be_read_as_data() {
    let bench = Bench::with_options(DataMode::Journal, 24, 1, &["-O", "^metadata_csum"]);
    let (volume, ino) = (bench.open(), bench.files[0]);
    volume.write(ino, 0, b"x").expect("a write");
    let (table, place) = crate::inode::inode_place(&**volume, ino).expect("an inode's place");
    volume.close().expect("a clean close");
    let mut bytes = bench.device.to_bytes();
    let start_lo = table.0 as usize * 4096 + place + 40 + 12 + 8;
    bytes[start_lo..start_lo + 4].copy_from_slice(&(table.0 as u32).to_le_bytes());
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let volume = RootVolume::open(device, OpenOptions::default()).expect("a volume");
    let is_corrupt = |result: Result<usize>| matches!(result, Err(Error::Corrupt { .. }));
    assert!(is_corrupt(volume.read(ino, 0, &mut [0])));
    assert!(is_corrupt(volume.write(ino, 0, b"x")));
}

#[test]
fn limits_and_refusals() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    let max = super::content::FILE_BYTES_MAX;
    assert!(matches!(volume.write(ino, max, b"x"), Err(Error::FileTooBig)));
    assert!(matches!(volume.write(InodeNo::ROOT, 0, b"x"), Err(Error::IsDirectory)));
    assert!(matches!(set_size(&volume, ino, max + 1), Err(Error::FileTooBig)));
    assert!(matches!(
        volume.fallocate(ino, Allocate::KeepSize, u64::MAX, 2),
        Err(Error::FileTooBig)
    ));
    assert_eq!(volume.write(ino, max - 1, b"xy").expect("one byte fits"), 1);
    let mut byte = [0; 2];
    assert_eq!(volume.read(ino, max - 1, &mut byte).expect("a read"), 1);
    assert_eq!(byte[0], b'x');
    assert_eq!(volume.seek(ino, 0, SeekTo::Data).expect("data"), max - 4096);
    set_size(&volume, ino, 0).expect("a truncate");
    volume.close().expect("a clean close");
    bench.fsck();
}

#[test]
fn stale_bytes_never_appear() {
    for mode in MODES {
        let bench = Bench::new(mode, 64, 1);
        let (volume, ino) = (bench.open(), bench.files[0]);
        volume.write(ino, 0, &[9; 8000]).expect("a write");
        set_size(&volume, ino, 100).expect("a truncate");
        set_size(&volume, ino, 9000).expect("a truncate");
        let bytes = read_all(&volume, ino, 9000);
        assert!(bytes[..100].iter().all(|b| *b == 9) && bytes[100..].iter().all(|b| *b == 0));
        volume.close().expect("a clean close");
        bench.fsck();
    }
}

#[test]
fn damaged_extent_blocks_are_errors() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..40u64).for_each(|at| {
        volume.write(ino, 2 * at * BLOCK, b"data").expect("a write");
    });
    let inode = read_inode(&**volume, ino).expect("an inode");
    assert_eq!(extent::depth(&inode), 1);
    // The root's first index entry: its block is at byte 16.
    let node = u32::from_le_bytes(inode.i_block()[16..20].try_into().expect("4 bytes"));
    volume.close().expect("a clean close");
    let sound = bench.device.to_bytes();
    let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    for round in 0..tier::count(60) {
        let mut bytes = sound.clone();
        // Within the slots in use, so that the checksum is what finds it, or the header.
        let at = node as usize * 4096 + random.usize(0..12 + 40 * 12);
        bytes[at] ^= random.u8(1..=255);
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let options =
            OpenOptions { background: false, commit_interval: None, ..Default::default() };
        let volume = RootVolume::open(device, options).expect("a volume");
        let mut out = vec![0; 40 * 8192];
        let is_corrupt = |result: Result<usize>| matches!(result, Err(Error::Corrupt { .. }));
        assert!(is_corrupt(volume.read(ino, 0, &mut out)), "round {round}");
        assert!(is_corrupt(volume.write(ino, 4096, b"x")), "round {round}");
        assert!(matches!(set_size(&volume, ino, 0), Err(Error::Corrupt { .. })), "round {round}");
    }
}

/// Without checksums only the extent tree's own consistency can show that it is damaged. Every
/// operation on such a tree ends, with any result, and none panics.
#[test]
fn crafted_extent_trees_do_no_harm() {
    let options = ["-O", "^metadata_csum"];
    let bench = Bench::with_options(DataMode::Ordered, 24, 1, &options);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..400u64).for_each(|at| {
        volume.write(ino, 2 * at * BLOCK, b"data").expect("a write");
    });
    volume.fallocate(ino, Allocate::KeepSize, 1 << 23, 1 << 20).expect("a fallocate");
    let inode = read_inode(&**volume, ino).expect("an inode");
    let (table, place) = crate::inode::inode_place(&**volume, ino).expect("an inode's place");
    let root = table.0 as usize * 4096 + place + 40;
    let node = u32::from_le_bytes(inode.i_block()[16..20].try_into().expect("4 bytes"));
    volume.close().expect("a clean close");
    let sound = bench.device.to_bytes();
    let (seeds, mut corrupt_count) = (tier::seeds(test_name!(), 300), 0);
    for seed in seeds.clone() {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..4) {
            let in_root = random.bool();
            let within = if random.bool() { 16 } else { 60 };
            let at = random.usize(0..within) + if in_root { root } else { node as usize * 4096 };
            bytes[at] =
                if random.bool() { random.u8(..) } else { bytes[at] ^ 1 << random.u8(0..8) };
        }
        corrupt_count += usize::from(survive(&mut random, bytes, ino));
    }
    println!("{corrupt_count} of {} were found out", seeds.count());
    // At least this damage is found out, whatever the seeds are: the magic number of a node.
    let mut bytes = sound;
    bytes[node as usize * 4096] ^= 1;
    assert!(survive(&mut fastrand::Rng::with_seed(1), bytes, ino), "it is not found out");
}

/// Runs operations on a crafted image. Returns whether one of them reported it as corrupt.
fn survive(random: &mut fastrand::Rng, bytes: Vec<u8>, ino: InodeNo) -> bool {
    let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
    let options = OpenOptions {
        background: false,
        commit_interval: None,
        data_mode: MODES[random.usize(0..MODES.len())],
        ..Default::default()
    };
    let volume = RootVolume::open(device, options).expect("a volume");
    let mut found = false;
    for _ in 0..12 {
        let (offset, len) = (random.u64(0..4 << 20), random.u64(1..1 << 20));
        let result = match random.u8(0..6) {
            0 => volume.read(ino, offset, &mut vec![0; len as usize]).map(|_| ()),
            1 => volume.write(ino, offset, &vec![1; len as usize]).map(|_| ()),
            2 => volume.fallocate(ino, Allocate::PunchHole, offset, len),
            3 => volume.fallocate(ino, Allocate::ZeroRange { keep_size: true }, offset, len),
            4 => volume.seek(ino, offset, SeekTo::Hole).map(|_| ()),
            _ => set_size(&volume, ino, offset),
        };
        found |= matches!(result, Err(Error::Corrupt { .. }));
    }
    found
}

#[test]
fn freeing_an_inode_gives_everything_back() {
    let bench = Bench::new(DataMode::Journal, 64, 1);
    let (volume, ino) = (bench.open(), bench.files[0]);
    (0..1000u64).for_each(|at| {
        volume.write(ino, 3 * at * BLOCK, b"data").expect("a write");
    });
    volume.free_inode_blocks(ino).expect("freed");
    let inode = read_inode(&**volume, ino).expect("an inode");
    assert_eq!(inode.sectors(), 0);
    volume.close().expect("a clean close");
    bench.fsck();
}
