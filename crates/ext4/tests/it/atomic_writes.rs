//! Several pieces are written atomically, in one transaction. Pieces that a transaction cannot hold
//! are refused.

use crate::common;

use std::sync::Arc;

use common::{Image, make, open, options, read_all};
use device::MemoryDevice;
use onejournal_ext4::{DataMode, Error, InodeNo, OpenOptions, RootVolume};

const BLOCK: u64 = 4096;

#[test]
fn all_pieces_are_one_handle_and_one_commit() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let ino = make(&volume, "f");
    volume.write(ino, 0, &[1; 10_000]).unwrap();
    volume.sync().unwrap();
    let before = volume.journal().stats();
    // A part of a block, whole blocks over the end, and a hole before the last.
    let (part, whole) = ([2; 100], [3; 3 * 4096]);
    volume.write_atomic(ino, &[(50, &part), (2 * BLOCK, &whole), (9 * BLOCK, &part)]).unwrap();
    volume.fsync(ino, true).unwrap();
    let after = volume.journal().stats();
    assert_eq!((after.handles - before.handles, after.commits - before.commits), (1, 1));
    let mut expected = vec![1; 10_000];
    expected.resize(9 * 4096 + 100, 0);
    expected[50..150].fill(2);
    expected[2 * 4096..5 * 4096].fill(3);
    expected[9 * 4096..].fill(2);
    assert!(read_all(&volume, ino) == expected);
    drop(volume);
    let device = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    let volume = open(&device).unwrap();
    assert!(read_all(&volume, ino) == expected);
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn a_write_larger_than_a_transaction_is_refused_and_leaves_nothing() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let ino = make(&volume, "f");
    let limit = volume.atomic_block_limit();
    assert!(limit > 100, "only {limit} blocks");
    let at_limit = vec![1; limit * 4096];
    volume.write_atomic(ino, &[(0, &at_limit)]).unwrap();
    let beyond = vec![2; volume.journal().max_credit_count() * 4096];
    assert!(matches!(volume.write_atomic(ino, &[(0, &beyond)]), Err(Error::NoSpace)));
    // Every second block a hole: each takes an allocation of its own.
    let end = limit as u64;
    let scattered = |count: u64| -> Vec<(u64, &[u8])> {
        (0..count).map(|at| ((end + 2 * at) * BLOCK, &[3u8; 4096][..])).collect()
    };
    let most = volume.journal().max_credit_count() as u64;
    assert!(matches!(volume.write_atomic(ino, &scattered(most - 10)), Err(Error::NoSpace)));
    assert!(read_all(&volume, ino) == at_limit);
    let before = volume.journal().stats().handles;
    volume.write_atomic(ino, &scattered(end)).unwrap();
    assert_eq!(volume.journal().stats().handles - before, 1);
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn pieces_that_make_no_sense_are_refused() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let ino = make(&volume, "f");
    volume.write_atomic(ino, &[]).unwrap();
    for bad in [&[(0, &b""[..])][..], &[(5, b"x"), (5, b"y")], &[(5, b"x"), (0, b"y")]] {
        assert!(matches!(volume.write_atomic(ino, bad), Err(Error::InvalidArgument)));
    }
    assert!(matches!(volume.write_atomic(ino, &[(u64::MAX, b"x")]), Err(Error::FileTooBig)));
    let directory = volume.write_atomic(InodeNo::ROOT, &[(0, b"x")]);
    assert!(matches!(directory, Err(Error::IsDirectory)));
    volume.close().unwrap();
    let ordered = OpenOptions { data_mode: DataMode::Ordered, ..options() };
    let volume = RootVolume::open(device.clone(), ordered).unwrap();
    assert_eq!(volume.atomic_block_limit(), 0);
    assert!(matches!(volume.write_atomic(ino, &[(0, b"x")]), Err(Error::NotSupported)));
    volume.close().unwrap();
    image.assert_clean(&device);
}
