//! The whole measurement, in parts that share its time.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use device::{BlockDevice, Result};

use super::append::Appends;
use super::area::Area;
use super::flush_count::{self, FlushCount};
use super::limits::Limits;
use super::parallel::{self, Parallel};
use super::sizes::Sizes;

/// The parts of the time, in percent: of the sizes, of the counted flushes, of all numbers of
/// threads, of the appends.
const SIZES_PERCENT: u32 = 45;
const FLUSHES_PERCENT: u32 = 5;
const PARALLEL_PERCENT: u32 = 25;
const APPENDS_PERCENT: u32 = 25;

/// A measurement takes so many times the time that it was given, if a slow disk needs that for
/// enough observations. A single operation may take longer.
const TIMES_MAX: u32 = 3;

const _: () = assert!(SIZES_PERCENT + FLUSHES_PERCENT + PARALLEL_PERCENT + APPENDS_PERCENT == 100);

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The logical sector.
    pub sector_bytes: usize,
    /// One thread, by size.
    pub sizes: Sizes,
    /// Several threads.
    pub parallel: Vec<Parallel>,
    /// Appends as etcd makes them.
    pub appends: Appends,
    /// How many flushes reached the disks.
    pub flushes: FlushCount,
    /// Bytes that were written, including those of [`Area::fill`], without metadata of a file
    /// system.
    pub written_bytes: u64,
    /// How long it took, without [`Area::fill`].
    pub elapsed: Duration,
}

/// Measures for about `time`, or until `interrupted` is set. Unless it is set, everything is
/// measured once at least. What decides whether a disk is good enough goes on until it has enough
/// observations, for three times `time` in all at most.
pub fn measure(area: &Area, time: Duration, interrupted: &AtomicBool) -> Result<Measured> {
    let begun = Instant::now();
    let part = |percent: u32| time * percent / 100;
    let limits = |time| Limits::new(time, interrupted);
    let (disk, area_bytes) = (&area.disk, area.area_bytes);
    let mut sizes = Sizes::of_sectors(disk.sector_bytes());
    sizes.measure(disk, area_bytes, limits(part(SIZES_PERCENT)))?;
    let disks = &area.holder().disks;
    let flushes = flush_count::measure(disk, area_bytes, disks, limits(part(FLUSHES_PERCENT)))?;
    let parallel = parallel::measure(disk, area_bytes, part(PARALLEL_PERCENT), limits)?;
    let mut appends = Appends::default();
    appends.measure(&area.appended, area.appended_bytes, limits(part(APPENDS_PERCENT)))?;
    let left = || limits((time * TIMES_MAX).saturating_sub(begun.elapsed()));
    sizes.complete(disk, area_bytes, left())?;
    appends.complete(&area.appended, area.appended_bytes, left())?;
    Ok(Measured {
        sector_bytes: disk.sector_bytes(),
        sizes,
        parallel,
        written_bytes: disk.counters().write_bytes + appends.written_bytes,
        appends,
        flushes,
        elapsed: begun.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::area::AREA_BYTES_MIN;
    use super::super::parallel::THREAD_COUNTS;
    use super::*;

    #[test]
    fn a_directory_is_measured_in_full_and_within_its_bytes() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let interrupted = AtomicBool::new(false);
        let area = Area::in_directory(dir.path(), AREA_BYTES_MIN).expect("files");
        area.fill(&interrupted).expect("there is room");
        let found = measure(&area, Duration::from_millis(50), &interrupted);
        let found = found.expect("measured");
        assert!(found.sizes.of.iter().all(|of| of.durable.percentiles().is_some()));
        let threads: Vec<usize> = found.parallel.iter().map(|of| of.thread_count).collect();
        assert_eq!(threads, THREAD_COUNTS);
        let count = |of: &Parallel| of.write_and_flush.latencies.count();
        assert!(found.parallel.iter().all(|of| count(of) >= of.thread_count as u64));
        assert!(found.appends.sync.percentiles().is_some());
        assert!(found.written_bytes <= area.write_bytes_max(), "{}", found.written_bytes);
        assert!(found.flushes.asked_count > 0);
    }
}
