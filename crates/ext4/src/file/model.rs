//! What the tests of file data share: a model of a file in memory, and random operations on both
//! the model and a volume.

use std::collections::BTreeMap;

use crate::inode::read_inode;
use crate::{Allocate, DataMode, Error, InodeNo, Result, RootVolume, SeekTo};

pub(crate) const BLOCK: u64 = 4096;
pub(super) const MODES: [DataMode; 7] = DataMode::ALL;

/// Groups of 1 MiB, so that a file is in many groups. Nothing has a checksum.
pub(super) const SMALL_GROUPS: [&str; 6] =
    ["-g", "256", "-O", "^metadata_csum,^64bit,^flex_bg,^resize_inode", "-N", "1024"];

/// A file as it should be: its bytes, and for each allocated block whether it was written.
#[derive(Default, Clone)]
pub(super) struct Model {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blocks: BTreeMap<u64, bool>,
}

impl Model {
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn touched(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / BLOCK..(offset + len).div_ceil(BLOCK)
    }

    fn whole(offset: u64, end: u64) -> std::ops::Range<u64> {
        let start = offset.div_ceil(BLOCK);
        start..(end / BLOCK).max(start)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(data);
        let blocks = Model::touched(offset, data.len() as u64);
        self.blocks.extend(blocks.map(|block| (block, true)));
    }

    pub(crate) fn resize(&mut self, size: u64) {
        if size <= self.size() {
            self.blocks.split_off(&size.div_ceil(BLOCK));
        }
        self.bytes.resize(size as usize, 0);
    }

    fn zero(&mut self, offset: u64, end: u64) {
        let end = end.min(self.size()) as usize;
        if (offset as usize) < end {
            self.bytes[offset as usize..end].fill(0);
        }
    }

    pub(crate) fn fallocate(&mut self, how: Allocate, offset: u64, len: u64) {
        let mut end = offset + len;
        if how == Allocate::PunchHole {
            end = end.min(self.size().next_multiple_of(BLOCK));
            self.zero(offset, end);
            let whole = Model::whole(offset, end);
            self.blocks.retain(|block, _| !whole.contains(block));
            return;
        }
        if let Allocate::ZeroRange { .. } = how {
            self.zero(offset, end);
            self.blocks.extend(Model::whole(offset, end).map(|block| (block, false)));
        }
        for block in Model::touched(offset, len) {
            self.blocks.entry(block).or_insert(false);
        }
        let grows = matches!(how, Allocate::Extend | Allocate::ZeroRange { keep_size: false });
        if grows && end > self.size() {
            self.bytes.resize(end as usize, 0);
        }
    }

    pub(crate) fn seek(&self, offset: u64, to: SeekTo) -> Option<u64> {
        if offset >= self.size() {
            return None;
        }
        let mut at = offset;
        while at < self.size() {
            let is_data = self.blocks.get(&(at / BLOCK)).copied().unwrap_or(false);
            if is_data == (to == SeekTo::Data) {
                return Some(at);
            }
            at = (at / BLOCK + 1) * BLOCK;
        }
        (to == SeekTo::Hole).then_some(self.size())
    }
}

pub(crate) fn set_size(volume: &RootVolume, ino: InodeNo, size: u64) -> Result<()> {
    volume.set_size(ino, size, |_, _| Ok(()))
}

pub(super) fn read_all(volume: &RootVolume, ino: InodeNo, size: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; size + 10];
    let len = volume.read(ino, 0, &mut bytes).expect("a read");
    bytes.truncate(len);
    bytes
}

pub(crate) fn check(volume: &RootVolume, ino: InodeNo, model: &Model, what: &str) {
    let inode = read_inode(&***volume, ino).expect("an inode");
    assert_eq!(inode.size(), model.size(), "size, {what}");
    assert!(inode.sectors() >= 8 * model.blocks.len() as u64, "sectors, {what}");
    let bytes = read_all(volume, ino, model.bytes.len());
    if bytes != model.bytes {
        let at = bytes.iter().zip(&model.bytes).position(|(a, b)| a != b);
        panic!("content differs at {at:?}, {what}");
    }
}

/// One random operation on the volume and the model.
pub(crate) fn step(
    random: &mut fastrand::Rng,
    volume: &RootVolume,
    ino: InodeNo,
    model: &mut Model,
    space: u64,
) {
    let offset = random.u64(0..space);
    let limit = if random.u8(0..4) == 0 { 300_000 } else { 20_000 };
    let len = random.u64(1..limit).min(2 * space - offset);
    let aligned = random.bool();
    let (offset, len) =
        if aligned { (offset / BLOCK * BLOCK, len.next_multiple_of(BLOCK)) } else { (offset, len) };
    match random.u8(0..12) {
        0..5 => {
            let mut data = vec![0; len as usize];
            random.fill(&mut data);
            assert_eq!(volume.write(ino, offset, &data).expect("a write"), data.len());
            model.write(offset, &data);
        }
        5 => {
            set_size(volume, ino, offset).expect("a truncate");
            model.resize(offset);
        }
        6..9 => {
            let hows = [
                Allocate::Extend,
                Allocate::KeepSize,
                Allocate::PunchHole,
                Allocate::PunchHole,
                Allocate::ZeroRange { keep_size: true },
                Allocate::ZeroRange { keep_size: false },
            ];
            let how = hows[random.usize(0..hows.len())];
            volume.fallocate(ino, how, offset, len).expect("a fallocate");
            model.fallocate(how, offset, len);
        }
        9 => volume.fsync(ino, random.bool()).expect("an fsync"),
        10 => {
            let to = if random.bool() { SeekTo::Data } else { SeekTo::Hole };
            let found = match volume.seek(ino, offset, to) {
                Err(Error::NoSuchOffset) => None,
                found => Some(found.expect("a seek")),
            };
            assert_eq!(found, model.seek(offset, to), "seek {to:?} from {offset}");
        }
        _ => {
            let mut bytes = vec![0xEE; len as usize];
            let got = volume.read(ino, offset, &mut bytes).expect("a read");
            let end = (offset + len).min(model.size());
            let expected = &model.bytes[offset.min(end) as usize..end as usize];
            assert!(bytes[..got] == *expected, "read of {len} at {offset}");
        }
    }
}
