//! What an atomic write has written so far: whole blocks in memory, over the file on the volume.
//!
//! The first write to a part of a block reads the block from the volume. No other writer changes
//! the file meanwhile.

use std::collections::BTreeMap;

use ext4::{InodeNo, Volume};
use rustix::io::Errno;

use crate::adapter::failure::Failure;

const BLOCK_BYTES: usize = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;

type Block = Box<[u8; BLOCK_BYTES]>;

/// Blocks of one file, and the size that the file has with them.
#[derive(Default)]
pub(super) struct Overlay {
    blocks: BTreeMap<u64, Block>,
    old_size: u64,
    size: u64,
}

/// The blocks that `len_bytes` bytes at `offset` touch.
fn blocks_of(offset: u64, len_bytes: usize) -> std::ops::Range<u64> {
    offset / BLOCK..(offset + len_bytes as u64).div_ceil(BLOCK)
}

/// For each block that bytes at `offset` touch: the block, the place in it, the range of the bytes.
fn parts(
    offset: u64,
    len_bytes: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let end = offset + len_bytes as u64;
    blocks_of(offset, len_bytes).map(move |block| {
        let (from, to) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
        let within = |at: u64, base: u64| usize::try_from(at - base).expect("within a request");
        let place = within(from, block * BLOCK)..within(to, block * BLOCK);
        (block, place, within(from, offset)..within(to, offset))
    })
}

impl Overlay {
    /// Nothing, over a file of this size.
    pub(super) fn new(size: u64) -> Overlay {
        Overlay { blocks: BTreeMap::new(), old_size: size, size }
    }

    /// The size of the file with what was written.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// How many blocks more it would be with these bytes.
    pub(super) fn added_count(&self, offset: u64, len_bytes: usize) -> usize {
        blocks_of(offset, len_bytes).filter(|block| !self.blocks.contains_key(block)).count()
    }

    /// Takes bytes in; when that fails nothing has changed.
    pub(super) fn write(
        &mut self,
        volume: &Volume,
        ino: InodeNo,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        let mut fresh = Vec::new();
        for (block, place, _) in parts(offset, data.len()) {
            if !self.blocks.contains_key(&block) {
                let mut bytes = Box::new([0; BLOCK_BYTES]);
                if place.len() < BLOCK_BYTES {
                    volume.read(ino, block * BLOCK, &mut bytes[..])?;
                }
                fresh.push((block, bytes));
            }
        }
        self.blocks.extend(fresh);
        for (block, place, range) in parts(offset, data.len()) {
            let bytes = self.blocks.get_mut(&block).expect("it was put there");
            bytes[place].copy_from_slice(&data[range]);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// [`Volume::read`] of the file with what was written.
    pub(super) fn read(
        &self,
        volume: &Volume,
        ino: InodeNo,
        offset: u64,
        out: &mut [u8],
    ) -> ext4::Result<usize> {
        let read_bytes = volume.read(ino, offset, out)?;
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len_bytes = out.len().min(left).max(read_bytes);
        let out = &mut out[..len_bytes];
        out[read_bytes..].fill(0);
        for (block, place, range) in parts(offset, len_bytes) {
            if let Some(bytes) = self.blocks.get(&block) {
                out[range].copy_from_slice(&bytes[place]);
            }
        }
        Ok(len_bytes)
    }

    /// Runs of adjacent blocks: where each begins, and its bytes up to the end of the file.
    pub(super) fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for (block, bytes) in &self.blocks {
            let start = block * BLOCK;
            let len_bytes = usize::try_from((self.size - start).min(BLOCK)).expect("a block");
            match pieces.last_mut() {
                Some((offset, run)) if *offset + run.len() as u64 == start => {
                    run.extend_from_slice(&bytes[..len_bytes]);
                }
                _ => pieces.push((start, bytes[..len_bytes].to_vec())),
            }
        }
        pieces
    }

    /// Where the file would end, if it grew.
    pub(super) fn new_end(&self) -> Option<u64> {
        (self.size > self.old_size).then_some(self.size)
    }

    /// What the kernel may have cached of it: offset and length, 0 for up to the end.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for start in self.blocks.keys().map(|block| block * BLOCK) {
            match ranges.last_mut() {
                Some((offset, len_bytes)) if *offset + *len_bytes == start => *len_bytes += BLOCK,
                _ => ranges.push((start, BLOCK)),
            }
        }
        if self.size > self.old_size {
            ranges.push((self.old_size / BLOCK * BLOCK, 0));
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use ext4::{DataMode, Owner};
    use onejournal_testing::{test_name, tier};

    use super::*;
    use crate::adapter::harness::{adapter, make};

    fn put(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
    }

    #[test]
    fn it_reads_and_commits_as_a_file_that_was_written() {
        let adapter = adapter(DataMode::Journal);
        let volume = adapter.volume.read();
        let volume = volume.as_ref().unwrap();
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        for round in 0..tier::count(150) {
            let name = format!("f{round}");
            let ino = make(volume, name.as_bytes(), Owner::default());
            let mut content = vec![1; random.usize(0..20_000)];
            volume.as_root().write(ino, 0, &content).unwrap();
            let mut overlay = Overlay::new(content.len() as u64);
            for step in 0..random.usize(1..8) {
                let offset = random.usize(0..40_000);
                let data = vec![step as u8 + 2; random.usize(1..12_000)];
                let added_count = overlay.added_count(offset as u64, data.len());
                let block_count = overlay.block_count() + added_count;
                assert!(overlay.write(volume, ino, offset as u64, &data).is_ok());
                assert_eq!(overlay.block_count(), block_count);
                put(&mut content, offset, &data);
                let from = random.usize(0..50_000);
                let mut out = vec![99; random.usize(0..30_000)];
                let read_bytes = overlay.read(volume, ino, from as u64, &mut out).unwrap();
                let end = content.len().min(from + out.len());
                assert!(out[..read_bytes] == content[from.min(end)..end], "round {round}");
            }
            assert_eq!(overlay.size(), content.len() as u64);
            let owned = overlay.pieces();
            let pieces: Vec<_> = owned.iter().map(|(offset, data)| (*offset, &data[..])).collect();
            volume.as_root().write_atomic(ino, &pieces).unwrap();
            let mut out = vec![0; content.len() + 1];
            assert_eq!(volume.read(ino, 0, &mut out).unwrap(), content.len());
            assert!(out[..content.len()] == content, "round {round}");
            volume.unlink(InodeNo::ROOT, name.as_bytes()).unwrap();
            volume.forget(ino, 1);
        }
    }

    #[test]
    fn the_kernel_is_told_of_every_block_and_of_a_new_end() {
        let mut overlay = Overlay { size: 20_000, old_size: 20_000, ..Overlay::default() };
        for block in [0, 1, 3] {
            overlay.blocks.insert(block, Box::new([0; BLOCK_BYTES]));
        }
        assert_eq!(overlay.ranges(), [(0, 8192), (12_288, 4096)]);
        overlay.old_size = 13_000;
        assert_eq!(overlay.ranges(), [(0, 8192), (12_288, 4096), (12_288, 0)]);
    }
}
