//! The pattern of a write-ahead log such as etcd's: small sequential writes, each followed by
//! `fdatasync`.
//!
//! The file is preallocated and never written before, as etcd's segments are. So on ext4 and XFS
//! each sync also commits a change of metadata. The writes go through the page cache, and only
//! `fdatasync` is timed. Both is what the disk benchmark of etcd's
//! documentation does (`fio --rw=write --ioengine=sync --fdatasync=1 --bs=2300`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use device::{DeviceError, Operation, Result};

use super::latency::{COUNT_FOR_P99, Latencies};
use super::limits::Limits;
use super::noise::Noise;

/// The size of one write.
pub const APPEND_BYTES: usize = 2300;

/// A write through the page cache dirties whole pages.
const PAGE_BYTES: u64 = 4096;

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Appends {
    /// `fdatasync` after each write.
    pub sync: Latencies,
    /// Bytes of the pages that each sync wrote.
    pub written_bytes: u64,
}

/// Bytes that appends to a file of this size write at most: each may touch two pages.
pub(crate) fn append_bytes_max(file_bytes: u64) -> u64 {
    append_count_max(file_bytes) * 2 * PAGE_BYTES
}

fn append_count_max(file_bytes: u64) -> u64 {
    file_bytes / APPEND_BYTES as u64
}

impl Appends {
    /// Writes to the first `file_bytes` of `file` until the limits are reached, but once at least
    /// unless it is interrupted.
    pub(crate) fn measure(
        &mut self,
        file: &File,
        file_bytes: u64,
        limits: Limits<'_>,
    ) -> Result<()> {
        let is_over = |count| limits.is_interrupted() || (count > 0 && limits.is_over());
        self.append_until(file, file_bytes, is_over)
    }

    /// Goes on, until there are enough observations for a 99th percentile, or until the limits are
    /// reached.
    pub(crate) fn complete(
        &mut self,
        file: &File,
        file_bytes: u64,
        limits: Limits<'_>,
    ) -> Result<()> {
        self.append_until(file, file_bytes, |count| count >= COUNT_FOR_P99 || limits.is_over())
    }

    fn append_until(
        &mut self,
        file: &File,
        file_bytes: u64,
        is_over: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let first = self.sync.count();
        let mut noise = Noise::new(APPEND_BYTES, 2 + first);
        for index in first..append_count_max(file_bytes) {
            if is_over(index) {
                break;
            }
            let offset = index * APPEND_BYTES as u64;
            let failed =
                |operation| move |error| DeviceError::new(operation, offset, APPEND_BYTES, error);
            let data = noise.next(APPEND_BYTES);
            file.write_all_at(data, offset).map_err(failed(Operation::Write))?;
            self.sync.time(|| file.sync_data()).map_err(failed(Operation::Flush))?;
            self.written_bytes += page_bytes(offset, data.len() as u64);
        }
        Ok(())
    }
}

/// Bytes of the pages that a write touches.
fn page_bytes(offset: u64, len_bytes: u64) -> u64 {
    let end = (offset + len_bytes).next_multiple_of(PAGE_BYTES);
    end - offset / PAGE_BYTES * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_write_touches_one_page_or_two() {
        assert_eq!(page_bytes(0, 2300), 4096);
        assert_eq!(page_bytes(2300, 2300), 8192);
        assert_eq!(page_bytes(4096, 4096), 4096);
        assert_eq!(append_bytes_max(2300 * 3 + 1), 3 * 8192);
    }

    #[test]
    fn appends_fill_their_file_and_no_more() {
        let file = tempfile::tempfile().expect("a file");
        let interrupted = AtomicBool::new(false);
        let len = || file.metadata().expect("its length").len();
        let measure = |time, is_completed: bool| {
            let (mut appends, limits) = (Appends::default(), Limits::new(time, &interrupted));
            appends.measure(&file, 200 * 2300 + 5, limits).expect("written");
            if is_completed {
                let limits = Limits::new(Duration::from_secs(60), &interrupted);
                appends.complete(&file, 200 * 2300 + 5, limits).expect("written");
            }
            appends.sync.count()
        };
        assert_eq!((measure(Duration::ZERO, false), len()), (1, 2300));
        assert_eq!((measure(Duration::ZERO, true), len()), (COUNT_FOR_P99, COUNT_FOR_P99 * 2300));
        for is_completed in [false, true] {
            let count = measure(Duration::from_secs(60), is_completed);
            assert_eq!((count, len()), (200, 200 * 2300));
        }
        interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(measure(Duration::from_secs(60), true), 0);
    }
}
