//! The volumes from which crafted ones are made. mke2fs makes them, and the real file system fills
//! them.

use std::sync::{Arc, OnceLock};

use crate::format::{Formatted, Shape, formatted};
use ext4::{FileKind, InodeNo, NewNode, Owner, RootVolume, SetAttr, XattrFlags};
use onejournal_testing::{Image, SimDevice, Survival};

use super::records::Records;
use super::seal::Seals;
use super::{BLOCK_BYTES, options};

/// A volume to be patched.
pub struct Seed {
    /// Its bytes.
    pub image: Image,
    /// Whether the power was cut, so that there is something to recover.
    pub is_crashed: bool,
    /// Byte offsets of the places that are worth patching: pieces of [`PIECE_BYTES`] that are not
    /// uniform, without data and most of the journal.
    pub targets: Vec<u64>,
    /// Corrects its checksums.
    pub seals: Seals,
    /// The records in its journal, if there is something to recover.
    pub records: Option<Records>,
}

/// Size of a piece that is patched: that of an inode.
pub const PIECE_BYTES: usize = 256;

/// How volumes are filled: the data of files in place, or through the journal.
const IN_PLACE: u8 = 0;
const THROUGH_JOURNAL: u8 = 2;

/// A volume of each shape, closed and after a crash. Panics without e2fsprogs.
pub fn seeds() -> &'static [Seed] {
    static SEEDS: OnceLock<Vec<Seed>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let shapes = Shape::ALL.into_iter();
        shapes.flat_map(|shape| [false, true].map(|is_crashed| seed(shape, is_crashed))).collect()
    })
}

fn seed(shape: Shape, is_crashed: bool) -> Seed {
    let formatted = formatted(shape).expect("e2fsprogs make a volume");
    let device = Arc::new(SimDevice::from_image(formatted.image.clone(), 512));
    let is_journal_full = is_crashed && shape == Shape::Groups;
    let how = if is_journal_full { THROUGH_JOURNAL } else { IN_PLACE };
    let volume =
        RootVolume::open(device.clone(), options(false, how)).expect("a fresh volume opens");
    fill(&volume);
    let targets = targets(&device.image(), &formatted);
    if is_crashed {
        log(&volume, if is_journal_full { 40 } else { 1 });
        let ino = file(&volume, InodeNo::ROOT, b"orphan", 3);
        volume.pin(ino);
        volume.unlink(InodeNo::ROOT, b"orphan").expect("it has that name");
        volume.sync().expect("memory does not fail");
        drop(volume);
    } else {
        volume.close().expect("memory does not fail");
    }
    let image = device.crash(Survival::Everything);
    let targets = if is_crashed { targets } else { self::targets(&image, &formatted) };
    let seals = Seals::of(&image, &formatted.journal_extents);
    let records = is_crashed.then(|| Records::of(&image, &formatted.journal_extents));
    Seed { image, is_crashed, targets, seals, records }
}

/// Makes transactions that only the journal has: a few of names and attributes, and `piece_count`
/// of 64 KiB of data each.
fn log(volume: &RootVolume, piece_count: u64) {
    const PIECE: usize = 64 << 10;
    let data = file(volume, InodeNo::ROOT, b"data", 0);
    for n in 0..6_u8 {
        let name = [b'n', b'0' + n];
        node(volume, InodeNo::ROOT, &name, NewNode::Directory);
        volume.set_xattr(data, b"user.count", &[n; 40], XattrFlags::Any).expect("it fits");
        volume.sync().expect("memory does not fail");
    }
    for piece in 0..piece_count {
        volume.write(data, piece * PIECE as u64, &[6; PIECE]).expect("there is room");
        volume.sync().expect("memory does not fail");
    }
}

/// The places that are worth patching. They include the superblock of the kernel's journal and the
/// two headers of ours.
fn targets(image: &Image, formatted: &Formatted) -> Vec<u64> {
    let heads = formatted.journal_extents[..3].iter().map(|bytes| bytes.start / 4096);
    let mut blocks: Vec<u64> = heads.collect();
    let block_count = image.size_bytes() / BLOCK_BYTES as u64;
    blocks.extend((0..block_count).filter(|block| {
        let is_data = is_uniform(image, block * BLOCK_BYTES as u64, BLOCK_BYTES);
        !is_data && formatted.journal_blocks.binary_search(block).is_err()
    }));
    blocks.sort_unstable();
    blocks.dedup();
    let pieces =
        |block| (0..BLOCK_BYTES as u64).step_by(PIECE_BYTES).map(move |at| block * 4096 + at);
    let pieces = blocks.into_iter().flat_map(pieces);
    pieces.filter(|at| !is_uniform(image, *at, PIECE_BYTES)).collect()
}

/// Whether all bytes are equal.
fn is_uniform(image: &Image, offset: u64, len_bytes: usize) -> bool {
    let mut bytes = vec![0; len_bytes];
    image.read(offset, &mut bytes);
    bytes.iter().all(|byte| *byte == bytes[0])
}

/// Makes some inodes of every kind.
fn fill(volume: &RootVolume) {
    let big = node(volume, InodeNo::ROOT, b"big", NewNode::Directory);
    let holes = file(volume, InodeNo::ROOT, b"holes", 0);
    for piece in 0..9 {
        volume.write(holes, piece * 8192, &[5; 4096]).expect("there is room");
    }
    // Two blocks of long names and more: an index.
    for n in 0..34_u8 {
        let name = [&[b'a' + n % 26; 240][..], &[b'0' + n / 26]].concat();
        volume.link(holes, big, &name).expect("there is room");
        volume.forget(holes, 1);
    }
    node(volume, big, b"sub", NewNode::Directory);
    node(volume, InodeNo::ROOT, b"short", NewNode::Symlink(b"big/sub"));
    node(volume, InodeNo::ROOT, b"long", NewNode::Symlink(&[b'x'; 300]));
    node(volume, InodeNo::ROOT, b"pipe", NewNode::Special(FileKind::Fifo, 0));
    let small = file(volume, InodeNo::ROOT, b"small", 1);
    volume.set_xattr(small, b"user.short", b"v", XattrFlags::Any).expect("it fits");
    for n in 0..3 {
        let name = [b"user.n".as_slice(), &[b'0' + n]].concat();
        volume.set_xattr(small, &name, &[n; 300], XattrFlags::Any).expect("it fits");
    }
    let longer = SetAttr { size_bytes: Some(1 << 30), ..SetAttr::default() };
    volume.set_attr(holes, &longer).expect("a hole takes no room");
    volume.sync().expect("memory does not fail");
    volume.journal().checkpoint().expect("memory does not fail");
}

fn node(volume: &RootVolume, dir: InodeNo, name: &[u8], node: NewNode<'_>) -> InodeNo {
    let attr = volume.make(dir, name, node, 0o755, 0, Owner::default()).expect("there is room");
    volume.forget(attr.ino, 1);
    attr.ino
}

fn file(volume: &RootVolume, dir: InodeNo, name: &[u8], block_count: usize) -> InodeNo {
    let ino = node(volume, dir, name, NewNode::Regular);
    volume.write(ino, 0, &vec![9; block_count * BLOCK_BYTES]).expect("there is room");
    ino
}
