//! The checksums of a directory's blocks.
//!
//! A checksum covers the directory's inode number and generation, so that a block of another
//! directory is noticed. Without the feature metadata_csum, blocks have no tails and nothing is
//! checked.

use journal::BlockBytes;
use zerocopy::{FromBytes, IntoBytes};

use super::block;
use super::htree_node::Shape;
use crate::error::{Error, Result};
use crate::facts::{Checksums, Source};
use crate::inode::Inode;
use crate::layout::dir::DIR_TAIL_BYTES;
use crate::layout::htree::{DX_TAIL_BYTES, DxTail};

/// Checks and writes the checksums of one directory's blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealer {
    checksums: Checksums,
    seed: u32,
}

impl Sealer {
    /// The sealer for the blocks of `dir`.
    pub(crate) fn new(source: &impl Source, dir: &Inode) -> Sealer {
        let checksums = source.facts().checksums;
        Sealer { checksums, seed: checksums.inode_seed(dir.ino, dir.generation()) }
    }

    /// Whether blocks carry a checksum tail.
    pub(crate) fn has_tail(&self) -> bool {
        self.checksums.enabled()
    }

    fn leaf(&self, block: &BlockBytes) -> u32 {
        self.checksums.dir_block(self.seed, &block[..block::end_of_entries(true)])
    }

    /// Checks the tail of a linear block.
    pub(super) fn check_leaf(
        &self,
        block: &BlockBytes,
        place: impl std::fmt::Display,
    ) -> Result<()> {
        if !self.has_tail() {
            return Ok(());
        }
        let stored = block.last_chunk::<4>().copied().map(u32::from_le_bytes);
        if !block::has_valid_tail(block) || stored != Some(self.leaf(block)) {
            return Err(Error::corrupt("directory block checksum", place));
        }
        Ok(())
    }

    /// Writes the checksum of a linear block, which has a tail if it needs one.
    pub(super) fn seal_leaf(&self, block: &mut BlockBytes) {
        if self.has_tail() {
            let checksum = self.leaf(block);
            let start = block::end_of_entries(true) + DIR_TAIL_BYTES - 4;
            block[start..].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn index(&self, block: &BlockBytes, shape: &Shape, reserved: u32) -> u32 {
        self.checksums.htree_block(self.seed, &block[..shape.used_bytes()], reserved)
    }

    /// Checks the tail of an index block.
    pub(super) fn check_index(
        &self,
        block: &BlockBytes,
        shape: &Shape,
        place: impl std::fmt::Display,
    ) -> Result<()> {
        if !self.has_tail() {
            return Ok(());
        }
        let (tail, _) = DxTail::ref_from_prefix(&block[shape.tail_offset()..])
            .map_err(|_| Error::corrupt("directory index tail", &place))?;
        if tail.dt_checksum.get() != self.index(block, shape, tail.dt_reserved.get()) {
            return Err(Error::corrupt("directory index checksum", place));
        }
        Ok(())
    }

    /// Writes the tail of an index block.
    pub(super) fn seal_index(&self, block: &mut BlockBytes, shape: &Shape) {
        if self.has_tail() {
            let checksum = self.index(block, shape, 0);
            let tail = DxTail { dt_reserved: 0.into(), dt_checksum: checksum.into() };
            let start = shape.tail_offset();
            block[start..start + DX_TAIL_BYTES].copy_from_slice(tail.as_bytes());
        }
    }
}
