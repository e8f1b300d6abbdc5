//! Durable writes of several threads at the same time, each at its own offsets.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::latency::Latencies;
use super::limits::Limits;
use super::noise::Noise;
use crate::block::block_device::BlockDevice;
use crate::error::{DeviceError, Operation, Result};

/// How many threads write.
pub(crate) const THREAD_COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

const THREAD_COUNT_MAX: u64 = 16;

/// What each of them writes at a time.
const LEN_BYTES: usize = 4 << 10;

/// Durable writes of 4 KiB by several threads.
#[derive(Debug, Clone)]
pub struct Parallel {
    /// How many threads wrote.
    pub thread_count: usize,
    /// The writes of all of them.
    pub write_count: u64,
    /// From the start of all of them to the end of the last.
    pub elapsed: Duration,
    /// How long each write took.
    pub durable: Latencies,
}

impl Parallel {
    /// Durable writes a second, of all threads together.
    pub fn per_second(&self) -> f64 {
        self.write_count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Writes with `thread_count` threads until the limits are reached, but each thread at least once
/// unless it is interrupted. All of them together write at most `area_bytes`.
pub(crate) fn measure(
    disk: &dyn BlockDevice,
    area_bytes: u64,
    thread_count: usize,
    limits: Limits<'_>,
) -> Result<Parallel> {
    let range_bytes = area_bytes / THREAD_COUNT_MAX / LEN_BYTES as u64 * LEN_BYTES as u64;
    let write = |index: u64| {
        // Made before the start: it takes longer than a write.
        let writer = Writer::new(disk, index * range_bytes, range_bytes);
        let begun = Instant::now();
        writer.write(limits).map(|durable| (begun, Instant::now(), durable))
    };
    let results = std::thread::scope(|scope| {
        let start = |index| {
            let thread = std::thread::Builder::new().name("prober".into());
            let thread = thread.spawn_scoped(scope, move || write(index));
            thread.map_err(|error| DeviceError::new(Operation::Write, 0, LEN_BYTES, error))
        };
        // All are started before the first is waited for.
        let threads: Vec<_> = (0..thread_count as u64).map(start).collect();
        let end = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("it does not panic");
        threads.into_iter().map(|thread| thread.and_then(end)).collect::<Vec<_>>()
    });
    let (mut begun, mut ended, mut durable) = (None, None, Latencies::default());
    for result in results {
        let (began_at, ended_at, latencies) = result?;
        begun = begun.min(Some(began_at)).or(Some(began_at));
        ended = ended.max(Some(ended_at));
        durable.merge(&latencies);
    }
    let elapsed = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
    let write_count = durable.percentiles().map_or(0, |found| found.count);
    Ok(Parallel { thread_count, write_count, elapsed, durable })
}

/// One thread's writes.
struct Writer<'a> {
    disk: &'a dyn BlockDevice,
    offset: u64,
    end: u64,
    noise: Noise,
}

impl<'a> Writer<'a> {
    fn new(disk: &'a dyn BlockDevice, offset: u64, range_bytes: u64) -> Self {
        Writer { disk, offset, end: offset + range_bytes, noise: Noise::new(LEN_BYTES, offset) }
    }

    fn write(mut self, limits: Limits<'_>) -> Result<Latencies> {
        let mut durable = Latencies::default();
        while self.offset < self.end && !limits.is_interrupted() {
            let data = self.noise.next(LEN_BYTES);
            durable.time(|| self.disk.write_durable(self.offset, data))?;
            self.offset += LEN_BYTES as u64;
            if limits.is_over() {
                break;
            }
        }
        Ok(durable)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::block::memory::MemoryDevice;
    use crate::block::metered::Metered;

    #[test]
    fn each_thread_writes_in_its_own_range() {
        let interrupted = AtomicBool::new(false);
        for thread_count in THREAD_COUNTS {
            let disk = Metered::new(MemoryDevice::new(2 << 20, 512));
            let limits = Limits::new(Duration::from_secs(60), &interrupted);
            let found = measure(&disk, 1 << 20, thread_count, limits).expect("it is memory");
            // The ranges are full before the time is over.
            assert_eq!(found.write_count, 16 * thread_count as u64);
            assert_eq!(disk.counters().durable_write_count, found.write_count);
            let bytes = disk.inner().to_bytes();
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            assert!(written <= thread_count << 16, "{thread_count}: {written}");
            assert!(found.per_second() > 0.0);
        }
    }

    #[test]
    fn each_thread_writes_once_without_time_and_never_after_an_interrupt() {
        for (is_interrupted, expected) in [(false, 4), (true, 0)] {
            let interrupted = AtomicBool::new(is_interrupted);
            let disk = MemoryDevice::new(2 << 20, 512);
            let limits = Limits::new(Duration::ZERO, &interrupted);
            let found = measure(&disk, 1 << 20, 4, limits).expect("it is memory");
            assert_eq!(found.write_count, expected);
        }
    }

    #[test]
    fn a_disk_that_fails_is_an_error() {
        let interrupted = AtomicBool::new(false);
        // Smaller than the area.
        let disk = MemoryDevice::new(4096, 512);
        let limits = Limits::new(Duration::ZERO, &interrupted);
        measure(&disk, 1 << 20, 2, limits).expect_err("the second thread writes outside");
    }
}
