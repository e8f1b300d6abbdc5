//! Writes, flushes and durable writes of one thread, by size.
//!
//! All ways take turns ([`Turns`]). Each turn leaves the disk without an unflushed write, so no way
//! pays for another one's data.

use std::time::Instant;

use device::{BlockDevice, Result};

use super::latency::{COUNT_FOR_P99, Latencies};
use super::limits::Limits;
use super::noise::Noise;
use super::turns::Turns;

/// The sizes, beside one sector of the disk. Each is a multiple of every sector size.
const SIZES_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The largest of them.
pub(crate) const SIZE_BYTES_MAX: usize = SIZES_BYTES[SIZES_BYTES.len() - 1];

/// The sizes by which programs are judged.
const JUDGED_BYTES: [usize; 2] = [4 << 10, 16 << 10];

/// What the record of a commit carries.
const RECORD_PAYLOAD_BYTES: usize = 4 << 10;

/// Latencies of operations of one size.
#[derive(Debug, Clone)]
pub struct OfSize {
    /// The size.
    pub len_bytes: usize,
    /// Writes that are not durable when they return.
    pub write: Latencies,
    /// The flush after each of them.
    pub flush: Latencies,
    /// Both together.
    pub write_and_flush: Latencies,
    /// Writes that are durable when they return.
    pub durable: Latencies,
}

/// Durable writes of the size of a record in the journal of OneJournal.
#[derive(Debug, Clone)]
pub struct Record {
    /// A block of 4 KiB, and one sector for what describes it.
    pub len_bytes: usize,
    /// How long these writes take.
    pub durable: Latencies,
}

/// What one thread measured.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Ascending.
    pub of: Vec<OfSize>,
    /// Durable writes of a journal record's size.
    pub record: Record,
    /// Flushes when nothing is unflushed.
    pub clean_flush: Latencies,
}

/// One way to use the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    WriteThenFlush { size_index: usize },
    Durable { size_index: usize },
    Record,
    CleanFlush,
}

impl Sizes {
    /// Nothing measured yet.
    pub(crate) fn of_sectors(sector_bytes: usize) -> Sizes {
        let mut sizes: Vec<usize> = SIZES_BYTES.into_iter().chain([sector_bytes]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of_size = |len_bytes| OfSize {
            len_bytes,
            write: Latencies::default(),
            flush: Latencies::default(),
            write_and_flush: Latencies::default(),
            durable: Latencies::default(),
        };
        Sizes {
            of: sizes.into_iter().map(of_size).collect(),
            record: Record {
                len_bytes: RECORD_PAYLOAD_BYTES + sector_bytes,
                durable: Latencies::default(),
            },
            clean_flush: Latencies::default(),
        }
    }

    /// All ways.
    fn ways(&self) -> Vec<Way> {
        let of_size =
            |size_index| [Way::WriteThenFlush { size_index }, Way::Durable { size_index }];
        let of_sizes = (0..self.of.len()).flat_map(of_size);
        of_sizes.chain([Way::Record, Way::CleanFlush]).collect()
    }

    /// What a way writes in one turn.
    fn len_bytes(&self, way: Way) -> usize {
        match way {
            Way::WriteThenFlush { size_index } | Way::Durable { size_index } => {
                self.of[size_index].len_bytes
            }
            Way::Record => self.record.len_bytes,
            Way::CleanFlush => 0,
        }
    }

    /// The number of ways that write. None of them writes more bytes than the area has.
    pub(crate) fn writing_way_count(&self) -> u64 {
        self.ways().into_iter().map(|way| u64::from(self.len_bytes(way) > 0)).sum()
    }

    /// Turns that a way has had.
    fn turn_count(&self, way: Way) -> u64 {
        let latencies = match way {
            Way::WriteThenFlush { size_index } => &self.of[size_index].write_and_flush,
            Way::Durable { size_index } => &self.of[size_index].durable,
            Way::Record => &self.record.durable,
            Way::CleanFlush => &self.clean_flush,
        };
        latencies.count()
    }

    /// Turns that a way may have in all.
    fn turn_count_max(&self, way: Way, area_bytes: u64) -> u64 {
        match self.len_bytes(way) as u64 {
            0 => u64::MAX,
            len_bytes => area_bytes / len_bytes,
        }
    }

    /// Measures on the first `area_bytes` of `disk`, which are overwritten, until the limits are
    /// reached, but each way at least once unless it is interrupted.
    pub(crate) fn measure(
        &mut self,
        disk: &dyn BlockDevice,
        area_bytes: u64,
        limits: Limits<'_>,
    ) -> Result<()> {
        let ways = self.ways();
        let turns = Turns::new(ways.iter().map(|way| self.turn_count_max(*way, area_bytes)));
        let is_over =
            |turns: &Turns| limits.is_interrupted() || (turns.have_all_begun() && limits.is_over());
        self.take(turns, &ways, disk, is_over)
    }

    /// Goes on with the ways that decide whether a disk is good enough, until each has enough
    /// observations for a 99th percentile, or until the limits are reached.
    pub(crate) fn complete(
        &mut self,
        disk: &dyn BlockDevice,
        area_bytes: u64,
        limits: Limits<'_>,
    ) -> Result<()> {
        let is_judged = |way: &Way| {
            matches!(way, Way::WriteThenFlush { .. } | Way::Durable { .. })
                && JUDGED_BYTES.contains(&self.len_bytes(*way))
        };
        let ways: Vec<Way> = self.ways().into_iter().filter(is_judged).collect();
        let left_count = |way: &Way| {
            let count_max = self.turn_count_max(*way, area_bytes).min(COUNT_FOR_P99);
            count_max.saturating_sub(self.turn_count(*way))
        };
        let turns = Turns::new(ways.iter().map(left_count));
        self.take(turns, &ways, disk, |_| limits.is_over())
    }

    /// Gives the ways their turns until none is left or `is_over`.
    fn take(
        &mut self,
        mut turns: Turns,
        ways: &[Way],
        disk: &dyn BlockDevice,
        is_over: impl Fn(&Turns) -> bool,
    ) -> Result<()> {
        let mut noise = Noise::new(SIZE_BYTES_MAX.max(self.record.len_bytes), fastrand::u64(..));
        while let Some(index) = turns.next()
            && !is_over(&turns)
        {
            let way = ways[index];
            let data = noise.next(self.len_bytes(way));
            let offset = self.turn_count(way) * data.len() as u64;
            let begun = Instant::now();
            self.turn(disk, way, offset, data)?;
            turns.took(index, begun.elapsed());
        }
        Ok(())
    }

    /// One turn of `way`.
    fn turn(&mut self, disk: &dyn BlockDevice, way: Way, offset: u64, data: &[u8]) -> Result<()> {
        match way {
            Way::WriteThenFlush { size_index } => {
                let of = &mut self.of[size_index];
                let wrote = of.write.time(|| disk.write(offset, data))?;
                let flushed = of.flush.time(|| disk.flush())?;
                of.write_and_flush.add(wrote + flushed);
            }
            Way::Durable { size_index } => {
                self.of[size_index].durable.time(|| disk.write_durable(offset, data))?;
            }
            Way::Record => {
                self.record.durable.time(|| disk.write_durable(offset, data))?;
            }
            Way::CleanFlush => {
                // Other programs may have unflushed writes.
                disk.flush()?;
                self.clean_flush.time(|| disk.flush())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use device::{MemoryDevice, Metered};

    use super::*;

    const AREA_BYTES: u64 = 2 << 20;

    fn measure(sector_bytes: usize, time: Duration, is_interrupted: bool) -> (Sizes, u64, u64) {
        let disk = Metered::new(MemoryDevice::new(4 << 20, sector_bytes));
        let interrupted = AtomicBool::new(is_interrupted);
        let mut sizes = Sizes::of_sectors(sector_bytes);
        let limits = Limits::new(time, &interrupted);
        sizes.measure(&disk, AREA_BYTES, limits).expect("memory does not fail");
        let counters = disk.counters();
        let flush_count = counters.flush_count - counters.durable_write_count;
        let after_area = &disk.inner().to_bytes()[2 << 20..];
        assert!(after_area.iter().all(|byte| *byte == 0), "it wrote outside of its area");
        (sizes, counters.write_bytes, flush_count)
    }

    fn count(latencies: &Latencies) -> u64 {
        latencies.count()
    }

    #[test]
    fn every_way_has_a_turn_without_time() {
        let (sizes, _, _) = measure(512, Duration::ZERO, false);
        let lens: Vec<usize> = sizes.of.iter().map(|of| of.len_bytes).collect();
        assert_eq!(lens, [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]);
        for of in &sizes.of {
            let all = [&of.write, &of.flush, &of.write_and_flush, &of.durable];
            assert_eq!(all.map(count), [1; 4], "{}", of.len_bytes);
        }
        assert_eq!((sizes.record.len_bytes, count(&sizes.record.durable)), (4608, 1));
        assert_eq!(count(&sizes.clean_flush), 1);
    }

    #[test]
    fn a_sector_of_4_kib_is_no_size_of_its_own() {
        let (sizes, _, _) = measure(4096, Duration::ZERO, false);
        assert_eq!((sizes.of.len(), sizes.of[0].len_bytes), (5, 4096));
        assert_eq!(sizes.record.len_bytes, 8192);
        assert_eq!((sizes.ways().len(), sizes.writing_way_count()), (12, 11));
    }

    #[test]
    fn no_way_writes_more_than_the_area() {
        let (sizes, written_bytes, _) = measure(512, Duration::from_millis(300), false);
        assert!(written_bytes <= sizes.writing_way_count() * AREA_BYTES, "{written_bytes}");
        for of in &sizes.of {
            let most = AREA_BYTES / of.len_bytes as u64;
            assert!(count(&of.write) <= most && count(&of.durable) <= most, "{}", of.len_bytes);
        }
    }

    #[test]
    fn an_interrupted_measurement_writes_nothing_more() {
        let (sizes, written_bytes, flush_count) = measure(512, Duration::from_secs(9), true);
        assert_eq!((written_bytes, flush_count, count(&sizes.clean_flush)), (0, 0, 0));
    }

    #[test]
    fn judged_sizes_get_enough_observations_within_the_bound() {
        let disk = Metered::new(MemoryDevice::new(4 << 20, 512));
        let interrupted = AtomicBool::new(false);
        let mut sizes = Sizes::of_sectors(512);
        let limits = |secs| Limits::new(Duration::from_secs(secs), &interrupted);
        sizes.measure(&disk, AREA_BYTES, limits(0)).expect("memory");
        sizes.complete(&disk, AREA_BYTES, limits(0)).expect("memory");
        let counts = |sizes: &Sizes| -> Vec<u64> {
            sizes.of.iter().map(|of| count(&of.write_and_flush)).collect()
        };
        assert_eq!(counts(&sizes), [1; 6], "there was no time");
        for _ in 0..2 {
            sizes.complete(&disk, AREA_BYTES, limits(60)).expect("memory");
            assert_eq!(counts(&sizes), [1, 100, 100, 1, 1, 1]);
        }
        assert_eq!(sizes.of.iter().map(|of| count(&of.durable)).sum::<u64>(), 204);
        // 64 writes of 16 KiB fill an area of 1 MiB.
        let mut small = Sizes::of_sectors(512);
        small.measure(&disk, 1 << 20, limits(0)).expect("memory");
        small.complete(&disk, 1 << 20, limits(60)).expect("memory");
        assert_eq!(counts(&small), [1, 100, 64, 1, 1, 1]);
    }
}
