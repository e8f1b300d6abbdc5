//! The whole measurement, in three parts that share its time.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::append::{self, Appends};
use super::area::Area;
use super::disks::DisksBelow;
use super::diskstats::disk_stats;
use super::limits::Limits;
use super::parallel::{self, Parallel, THREAD_COUNTS};
use super::sizes::Sizes;
use crate::block::block_device::BlockDevice;
use crate::error::Result;

/// The parts of the time, in percent: of the sizes, of all numbers of threads, of the appends.
const SIZES_PERCENT: u32 = 50;
const PARALLEL_PERCENT: u32 = 25;
const APPENDS_PERCENT: u32 = 25;

const _: () = assert!(SIZES_PERCENT + PARALLEL_PERCENT + APPENDS_PERCENT == 100);

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
    /// The flushes of the first part.
    pub flushes: FlushCount,
    /// Bytes that were written, including those of [`Area::fill`], without metadata of a file
    /// system.
    pub written_bytes: u64,
    /// How long it took, without [`Area::fill`].
    pub elapsed: Duration,
}

/// Flushes that the measurement asked for, and those that reached the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushCount {
    /// `fdatasync` was called so many times.
    pub asked_count: u64,
    /// Flushes that the disks completed meanwhile, including those of other programs. `None`: the
    /// kernel does not count them for these disks.
    pub reached_count: Option<u64>,
}

/// Measures for about `time`, or until `interrupted` is set. Unless it is set, everything is
/// measured once at least. `disks` are those below the area.
pub fn measure(
    area: &Area,
    disks: &DisksBelow,
    time: Duration,
    interrupted: &AtomicBool,
) -> Result<Measured> {
    let begun = Instant::now();
    let part = |percent: u32| time * percent / 100;
    let limits = |time| Limits::new(time, interrupted);
    let mut sizes = Sizes::of_sectors(area.disk.sector_bytes());
    let before = flush_count(disks);
    let asked_count = sizes.measure(&area.disk, area.area_bytes, limits(part(SIZES_PERCENT)))?;
    let reached_count = grown(before, flush_count(disks));
    let of_each = part(PARALLEL_PERCENT).div_f64(THREAD_COUNTS.len() as f64);
    let of_threads = |thread_count| {
        parallel::measure(&area.disk, area.area_bytes, thread_count, limits(of_each))
    };
    let parallel = THREAD_COUNTS.into_iter().map(of_threads).collect::<Result<_>>()?;
    let appends =
        append::measure(&area.appended, area.appended_bytes, limits(part(APPENDS_PERCENT)))?;
    Ok(Measured {
        sector_bytes: area.disk.sector_bytes(),
        sizes,
        parallel,
        written_bytes: area.disk.counters().write_bytes + appends.written_bytes,
        appends,
        flushes: FlushCount { asked_count, reached_count },
        elapsed: begun.elapsed(),
    })
}

/// Flushes that the disks have completed since they appeared. `None` if that is not known for all
/// of them, or if one of them has never counted one: some drivers count none.
fn flush_count(disks: &DisksBelow) -> Option<u64> {
    let stats = disk_stats().ok().filter(|_| disks.is_complete && !disks.disks.is_empty())?;
    let of_disk = |device| {
        let found = stats.iter().find(|stats| stats.device == device);
        found.and_then(|stats| stats.flush_count).filter(|count| *count > 0)
    };
    disks.disks.iter().map(|disk| of_disk(disk.device)).sum()
}

fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    before.zip(after).map(|(before, after)| after.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::super::area::AREA_BYTES_MIN;
    use super::super::disks::disks_below;
    use super::*;

    #[test]
    fn a_directory_is_measured_in_full_and_within_its_bytes() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let disks = disks_below(dir.path()).expect("found");
        let interrupted = AtomicBool::new(false);
        let area = Area::in_directory(dir.path(), AREA_BYTES_MIN).expect("files");
        area.fill(&interrupted).expect("there is room");
        let found = measure(&area, &disks, Duration::from_millis(50), &interrupted);
        let found = found.expect("measured");
        assert!(found.sizes.of.iter().all(|of| of.durable.percentiles().is_some()));
        let threads: Vec<usize> = found.parallel.iter().map(|of| of.thread_count).collect();
        assert_eq!(threads, THREAD_COUNTS);
        assert!(found.parallel.iter().all(|of| of.write_count >= of.thread_count as u64));
        assert!(found.appends.sync.percentiles().is_some());
        assert!(found.written_bytes <= area.write_bytes_max(), "{}", found.written_bytes);
        assert!(found.flushes.asked_count > 0);
    }

    #[test]
    fn flushes_are_unknown_where_a_disk_does_not_count_them() {
        assert_eq!(grown(Some(3), Some(5)), Some(2));
        assert_eq!((grown(None, Some(5)), grown(Some(5), None)), (None, None));
        let none = DisksBelow { disks: Vec::new(), is_complete: true };
        assert_eq!(flush_count(&none), None);
    }
}
