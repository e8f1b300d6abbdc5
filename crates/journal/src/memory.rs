//! How much the engine keeps in memory, and how a number of bytes is divided.
//!
//! The bytes are divided into shares of one transaction each:
//!
//! | what | shares |
//! |---|---:|
//! | the running transaction and the one that commits, with the versions before them | 4 |
//! | the record that is encoded | 1 |
//! | blocks that later records may copy (`delta=copies`) | 1 |
//! | committed blocks that are not home yet | 4 |
//! | clean blocks | 1 |
//!
//! The shares are bounds, not reservations. At a bound, a handle waits for a commit, and a commit
//! for a checkpoint. A checkpoint waits for the device only, so every wait ends.

/// What a block in memory takes, in bytes: 4112 are allocated, in cells of 5120; the rest is for
/// its entries in the tables of transactions, regions and the cache.
const BLOCK_COST_BYTES: u64 = 6 << 10;

/// Shares of the table above.
const SHARE_COUNT: u64 = 11;

/// Shares of committed blocks that are not home.
const DIRTY_SHARE_COUNT: usize = 4;

/// Bounds of what the engine keeps in memory. The default is for machines with enough of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Blocks of a transaction.
    pub transaction_blocks: usize,
    /// Committed blocks that are not home. At half of them a checkpoint starts. A transaction that
    /// would exceed them waits until the checkpoint has made room.
    pub dirty_blocks: usize,
    /// Clean blocks.
    pub clean_blocks: usize,
    /// Bytes of the journal that are used. Recovery keeps half of them in memory, and an entry for
    /// each change.
    pub journal_bytes: u64,
}

impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        MemoryLimits {
            // 64 MiB are large enough for anything.
            transaction_blocks: 16_384,
            dirty_blocks: 65_536,
            clean_blocks: 16_384,
            journal_bytes: u64::MAX,
        }
    }
}

impl MemoryLimits {
    /// Every transaction can hold this many blocks: no operation of a volume needs more at once.
    pub const TRANSACTION_BLOCKS_MIN: usize = 128;

    /// The limits with which the engine takes at most `bytes`, together with `extra_shares`
    /// transactions that its user keeps in memory. Never less than an operation needs.
    pub fn within(bytes: u64, extra_shares: u64) -> MemoryLimits {
        let most = MemoryLimits::default();
        if bytes >= most.cost_bytes(extra_shares) {
            return most;
        }
        let blocks = bytes / BLOCK_COST_BYTES / (SHARE_COUNT + extra_shares);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        let transaction_blocks = blocks.max(Self::TRANSACTION_BLOCKS_MIN);
        MemoryLimits {
            transaction_blocks,
            dirty_blocks: DIRTY_SHARE_COUNT * transaction_blocks,
            clean_blocks: transaction_blocks,
            // Recovery has no other use for the memory.
            journal_bytes: bytes / 3,
        }
    }

    /// What the engine takes at most, in bytes, with `extra_shares` as in [`MemoryLimits::within`].
    pub fn cost_bytes(&self, extra_shares: u64) -> u64 {
        self.transaction_blocks as u64 * (SHARE_COUNT + extra_shares) * BLOCK_COST_BYTES
    }

    /// Bytes of the journal that recovery keeps in memory.
    pub(crate) fn recovery_cached_bytes(&self) -> usize {
        usize::try_from(self.journal_bytes / 2).unwrap_or(usize::MAX).min(256 << 20)
    }

    /// Blocks that recovery has in memory at a time: 32 MiB at most.
    pub(crate) fn recovery_batch_blocks(&self) -> usize {
        self.dirty_blocks.min(8192)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_stay_within_the_bytes_and_leave_room_for_every_operation() {
        for extra_shares in [0, 4] {
            let least = MemoryLimits::within(0, extra_shares);
            assert_eq!(least.transaction_blocks, MemoryLimits::TRANSACTION_BLOCKS_MIN);
            let (least, most) = (least.cost_bytes(extra_shares), 3 << 30);
            let mut last = 0;
            for bytes in (least..most).step_by(1_234_567) {
                let limits = MemoryLimits::within(bytes, extra_shares);
                assert!(limits.cost_bytes(extra_shares) <= bytes, "{bytes}: {limits:?}");
                assert!(limits.dirty_blocks >= 2 * limits.transaction_blocks, "{bytes}");
                assert!(limits.transaction_blocks >= last, "{bytes}: less of more");
                last = limits.transaction_blocks;
            }
            assert_eq!(MemoryLimits::within(most, extra_shares), MemoryLimits::default());
        }
    }

    #[test]
    fn a_region_of_the_journal_holds_a_transaction() {
        for bytes in (0..900 << 20).step_by(7_654_321) {
            let limits = MemoryLimits::within(bytes.max(9 << 20), 0);
            let region_bytes = limits.journal_bytes / 4;
            let record_bytes = limits.transaction_blocks as u64 * 4200;
            assert!(record_bytes <= region_bytes, "{bytes}: {limits:?}");
        }
    }
}
