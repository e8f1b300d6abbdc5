//! A request is one transaction, however scattered the blocks are that it writes, allocates or
//! frees.

use crate::common;

use std::sync::Arc;

use common::{Image, handles, make, open_in, options};
use onejournal_ext4::{Allocate, DataMode, InodeNo, OpenOptions, RootVolume, SetAttr, XattrFlags};
use onejournal_testing::{SimDevice, Survival};

const BLOCK: usize = 4096;

fn simulated(arguments: &[&str], size: &str) -> Arc<SimDevice> {
    Image::new(arguments, size).sim_device()
}

/// A file whose even blocks are ones, and the others holes.
fn make_sparse(volume: &RootVolume, name: &str, block_count: usize) -> InodeNo {
    let ino = make(volume, name);
    for block in (0..block_count).step_by(2) {
        volume.write(ino, (block * BLOCK) as u64, &[1; BLOCK]).unwrap();
    }
    let end = (block_count * BLOCK) as u64;
    volume.write(ino, end, b"end").unwrap();
    ino
}

fn content(volume: &RootVolume, name: &str, len: usize) -> Vec<u8> {
    let ino = volume.lookup(InodeNo::ROOT, name.as_bytes()).unwrap().ino;
    let mut bytes = vec![9; len];
    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), len);
    bytes
}

/// The second operation of the write did not fit into the transaction any more, so the transaction
/// was committed with only the first half.
#[test]
fn regression_a_write_over_many_holes_in_a_nearly_full_transaction() {
    for mode in [DataMode::Journal, DataMode::Delta, DataMode::Auto] {
        let device = simulated(&[], "64M");
        let volume = open_in(device.clone(), mode);
        let block_count = 32;
        let len = block_count * BLOCK;
        let filler = make(&volume, "filler");
        let most = volume.journal().max_credit_count();
        volume.write(filler, 0, &vec![7; most * BLOCK]).unwrap();
        for (nth, filled) in (most - 130..most - 65).enumerate() {
            let name = format!("sparse{nth}");
            let ino = make_sparse(&volume, &name, block_count);
            volume.journal().checkpoint().unwrap();
            let noise = fastrand::Rng::with_seed(nth as u64).u8(..);
            volume.write(filler, 0, &vec![noise; filled * BLOCK]).unwrap();
            assert_eq!(volume.write(ino, 0, &vec![2; len]).unwrap(), len);
            let image = device.crash(Survival::Nothing);
            let crashed = open_in(Arc::new(SimDevice::from_image(image, 512)), mode);
            let bytes = content(&crashed, &name, len);
            let is_new = bytes.iter().all(|byte| *byte == 2);
            let is_old = bytes
                .chunks(BLOCK)
                .enumerate()
                .all(|(at, block)| block.iter().all(|byte| usize::from(*byte) == (at + 1) % 2));
            assert!(is_new || is_old, "{mode:?}, {filled} of {most} blocks");
        }
    }
}

#[test]
fn a_mebibyte_over_holes_is_one_operation() {
    for mode in DataMode::ALL {
        let image = Image::new(&["-J", "size=16"], "128M");
        let device = image.device();
        let volume = open_in(device.clone(), mode);
        let ino = make_sparse(&volume, "sparse", 256);
        volume.sync().unwrap();
        let write = || assert_eq!(volume.write(ino, 0, &[2; 1 << 20]).unwrap(), 1 << 20);
        assert_eq!(handles(&volume, write), 1, "{mode:?}");
        assert!(content(&volume, "sparse", 1 << 20).iter().all(|byte| *byte == 2));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn allocating_and_zeroing_a_scattered_range_is_one_operation() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = RootVolume::open(device.clone(), options()).unwrap();
    let hows = [Allocate::Extend, Allocate::KeepSize, Allocate::ZeroRange { keep_size: true }];
    for (nth, how) in hows.into_iter().enumerate() {
        let name = format!("sparse{nth}");
        let ino = make_sparse(&volume, &name, 1000);
        let fill = || volume.fallocate(ino, how, 100, 999 * BLOCK as u64).unwrap();
        assert_eq!(handles(&volume, fill), 1, "{how:?}");
        let zeroed = matches!(how, Allocate::ZeroRange { .. });
        for (at, block) in content(&volume, &name, 999 * BLOCK).chunks(BLOCK).enumerate() {
            let byte = u8::from(at % 2 == 0 && !zeroed);
            assert!(block[100..].iter().all(|found| *found == byte), "{how:?}, block {at}");
        }
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// Each group has a bitmap of its own: more than an operation asks for at first.
#[test]
fn punching_a_range_in_many_groups_is_one_operation() {
    let small_groups =
        ["-g", "256", "-O", "^metadata_csum,^64bit,^flex_bg,^resize_inode", "-N", "1024"];
    let image = Image::new(&small_groups, "96M");
    let device = image.device();
    let ordered = OpenOptions { data_mode: DataMode::Ordered, ..options() };
    let volume = RootVolume::open(device.clone(), ordered).unwrap();
    let ino = make(&volume, "file");
    volume.write(ino, 0, &vec![1; 70 << 20]).unwrap();
    volume.sync().unwrap();
    let punch = || volume.fallocate(ino, Allocate::PunchHole, 0, 69 << 20).unwrap();
    assert_eq!(handles(&volume, punch), 1);
    let bytes = content(&volume, "file", 70 << 20);
    assert!(bytes[..69 << 20].iter().all(|byte| *byte == 0));
    assert!(bytes[69 << 20..].iter().all(|byte| *byte == 1));
    volume.close().unwrap();
    image.assert_clean(&device);
}

const CAPABILITY: &[u8] = b"security.capability";

/// Cutting was the first of two operations.
#[test]
fn regression_a_file_that_was_cut_has_no_capabilities() {
    let device = simulated(&[], "64M");
    let volume = open_in(device.clone(), DataMode::Journal);
    let filler = make(&volume, "filler");
    let most = volume.journal().max_credit_count();
    let cut = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    let mut was_cut = 0;
    for (nth, filled) in (most - 130..most - 1).enumerate() {
        let name = format!("trusted{nth}");
        let ino = make(&volume, &name);
        volume.write(ino, 0, &[1; 2 * BLOCK]).unwrap();
        volume.set_xattr(ino, CAPABILITY, &[2; 20], XattrFlags::Any).unwrap();
        volume.journal().checkpoint().unwrap();
        let noise = fastrand::Rng::with_seed(nth as u64).u8(..);
        volume.write(filler, 0, &vec![noise; filled * BLOCK]).unwrap();
        assert_eq!(volume.set_attr(ino, &cut).unwrap().size_bytes, 0);
        assert!(volume.get_xattr(ino, CAPABILITY).is_err());
        let image = device.crash(Survival::Nothing);
        let crashed = open_in(Arc::new(SimDevice::from_image(image, 512)), DataMode::Journal);
        let found = crashed.lookup(InodeNo::ROOT, name.as_bytes()).unwrap();
        let is_trusted = crashed.get_xattr(found.ino, CAPABILITY).is_ok();
        assert!(found.size_bytes > 0 || !is_trusted, "{filled} of {most} blocks");
        was_cut += u32::from(!is_trusted);
    }
    assert!(was_cut > 0, "the capabilities never went before the size");
}

#[test]
fn cutting_a_file_without_capabilities_and_setting_a_list_is_one_operation() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = RootVolume::open(device.clone(), options()).unwrap();
    let ino = make(&volume, "file");
    volume.write(ino, 0, &[1; 2 * BLOCK]).unwrap();
    let change = |change: SetAttr| volume.set_attr(ino, &change).unwrap().mode & 0o7777;
    let size_bytes = Some(BLOCK as u64);
    let cut = || assert_eq!(change(SetAttr { size_bytes, ..SetAttr::default() }), 0o644);
    assert_eq!(handles(&volume, cut), 1);
    change(SetAttr { mode: Some(0o2755), ..SetAttr::default() });
    // Version 2; owner, group, others: read.
    let entry = |tag: u16| [&tag.to_le_bytes()[..], &4_u16.to_le_bytes(), &[0xff; 4]].concat();
    let list = [&2_u32.to_le_bytes()[..], &entry(1), &entry(4), &entry(0x20)].concat();
    let set = || {
        let name = b"system.posix_acl_access";
        volume.set_acl_as_stranger(ino, name, &list, XattrFlags::Any).unwrap();
    };
    assert_eq!(handles(&volume, set), 1);
    assert_eq!(volume.get_attr(ino).unwrap().mode & 0o7777, 0o444);
    volume.close().unwrap();
    image.assert_clean(&device);
}
