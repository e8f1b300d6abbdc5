//! The time that requests take. Pure computation: times are parameters and results, in nanoseconds
//! of any clock.

use std::ops::Range;

use crate::drive::parameters::Parameters;

/// The cost of a typical seek of a file system: settling, and up to a full stroke.
const SEEK_SETTLE_NS: f64 = 800e3;
const SEEK_STROKE_NS: f64 = 16e6;
/// A file system of a few GiB stands for an aged layout on a disk of 1 TB, so distances are
/// multiplied by this.
const SEEK_SPREAD: f64 = 64.0;
const DISK_BYTES: f64 = 1e12;
/// Rate at which a rotating disk takes writes into its cache, in MB/s.
const CACHE_MB_S: f64 = 300.0;
/// The part of a flush's fixed cost that a flush without work takes.
const EMPTY_FLUSH: f64 = 0.1;

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// When each busy part becomes free.
#[derive(Debug, Default)]
pub struct Model {
    channel_free_ns: Vec<u64>,
    bus_free_ns: u64,
    /// The byte below the head of a rotating disk.
    head: u64,
}

fn micros(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Time of moving bytes, in nanoseconds.
fn transfer_ns(len_bytes: u64, mb_s: f64) -> u64 {
    if mb_s > 0.0 { micros(len_bytes as f64 / mb_s) } else { 0 }
}

impl Model {
    /// When a transfer that arrives at `now_ns` is done. It takes the channel that is free first.
    /// The bytes of transfers go over the bus one after the other, and the latency follows on the
    /// channel.
    pub fn transfer(
        &mut self,
        parameters: &Parameters,
        now_ns: u64,
        direction: Direction,
        bytes: Range<u64>,
    ) -> u64 {
        self.channel_free_ns.resize(parameters.channels, 0);
        let free = self.channel_free_ns.iter().enumerate().min_by_key(|(_, free_ns)| **free_ns);
        let (channel, free_ns) = free.expect("at least one channel");
        let start_ns = now_ns.max(*free_ns);
        let rotates = parameters.revolution_us > 0.0;
        let (latency_us, mb_s) = match direction {
            Direction::Read => (parameters.read_us, parameters.read_mb_s),
            Direction::Write if rotates => (parameters.write_us, CACHE_MB_S),
            Direction::Write => (parameters.write_us, parameters.write_mb_s),
        };
        let done_ns = if rotates && direction == Direction::Read {
            self.access(parameters, start_ns, bytes) + micros(latency_us)
        } else {
            let moved_ns =
                start_ns.max(self.bus_free_ns) + transfer_ns(bytes.end - bytes.start, mb_s);
            self.bus_free_ns = moved_ns;
            moved_ns + micros(latency_us)
        };
        self.channel_free_ns[channel] = done_ns;
        done_ns
    }

    /// When a flush that arrives at `now_ns` is done: after everything that is under way. `extents`
    /// were written since the last flush, ascending. A disk without a cache has nothing to flush.
    pub fn flush(&mut self, parameters: &Parameters, now_ns: u64, extents: &[Range<u64>]) -> u64 {
        if !parameters.has_flushes() {
            return now_ns;
        }
        let start_ns = self.channel_free_ns.iter().fold(now_ns, |latest, free| latest.max(*free));
        let done_ns = if parameters.revolution_us > 0.0 {
            let write = |at_ns, extent: &Range<u64>| self.access(parameters, at_ns, extent.clone());
            extents.iter().fold(start_ns, write) + micros(parameters.flush_us)
        } else {
            let cost_us = match extents.len() {
                0 => parameters.flush_us * EMPTY_FLUSH,
                count => parameters.flush_us + parameters.extent_us * (count - 1) as f64,
            };
            start_ns + micros(cost_us)
        };
        if parameters.flush_blocks {
            self.channel_free_ns.fill(done_ns);
        }
        done_ns
    }

    /// Seek, wait for the sector to rotate to the head, transfer.
    fn access(&mut self, parameters: &Parameters, start_ns: u64, bytes: Range<u64>) -> u64 {
        let revolution_ns = parameters.revolution_us * 1e3;
        let track_bytes = (parameters.read_mb_s * parameters.revolution_us).max(1.0);
        let distance = bytes.start.abs_diff(self.head) as f64;
        let mut at_ns = start_ns as f64;
        if distance > track_bytes {
            let stroke = (distance * SEEK_SPREAD / DISK_BYTES).min(1.0);
            at_ns += SEEK_SETTLE_NS + SEEK_STROKE_NS * stroke.sqrt();
        }
        let sector_ns = bytes.start as f64 % track_bytes / track_bytes * revolution_ns;
        let wait_ns = (sector_ns - at_ns % revolution_ns).rem_euclid(revolution_ns);
        self.head = bytes.end;
        (at_ns + wait_ns).round() as u64
            + transfer_ns(bytes.end - bytes.start, parameters.read_mb_s)
    }
}

#[cfg(test)]
mod tests {
    use super::Direction::{Read, Write};
    use super::*;

    const NOW: u64 = 1_000_000_000;
    const BLOCK: [Range<u64>; 1] = [Range { start: 0, end: 4096 }];

    fn parameters(text: &str) -> Parameters {
        let mut parameters = Parameters::preset("zero").unwrap();
        parameters.apply(text).unwrap();
        parameters
    }

    /// Microseconds after [`NOW`].
    fn after(done_ns: u64) -> f64 {
        (done_ns - NOW) as f64 / 1e3
    }

    #[test]
    fn transfers_follow_each_other_and_latencies_overlap() {
        let device = parameters("write_us=50,write_mb_s=100,read_us=20,read_mb_s=200,channels=2");
        let mut model = Model::default();
        let mut done = |direction, len| after(model.transfer(&device, NOW, direction, 0..len));
        assert_eq!(done(Write, 1000), 60.0);
        assert_eq!(done(Write, 1000), 70.0);
        // Both channels are busy: the first is free at 60, the next transfer ends at 65.
        assert_eq!(done(Read, 1000), 85.0);
        // Later, nothing is in the way.
        assert_eq!(model.transfer(&device, 2 * NOW, Read, 0..0), 2 * NOW + 20_000);
    }

    #[test]
    fn a_disk_without_a_cache_has_nothing_to_flush() {
        let device = Parameters::preset("cloud").unwrap();
        let mut model = Model::default();
        for _ in 0..10 {
            model.transfer(&device, NOW, Write, 0..4096);
        }
        assert_eq!(after(model.flush(&device, NOW, &BLOCK)), 0.0);
        let cached = parameters("cloud,volatile_cache=1");
        let mut model = Model::default();
        model.transfer(&cached, NOW, Write, 0..0);
        assert_eq!(after(model.flush(&cached, NOW, &BLOCK)), 1000.0);
    }

    #[test]
    fn a_flush_waits_for_what_is_under_way_and_costs_for_each_extent() {
        let device = parameters("write_us=50,flush_us=200,extent_us=30,channels=4");
        let mut model = Model::default();
        model.transfer(&device, NOW, Write, 0..4096);
        let extents = [0..4096, 8192..12288, 40960..45056];
        assert_eq!(after(model.flush(&device, NOW, &extents)), 50.0 + 200.0 + 60.0);
        assert_eq!(after(model.flush(&device, NOW, &BLOCK)), 50.0 + 200.0);
        assert_eq!(after(model.flush(&device, NOW, &[])), 50.0 + 20.0);
        // It does not block: a write may go on beside it.
        assert_eq!(after(model.transfer(&device, NOW, Write, 0..4096)), 50.0);
    }

    #[test]
    fn a_flush_that_blocks_keeps_all_channels() {
        let device = parameters("write_us=50,flush_us=200,channels=4,flush_blocks=1");
        let mut model = Model::default();
        model.transfer(&device, NOW, Write, 0..4096);
        assert_eq!(after(model.flush(&device, NOW, &BLOCK)), 250.0);
        assert_eq!(after(model.transfer(&device, NOW, Write, 0..4096)), 300.0);
        assert_eq!(after(model.flush(&device, NOW, &BLOCK)), 500.0);
    }

    #[test]
    fn a_rotating_disk_takes_writes_at_once_and_turns_for_flushes_and_reads() {
        let device = Parameters::preset("hdd").unwrap();
        let mut model = Model::default();
        let written = after(model.transfer(&device, NOW, Write, 0..4096));
        assert!((53.0..54.0).contains(&written), "{written}");
        let turn_ns = 8_333_000;
        let start = NOW.next_multiple_of(turn_ns);
        // The head is there when the sector is: no seek, no wait.
        let flushed = model.flush(&device, start, &BLOCK) - start;
        assert_eq!(flushed, 27_307 + 100_000);
        // Sector 0 has just gone by: almost a revolution.
        let again = model.flush(&device, start + 200_000, &BLOCK) - start;
        assert_eq!(again, turn_ns + 27_307 + 100_000);
        // Far away: a seek, then part of a revolution.
        let far = model.transfer(&device, 10 * start, Read, 1 << 29..(1 << 29) + 4096) - 10 * start;
        assert!((3_700_000..3_700_000 + turn_ns).contains(&far), "{far}");
    }

    #[test]
    fn the_number_of_channels_may_change_between_requests() {
        let mut model = Model::default();
        for text in ["write_us=10,channels=8", "write_us=10,channels=1", "write_us=10,channels=2"] {
            let device = parameters(text);
            for _ in 0..9 {
                model.transfer(&device, NOW, Write, 0..0);
            }
        }
        assert!(after(model.flush(&parameters("channels=2,volatile_cache=1"), NOW, &[])) >= 90.0);
    }
}
