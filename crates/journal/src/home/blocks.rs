//! The newest published version of each block: the cache, and below it the home device.

use std::ops::Range;
use std::sync::Arc;

use device::AlignedBuf;

use super::cache::{Cache, Cached};
use super::home_device::Home;
use crate::error::Result;
use crate::types::{BLOCK_BYTES, BlockRef, HomeBlock};

/// The volume's blocks as handles and readers see them.
pub(crate) struct Blocks {
    home: Arc<Home>,
    pub cache: Cache,
}

impl Blocks {
    /// Keeps about `clean_limit` clean blocks in memory.
    pub(crate) fn new(home: Arc<Home>, clean_limit: usize) -> Blocks {
        Blocks { home, cache: Cache::new(clean_limit) }
    }

    /// The newest published version. It stays in memory.
    pub(crate) fn read(&self, block: HomeBlock) -> Result<BlockRef> {
        loop {
            let ticket = match self.cache.find(block) {
                Cached::Version(version) => return Ok(version),
                Cached::Nothing(ticket) => ticket,
            };
            let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
            self.home.read(block, &mut buf)?;
            let mut version: BlockRef = Arc::new([0; BLOCK_BYTES]);
            Arc::make_mut(&mut version).copy_from_slice(&buf);
            if self.cache.fill(block, version.clone(), ticket) {
                return Ok(version);
            }
        }
    }

    /// Fills `out` (whole blocks) with the newest published versions from `start` on.
    pub(crate) fn read_data(&self, start: HomeBlock, out: &mut [u8]) -> Result<()> {
        assert!(out.len().is_multiple_of(BLOCK_BYTES), "file data is read in whole blocks");
        let mut cold: Option<Range<usize>> = None;
        let block_count = out.len() / BLOCK_BYTES;
        for index in 0..block_count {
            let bytes = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
            match self.cache.get(HomeBlock(start.0 + index as u64)) {
                Some(version) => {
                    self.read_cold(start, cold.take(), out)?;
                    out[bytes].copy_from_slice(version.as_ref());
                }
                None => cold = Some(cold.map_or(bytes.start, |c| c.start)..bytes.end),
            }
        }
        self.read_cold(start, cold, out)
    }

    fn read_cold(
        &self,
        start: HomeBlock,
        bytes: Option<Range<usize>>,
        out: &mut [u8],
    ) -> Result<()> {
        let Some(bytes) = bytes else { return Ok(()) };
        let first = HomeBlock(start.0 + (bytes.start / BLOCK_BYTES) as u64);
        self.home.read(first, &mut out[bytes])
    }
}
