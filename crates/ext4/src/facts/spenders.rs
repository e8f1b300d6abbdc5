//! Which of the free blocks an operation may use.
//!
//! ```text
//! free blocks: | for everybody | reserved for root (s_r_blocks_count) | pool |
//!              '- ordinary -----'
//!              '- privileged ------------------------------------------'
//!              '- nodes of existing extent trees --------------------------------'
//! ```
//! - Blocks *reserved for root* are for root, for the user `s_def_resuid`, and for the group
//!   `s_def_resgid` unless that is root's group.
//! - The *pool* is for nodes that an extent tree needs when blocks that the file already has are
//!   written, zeroed or punched out. Without the pool, writing into preallocated space would fail
//!   on a full volume. It has the size of ext4's reserved clusters: 2 % of the volume, at most 4096
//!   blocks. A node holds 340 extents, so a volume of up to 800 MB never needs more.
//!
//! An operation takes blocks for the [`Spender`] that its caller names. Recovery, opening and
//! closing name a privileged one: they must not fail while free blocks exist.

use super::value::Facts;

/// The pool is this fraction of the volume.
const POOL_DIVISOR: u64 = 50;
/// Blocks of the largest pool.
const POOL_COUNT_MAX: u64 = 4096;

/// The kind of user for whom an operation takes blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spender {
    /// May use the blocks that are reserved for root.
    Privileged,
    /// May not use them.
    Ordinary,
}

impl Facts {
    /// The kind of a user with this group, by the superblock.
    pub(crate) fn spender(&self, uid: u32, gid: u32) -> Spender {
        let reserved_uid = u32::from(self.superblock.s_def_resuid.get());
        let is_in_group = self.reserved_group() == Some(gid);
        if uid == 0 || uid == reserved_uid || is_in_group {
            Spender::Privileged
        } else {
            Spender::Ordinary
        }
    }

    /// The group whose members may use the blocks that are reserved for root. `None`: only root
    /// may.
    pub(crate) fn reserved_group(&self) -> Option<u32> {
        Some(u32::from(self.superblock.s_def_resgid.get())).filter(|gid| *gid != 0)
    }

    /// Blocks in the pool while the volume is not full.
    fn pool_block_count(&self) -> u64 {
        (self.geometry.block_count / POOL_DIVISOR).min(POOL_COUNT_MAX)
    }

    /// Free blocks that this spender may not use.
    pub(crate) fn withheld_block_count(&self, spender: Spender) -> u64 {
        let for_root = match spender {
            Spender::Privileged => 0,
            Spender::Ordinary => self.superblock.reserved_block_count(self.geometry.wide),
        };
        for_root.saturating_add(self.pool_block_count())
    }
}
