//! The requests to the disk since the counters were reset.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

/// Counts; times in microseconds.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    /// Flushes before which nothing was written.
    pub empty_flushes: u64,
    /// Number of extents that flushes found written, in total.
    pub flushed_extents: u64,
    pub discards: u64,
    pub discard_bytes: u64,
    /// Sum of the times that flushes took.
    pub flush_us: f64,
    pub crashes: u64,
    /// Sectors that crashes restored to their old content.
    pub lost_sectors: u64,
    /// The most requests that were under way at the same time.
    pub requests_max: usize,
    /// Answers that had to wait for their time, and how late after that time they were sent.
    pub timed_answers: u64,
    pub late_us_mean: f64,
    pub late_us_max: f64,
    pub regions: BTreeMap<String, Region>,
}

/// Writes to a part of the disk; a write belongs to the part in which it begins.
#[derive(Debug, Clone, Serialize)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub writes: u64,
    pub write_bytes: u64,
    /// The part of `write_bytes` that is jbd2's own blocks: descriptors, commits, revokes, the
    /// superblock.
    pub jbd2_bytes: u64,
}

impl Region {
    /// Nothing was written to it yet.
    pub fn new(start: u64, end: u64) -> Region {
        Region { start, end, writes: 0, write_bytes: 0, jbd2_bytes: 0 }
    }
}

const JBD2_BLOCK_BYTES: usize = 4096;
/// The first bytes of such a block. jbd2 logs a data block that begins with them in another form.
const JBD2_MAGIC: [u8; 4] = 0xc03b_3998_u32.to_be_bytes();

/// Bytes of the blocks in `data` that are jbd2's own.
fn jbd2_bytes(data: &[u8]) -> u64 {
    let blocks = data.chunks_exact(JBD2_BLOCK_BYTES);
    blocks.filter(|block| block.starts_with(&JBD2_MAGIC)).map(|block| block.len() as u64).sum()
}

impl Counters {
    /// All zero again; regions stay.
    pub fn reset(&mut self) {
        let mut regions = std::mem::take(&mut self.regions);
        for region in regions.values_mut() {
            *region = Region::new(region.start, region.end);
        }
        *self = Counters { regions, ..Counters::default() };
    }

    /// Counts a write of `data`.
    pub fn count_write(&mut self, span: &Range<u64>, data: &[u8]) {
        let len_bytes = span.end - span.start;
        self.writes += 1;
        self.write_bytes += len_bytes;
        for region in self.regions.values_mut() {
            if (region.start..region.end).contains(&span.start) {
                region.writes += 1;
                region.write_bytes += len_bytes;
                region.jbd2_bytes += jbd2_bytes(data);
            }
        }
    }

    /// Counts an answer that came this much after its time.
    pub fn count_late(&mut self, late_ns: u64) {
        let late_us = late_ns as f64 / 1e3;
        self.timed_answers += 1;
        self.late_us_mean += (late_us - self.late_us_mean) / self.timed_answers as f64;
        self.late_us_max = self.late_us_max.max(late_us);
    }
}
