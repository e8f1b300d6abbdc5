//! Bounds of regions, records and transactions.

use super::header::Header;
use crate::memory::MemoryLimits;
use crate::record;
use crate::types::BLOCK_BYTES;

/// The most padding of a record, which ends at a multiple of the step (at most a sector of 4096
/// bytes).
const PADDING_MAX: usize = 4096;

/// The bounds of one incarnation of the journal.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Blocks of the largest transaction.
    pub transaction_blocks: usize,
    /// Bytes of the largest record.
    record_bytes: usize,
}

impl Limits {
    pub(crate) fn new(header: &Header, memory: &MemoryLimits) -> Limits {
        let record_bytes = record_limit(header.region_bytes);
        let transaction_blocks =
            transaction_limit(record_bytes, header.region_count).min(memory.transaction_blocks);
        assert!(
            transaction_blocks >= MemoryLimits::TRANSACTION_BLOCKS_MIN,
            "a region holds what a handle may need"
        );
        Limits { transaction_blocks, record_bytes }
    }

    /// Whether a record of this many blocks and revokes fits into a region, whatever the blocks
    /// hold.
    pub(crate) fn record_fits(&self, block_count: usize, revoke_count: usize) -> bool {
        record::max_bytes(block_count, revoke_count) + PADDING_MAX <= self.record_bytes
    }
}

/// Divides `room` bytes into as many regions as possible, at most `most`, each of which can hold a
/// transaction of [`MemoryLimits::TRANSACTION_BLOCKS_MIN`] blocks. `None`: there is not even room
/// for two.
pub(crate) fn divide_into_regions(room: u64, most: u32) -> Option<(u32, u64)> {
    let divided = |count: u32| (count, room / u64::from(count) / 4096 * 4096);
    (2..=most).rev().map(divided).find(|(count, region_bytes)| {
        let blocks = transaction_limit(record_limit(*region_bytes), *count);
        blocks >= MemoryLimits::TRANSACTION_BLOCKS_MIN
    })
}

/// Bytes of the largest record in a region.
fn record_limit(region_bytes: u64) -> usize {
    usize::try_from(region_bytes).unwrap_or(1 << 30).min(1 << 30)
}

/// The most blocks of a transaction such that its record fits into one region. The record may also
/// have as many revokes as there are blocks in the journal and in a transaction, if each is logged
/// whole. Changes are smaller than blocks, so there may be more to revoke: `Engine::begin` and the
/// commit handle that.
fn transaction_limit(max_record_bytes: usize, region_count: u32) -> usize {
    let revoke_count = max_record_bytes / BLOCK_BYTES * (region_count as usize + 1);
    let fixed = record::max_bytes(0, revoke_count) + PADDING_MAX;
    let per_block = record::max_bytes(1, 0) - record::max_bytes(0, 0);
    max_record_bytes.saturating_sub(fixed) / per_block
}
