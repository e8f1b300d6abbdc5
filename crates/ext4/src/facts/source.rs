//! A source of metadata: the published state of the volume, or the view of an operation.

use journal::{BlockRef, HomeBlock};

use super::value::Facts;
use crate::Result;

/// Returns metadata blocks.
pub(crate) trait Source {
    /// The bytes of a metadata block. An error if the block is outside of the volume.
    fn block(&self, block: HomeBlock) -> Result<BlockRef>;

    /// The bytes of block 0, which holds the superblock.
    fn super_bytes(&self) -> Result<BlockRef>;

    /// The facts of the volume.
    fn facts(&self) -> &Facts;
}
