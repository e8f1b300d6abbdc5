//! How full the volume is.

use crate::space::Spender;
use crate::volume::Volume;
use crate::{Result, StatFs};

impl Volume {
    /// Free and used space. Blocks freed by a transaction that is not committed count as free: an
    /// operation that needs them commits first.
    pub fn stat_fs(&self) -> Result<StatFs> {
        let geometry = &self.facts.geometry;
        let free_block_count = self.totals.free_block_count();
        let withheld_count = self.facts.withheld_block_count(Spender::Ordinary);
        Ok(StatFs {
            block_bytes: 4096,
            block_count: geometry.block_count - self.overhead_block_count(),
            free_block_count,
            available_block_count: free_block_count.saturating_sub(withheld_count),
            inode_count: u64::from(geometry.inode_count),
            free_inode_count: self.totals.free_inode_count(),
        })
    }

    /// Blocks that can never hold files: as `mke2fs` counted them, else counted here.
    fn overhead_block_count(&self) -> u64 {
        let stored = u64::from(self.facts.superblock.s_overhead_clusters.get());
        if stored > 0 && stored < self.facts.geometry.block_count {
            return stored;
        }
        let own =
            self.facts.places.reserved_block_count() + self.facts.geometry.fixed_block_count();
        own.min(self.facts.geometry.block_count)
    }
}
