//! The usage of the volume, and the counters of files.

use crate::facts::Spender;
use crate::file::regular_file;
use crate::memory::Mounted;
use crate::{FileStat, InodeNo, Result, StatFs};

impl Mounted {
    /// [`Volume::stat_fs`](crate::Volume::stat_fs).
    pub(crate) fn stat_fs(&self) -> Result<StatFs> {
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

    /// [`Volume::has_room`](crate::Volume::has_room).
    pub(crate) fn has_room(&self, spender: Spender) -> bool {
        self.totals.free_block_count() > self.facts.withheld_block_count(spender)
    }

    /// Blocks that can never hold files, as `mke2fs` counted them, or counted here.
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

impl Mounted {
    /// [`Volume::file_stat`](crate::Volume::file_stat).
    pub(crate) fn file_stat(&self, ino: InodeNo) -> Result<FileStat> {
        regular_file(self, ino)?;
        drop(self.in_core(ino).content.read());
        Ok(self.file_stats.get(ino))
    }

    /// [`Volume::most_written_files`](crate::Volume::most_written_files).
    pub(crate) fn most_written_files(&self, limit: usize) -> Vec<(InodeNo, FileStat)> {
        self.file_stats.most_written(limit)
    }
}
