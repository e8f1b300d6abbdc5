//! What the disk was asked to do since the counters were reset.

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
    /// Extents that flushes found written, in all.
    pub flushed_extents: u64,
    pub discards: u64,
    pub discard_bytes: u64,
    /// Sum of the times that flushes took.
    pub flush_us: f64,
    pub crashes: u64,
    /// Sectors that crashes put back.
    pub lost_sectors: u64,
    /// Most requests that were under way at a time.
    pub requests_max: usize,
    /// Answers that had to wait for their time, and how long after it they were sent.
    pub timed_answers: u64,
    pub late_us_mean: f64,
    pub late_us_max: f64,
    pub regions: BTreeMap<String, Region>,
}

/// What was written to a part of the disk: writes by where they begin.
#[derive(Debug, Clone, Serialize)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub writes: u64,
    pub write_bytes: u64,
}

impl Counters {
    /// All zero again; regions stay.
    pub fn reset(&mut self) {
        let mut regions = std::mem::take(&mut self.regions);
        for region in regions.values_mut() {
            (region.writes, region.write_bytes) = (0, 0);
        }
        *self = Counters { regions, ..Counters::default() };
    }

    /// Counts a write.
    pub fn count_write(&mut self, span: &Range<u64>) {
        let len_bytes = span.end - span.start;
        self.writes += 1;
        self.write_bytes += len_bytes;
        for region in self.regions.values_mut() {
            if (region.start..region.end).contains(&span.start) {
                region.writes += 1;
                region.write_bytes += len_bytes;
            }
        }
    }

    /// Counts an answer that came so much after its time.
    pub fn count_late(&mut self, late_ns: u64) {
        let late_us = late_ns as f64 / 1e3;
        self.timed_answers += 1;
        self.late_us_mean += (late_us - self.late_us_mean) / self.timed_answers as f64;
        self.late_us_max = self.late_us_max.max(late_us);
    }
}
