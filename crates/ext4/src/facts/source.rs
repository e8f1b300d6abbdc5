//! Where metadata is read from: the published state of the volume, or an operation's own view.

use journal::{BlockRef, HomeBlock};

use super::value::Facts;
use crate::Result;

/// Something that gives metadata blocks.
pub(crate) trait Source {
    /// The bytes of a metadata block. An error if the block is outside of the volume.
    fn block(&self, block: HomeBlock) -> Result<BlockRef>;

    /// The bytes of block 0, which holds the superblock.
    fn super_bytes(&self) -> Result<BlockRef>;

    /// The facts of the volume.
    fn facts(&self) -> &Facts;
}
