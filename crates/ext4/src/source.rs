//! Where metadata is read from: the published state of the volume, or an operation's own view.

use journal::{BlockRef, HomeBlock};

use crate::volume::Volume;
use crate::{Error, Result};

/// Something that gives metadata blocks.
pub(crate) trait Source {
    /// The bytes of a metadata block. An error when the block lies outside of the volume.
    fn block(&self, block: HomeBlock) -> Result<BlockRef>;

    /// The bytes of block 0, which holds the superblock.
    fn super_bytes(&self) -> Result<BlockRef>;

    /// The volume, for its geometry and checksums.
    fn volume(&self) -> &Volume;
}

impl Source for Volume {
    fn block(&self, block: HomeBlock) -> Result<BlockRef> {
        check_on_volume(self, block)?;
        Ok(self.journal().read(block)?)
    }

    fn super_bytes(&self) -> Result<BlockRef> {
        Ok(self.journal().read(HomeBlock(0))?)
    }

    fn volume(&self) -> &Volume {
        self
    }
}

/// Refuses the number of a block that does not exist.
pub(crate) fn check_on_volume(volume: &Volume, block: HomeBlock) -> Result<()> {
    if block.0 == 0 || block.0 >= volume.geometry.block_count {
        // Block 0 holds the superblock, which is never reached through a pointer.
        return Err(Error::corrupt("pointer outside of the volume", block));
    }
    Ok(())
}
