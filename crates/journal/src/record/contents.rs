//! The contents of a record: changed blocks, revokes, checks of data in place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::form::Form;
use crate::observer::BlockOwner;
use crate::types::{BLOCK_BYTES, BlockRef, HomeBlock, Tid};

/// The most checks of a record.
pub(crate) const CHECKS_MAX: usize = 64;
/// The most checked blocks of a transaction: 4 MiB. For more data a flush costs little in
/// comparison, and recovery would have much to read.
pub(crate) const BLOCKS_MAX: u64 = 1024;

/// The checksum of adjacent blocks that were written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataCheck {
    /// The first block.
    pub home: HomeBlock,
    /// Number of blocks.
    pub block_count: u32,
    /// CRC32C of their bytes.
    pub checksum: u32,
}

impl DataCheck {
    /// The check of whole blocks, no more than a transaction may check.
    pub(crate) fn of(home: HomeBlock, data: &[u8]) -> DataCheck {
        let block_count = u32::try_from(data.len() / BLOCK_BYTES).expect("at most BLOCKS_MAX");
        DataCheck { home, block_count, checksum: crc32c::crc32c(data) }
    }

    /// Its blocks.
    pub fn blocks(&self) -> Range<u64> {
        self.home.0..self.home.0 + u64::from(self.block_count)
    }
}

/// A block that a transaction changed and logs.
#[derive(Clone)]
pub(crate) struct Logged {
    pub version: BlockRef,
    /// The version that the previous transaction left. Until this transaction is committed, every
    /// crash leaves it. `None`: it is unknown or meaningless; then the record must hold all of the
    /// block.
    pub base: Option<BlockRef>,
    pub form: Form,
    pub owner: BlockOwner,
    /// No file had the block before this transaction: until it commits, it does not matter what the
    /// block holds at home.
    pub is_fresh: bool,
}

/// A transaction that was closed, until it is committed.
pub(crate) struct Committing {
    pub tid: Tid,
    pub blocks: BTreeMap<HomeBlock, Logged>,
    pub revokes: BTreeSet<HomeBlock>,
    /// Owners whose numbers belong to new files.
    pub new_owners: Vec<BlockOwner>,
}

/// What a record is made of.
pub(crate) struct Contents<'a> {
    pub tid: Tid,
    pub time_ns: u64,
    pub blocks: &'a BTreeMap<HomeBlock, Logged>,
    pub revokes: &'a BTreeSet<HomeBlock>,
    /// At most [`CHECKS_MAX`].
    pub checks: &'a [DataCheck],
}
