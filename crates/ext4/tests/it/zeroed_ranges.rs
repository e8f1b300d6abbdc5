//! `auto` writes in place only where no crash brings back what is overwritten. Blocks of a range
//! that was zeroed hold committed data until the zeroing is committed.

use crate::common;

use std::sync::Arc;

use common::{Image, make, open_in};
use onejournal_ext4::{Allocate, DataMode, InodeNo, RootVolume};
use onejournal_testing::{SimDevice, Survival};

const LEN: usize = 512 << 10;
const ZERO: Allocate = Allocate::ZeroRange { keep_size: true };

fn open(device: Arc<SimDevice>) -> RootVolume {
    open_in(device, DataMode::Auto)
}

/// A file of `LEN` ones, committed and home, and `extra_len` more.
fn with_ones(extra_len: usize) -> (Image, Arc<SimDevice>, RootVolume, InodeNo) {
    let image = Image::new(&[], "64M");
    let device = image.sim_device();
    let volume = open(device.clone());
    let ino = make(&volume, "file");
    volume.write(ino, 0, &vec![1; LEN + extra_len]).unwrap();
    volume.sync().unwrap();
    (image, device, volume, ino)
}

/// The first `LEN` bytes of the file as the next opening finds them, and whether there is a file
/// `before`.
fn found(crashed: onejournal_testing::Image) -> (Vec<u8>, bool) {
    let volume = open(Arc::new(SimDevice::from_image(crashed, 512)));
    let ino = volume.lookup(InodeNo::ROOT, b"file").unwrap().ino;
    let mut bytes = vec![9; LEN];
    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), LEN);
    (bytes, volume.lookup(InodeNo::ROOT, b"before").is_ok())
}

fn survivals() -> impl Iterator<Item = Survival> {
    Survival::EXTREMES.into_iter().chain((0..4).map(Survival::Random))
}

/// Makes a range a hole or zeros, makes a file `before`, and writes twos in pieces, with the power
/// cut at every event until that is synced. Each crash must leave a state of this sequence.
fn check_every_cut(how: Allocate, extra_len: usize, piece_len: usize) {
    let (_image, device, volume, ino) = with_ones(extra_len);
    device.start_trace();
    volume.fallocate(ino, how, 0, LEN as u64).unwrap();
    make(&volume, "before");
    for at in (0..LEN).step_by(piece_len) {
        assert_eq!(volume.write(ino, at as u64, &vec![2; piece_len]).unwrap(), piece_len);
    }
    volume.sync().unwrap();
    let trace = device.take_trace();
    let mut cursor = trace.cursor();
    for cut in trace.cuts() {
        cursor.advance_to(cut);
        for survival in survivals() {
            let (bytes, has_before) = found(cursor.crash(survival));
            let twos = bytes.iter().take_while(|byte| **byte == 2).count();
            let is_old = !has_before && bytes.iter().all(|byte| *byte == 1);
            let is_on_the_way = (has_before || twos == 0)
                && twos.is_multiple_of(piece_len)
                && bytes[twos..].iter().all(|byte| *byte == 0);
            assert!(is_old || is_on_the_way, "cut {cut}, {survival:?}: {twos} twos");
        }
    }
    assert_eq!(found(device.image()), (vec![2; LEN], true));
}

#[test]
fn regression_a_large_write_over_a_range_that_was_just_zeroed() {
    check_every_cut(ZERO, 0, LEN);
}

/// Small pieces are buffered in place once much was appended.
#[test]
fn regression_small_writes_over_a_range_that_was_just_zeroed() {
    check_every_cut(ZERO, 1 << 20, 64 << 10);
}

/// Freed blocks are not allocated again before their freeing is committed.
#[test]
fn writes_into_a_range_that_was_just_punched_out() {
    check_every_cut(Allocate::PunchHole, 0, LEN);
    check_every_cut(Allocate::PunchHole, 1 << 20, 64 << 10);
}

/// The journal is worth it only until then.
#[test]
fn it_goes_in_place_again_when_the_zeroes_are_committed() {
    let (_image, _device, volume, ino) = with_ones(0);
    let in_place = |volume: &RootVolume| volume.journal().stats().in_place_bytes;
    let before = in_place(&volume);
    volume.fallocate(ino, ZERO, 0, LEN as u64).unwrap();
    volume.write(ino, 0, &[2; LEN]).unwrap();
    assert_eq!(in_place(&volume) - before, 0);
    volume.journal().checkpoint().unwrap();
    volume.fallocate(ino, ZERO, 0, LEN as u64).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 0, &[3; LEN]).unwrap();
    assert_eq!(in_place(&volume) - before, LEN as u64);
}
