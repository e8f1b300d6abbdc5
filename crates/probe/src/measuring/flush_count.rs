//! Counts how many of the flushes that were asked for the kernel sent.
//!
//! In a part of its own, every write of 4 KiB is followed by `fdatasync`, and the counters of the
//! kernel are read before and after. So what was asked for and what was sent are of the same
//! thing: this part has neither writes with `RWF_DSYNC`, which may send flushes by themselves, nor
//! flushes with nothing to flush, which some file systems do not send. The flushes of other
//! programs are counted, too, but in a short time there are few.

use device::{BlockDevice, Result};

use super::disks::DisksBelow;
use super::diskstats::{DiskStats, disk_stats};
use super::limits::Limits;
use super::noise::Noise;

/// The most that are asked for.
const COUNT_MAX: u64 = 300;

/// What is written before each flush. A multiple of every sector size.
const LEN_BYTES: usize = 4 << 10;

/// Flushes that were asked for, and flushes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushCount {
    /// `fdatasync` was called so many times, each after a write.
    pub asked_count: u64,
    /// Flushes that the disks completed meanwhile, for other programs, too. `None`: the
    /// kernel does not count them for these disks.
    pub reached_count: Option<u64>,
    /// The same for the loop device in between; of several, the fewest. `None`: there is no loop
    /// device.
    pub loop_reached_count: Option<u64>,
}

/// Bytes that a measurement writes at most.
pub(crate) const WRITE_BYTES_MAX: u64 = COUNT_MAX * LEN_BYTES as u64;

/// Writes and flushes in the first `area_bytes` of `disk` until the limits are reached, but once at
/// least unless it is interrupted.
pub(crate) fn measure(
    disk: &dyn BlockDevice,
    area_bytes: u64,
    disks: &DisksBelow,
    limits: Limits<'_>,
) -> Result<FlushCount> {
    let mut noise = Noise::new(LEN_BYTES, 3);
    let (mut asked_count, before) = (0, Counters::read(disks));
    while asked_count < COUNT_MAX
        && !limits.is_interrupted()
        && !(asked_count > 0 && limits.is_over())
    {
        disk.write(asked_count * LEN_BYTES as u64 % area_bytes, noise.next(LEN_BYTES))?;
        disk.flush()?;
        asked_count += 1;
    }
    let after = Counters::read(disks);
    let of_loops = before.of_loops.iter().zip(&after.of_loops);
    Ok(FlushCount {
        asked_count,
        reached_count: grown(before.of_disks, after.of_disks),
        loop_reached_count: of_loops.filter_map(|(before, after)| grown(*before, *after)).min(),
    })
}

/// Flushes that devices have completed since they appeared.
struct Counters {
    /// The sum for all disks. `None` if that is not known for all of them, or if one of them has
    /// never counted one: some drivers count none.
    of_disks: Option<u64>,
    /// The count of each loop device. The driver counts all flushes, so 0 is a count.
    of_loops: Vec<Option<u64>>,
}

impl Counters {
    fn read(disks: &DisksBelow) -> Counters {
        Counters::of(disks, &disk_stats().unwrap_or_default())
    }

    fn of(disks: &DisksBelow, stats: &[DiskStats]) -> Counters {
        let of_device = |device: (u32, u32)| {
            let found = stats.iter().find(|stats| stats.device == device);
            found.and_then(|stats| stats.flush_count)
        };
        let is_known = disks.is_complete && !disks.disks.is_empty();
        let of_disk = |device| of_device(device).filter(|count| *count > 0);
        Counters {
            of_disks: is_known
                .then(|| disks.disks.iter().map(|disk| of_disk(disk.device)).sum::<Option<u64>>())
                .flatten(),
            of_loops: disks.loops.iter().map(|device| of_device(*device)).collect(),
        }
    }
}

fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    before.zip(after).map(|(before, after)| after.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use device::{MemoryDevice, Metered};

    use super::super::disks::WholeDisk;
    use super::super::diskstats::parse_disk_stats;
    use super::super::write_cache::WriteCache;
    use super::*;

    const AREA_BYTES: u64 = 1 << 20;

    fn disks(minors: &[u32], is_complete: bool, loops: &[(u32, u32)]) -> DisksBelow {
        let disk = |minor: &u32| WholeDisk {
            device: (8, *minor),
            name: "sda".into(),
            write_cache: WriteCache::Volatile,
            sequence_number: None,
        };
        let disks = minors.iter().map(disk).collect();
        DisksBelow { disks, is_complete, loops: loops.to_vec() }
    }

    fn measured(time: Duration, is_interrupted: bool) -> (FlushCount, u64, u64) {
        let disk = Metered::new(MemoryDevice::new(2 << 20, 512));
        let interrupted = AtomicBool::new(is_interrupted);
        let limits = Limits::new(time, &interrupted);
        let found = measure(&disk, AREA_BYTES, &disks(&[], true, &[]), limits).expect("memory");
        let counters = disk.counters();
        (found, counters.flush_count, counters.write_bytes)
    }

    #[test]
    fn each_flush_that_is_asked_for_follows_a_write() {
        for (time, is_interrupted, expected) in
            [(60, false, COUNT_MAX), (0, false, 1), (60, true, 0)]
        {
            let (found, flush_count, write_bytes) =
                measured(Duration::from_secs(time), is_interrupted);
            assert_eq!((found.asked_count, flush_count), (expected, expected));
            assert_eq!(write_bytes, expected * LEN_BYTES as u64);
            assert!(write_bytes <= WRITE_BYTES_MAX);
            assert_eq!((found.reached_count, found.loop_reached_count), (None, None));
        }
    }

    #[test]
    fn counters_are_unknown_where_a_disk_does_not_count() {
        let line = |device: &str, flushes: &str| {
            format!("{device} name 1 0 1 1 1 0 1 1 0 1 1 0 0 0 0 {flushes}\n")
        };
        let text = [
            line("8 0", "5 1"),
            line("8 1", "0 0"),
            line("8 2", ""),
            line("8 3", "7 1"),
            line("7 0", "0 0"),
        ];
        let stats = parse_disk_stats(&text.concat());
        let of = |minors: &[u32], is_complete, loops: &[(u32, u32)]| {
            let counters = Counters::of(&disks(minors, is_complete, loops), &stats);
            (counters.of_disks, counters.of_loops)
        };
        assert_eq!(of(&[0, 3], true, &[]), (Some(12), vec![]));
        for minors in [&[0, 1][..], &[0, 2], &[0, 9], &[]] {
            assert_eq!(of(minors, true, &[]).0, None, "{minors:?}");
        }
        assert_eq!(of(&[0], false, &[(7, 0), (7, 9)]), (None, vec![Some(0), None]));
    }

    #[test]
    fn a_counter_grows_or_is_unknown() {
        assert_eq!(grown(Some(3), Some(5)), Some(2));
        assert_eq!((grown(None, Some(5)), grown(Some(5), None)), (None, None));
    }
}
