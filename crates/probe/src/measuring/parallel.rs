//! Several threads make writes durable at the same time, each at its own offsets.
//!
//! All numbers of threads take turns, in several rounds, so that a disk that becomes slower in the
//! meantime does not make the last ones look bad. In a turn, all threads begin at the same time.
//! The threads do not end at the same time: each ends after the write in which the time was over.
//! So the rate of a turn is the sum of the rates of its threads, each over its own time.

use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use device::sync::RwLock;
use device::{BlockDevice, DeviceError, Operation, Result};

use super::latency::Latencies;
use super::limits::Limits;
use super::noise::Noise;

/// How many threads write.
pub(crate) const THREAD_COUNTS: [usize; 5] = [1, 2, 4, 8, 16];

/// What each of them writes at a time.
const LEN_BYTES: usize = 4 << 10;

/// How often each number of threads has a turn.
const ROUND_COUNT: u32 = 4;

/// How writes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Durable,
    WriteThenFlush,
}

/// Each number of threads measures in each way.
const WAYS: [Way; 2] = [Way::Durable, Way::WriteThenFlush];

/// How often the area is written at most.
pub(crate) const PASS_COUNT: u64 = (THREAD_COUNTS.len() * WAYS.len()) as u64;

/// Writes of 4 KiB by several threads.
#[derive(Debug, Clone)]
pub struct Parallel {
    /// How many threads wrote.
    pub thread_count: usize,
    /// Writes that are durable when they return.
    pub durable: Together,
    /// Writes, each with a flush after it.
    pub write_and_flush: Together,
}

/// What all threads did together, in one way.
#[derive(Debug, Clone, Default)]
pub struct Together {
    /// How long each write took until it was durable.
    pub latencies: Latencies,
    /// The sum of all turns.
    pub elapsed: Duration,
    /// The sum of the rate of each turn times its duration.
    pub weighted_count: f64,
}

impl Together {
    /// Writes a second, of all threads together.
    pub fn per_second(&self) -> f64 {
        self.weighted_count / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Measures until the limits are reached, but each thread writes at least once in each way unless
/// it is interrupted. Each number of threads writes at most `area_bytes` in each way.
pub(crate) fn measure<'a>(
    disk: &'a dyn BlockDevice,
    area_bytes: u64,
    time: Duration,
    limits: impl Fn(Duration) -> Limits<'a>,
) -> Result<Vec<Parallel>> {
    let lane = |(thread_count, way)| Lane::new(disk, area_bytes, thread_count, way);
    let all = THREAD_COUNTS.into_iter().flat_map(|count| WAYS.map(|way| (count, way)));
    let mut lanes: Vec<Lane<'_>> = all.map(lane).collect();
    let whole = limits(time);
    let turn_time = time / ROUND_COUNT / u32::try_from(lanes.len()).expect("there are ten");
    for round in 0..ROUND_COUNT {
        for lane in &mut lanes {
            if round == 0 || !whole.is_over() {
                lane.turn(limits(turn_time))?;
            }
        }
    }
    let parallel = |pair: &[Lane<'_>]| Parallel {
        thread_count: pair[0].next_offsets.len(),
        durable: pair[0].together.clone(),
        write_and_flush: pair[1].together.clone(),
    };
    Ok(lanes.chunks(WAYS.len()).map(parallel).collect())
}

/// One number of threads, and one way.
struct Lane<'a> {
    disk: &'a dyn BlockDevice,
    way: Way,
    /// The next offset of each thread.
    next_offsets: Vec<u64>,
    /// Each thread has so many bytes.
    range_bytes: u64,
    together: Together,
}

impl<'a> Lane<'a> {
    fn new(disk: &'a dyn BlockDevice, area_bytes: u64, thread_count: usize, way: Way) -> Self {
        let range_bytes = area_bytes / thread_count as u64 / LEN_BYTES as u64 * LEN_BYTES as u64;
        let next_offsets = (0..thread_count as u64).map(|index| index * range_bytes).collect();
        Lane { disk, way, next_offsets, range_bytes, together: Together::default() }
    }

    /// All threads write until the limits are reached.
    fn turn(&mut self, limits: Limits<'_>) -> Result<()> {
        // Closed until all threads wait at it.
        let gate = RwLock::new(());
        let results: Vec<Result<Written>> = std::thread::scope(|scope| {
            let closed = gate.write();
            let start = |writer: Writer<'a>| writer.start(scope, &gate, limits);
            let threads: Vec<_> = self.writers().into_iter().map(start).collect();
            drop(closed);
            let end = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("it does not panic");
            threads.into_iter().map(|thread| thread.and_then(end)).collect()
        });
        let (mut per_second, mut elapsed) = (0.0, Duration::ZERO);
        for (next_offset, written) in self.next_offsets.iter_mut().zip(results) {
            let written = written?;
            *next_offset += written.latencies.count() * LEN_BYTES as u64;
            per_second += written.per_second();
            elapsed = elapsed.max(written.elapsed);
            self.together.latencies.merge(&written.latencies);
        }
        self.together.elapsed += elapsed;
        self.together.weighted_count += per_second * elapsed.as_secs_f64();
        Ok(())
    }

    fn writers(&self) -> Vec<Writer<'a>> {
        let writer = |(index, offset): (u64, &u64)| Writer {
            disk: self.disk,
            way: self.way,
            offset: *offset,
            end: (index + 1) * self.range_bytes,
            noise: Noise::new(LEN_BYTES, fastrand::u64(..)),
        };
        (0..).zip(&self.next_offsets).map(writer).collect()
    }
}

/// One thread's writes.
struct Writer<'a> {
    disk: &'a dyn BlockDevice,
    way: Way,
    offset: u64,
    end: u64,
    noise: Noise,
}

/// What one thread has written in a turn.
struct Written {
    elapsed: Duration,
    latencies: Latencies,
}

impl Written {
    fn per_second(&self) -> f64 {
        // It is finite: the number of writes has no fraction.
        self.latencies.count() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl<'a> Writer<'a> {
    fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        gate: &'scope RwLock<()>,
        limits: Limits<'scope>,
    ) -> Result<ScopedJoinHandle<'scope, Result<Written>>>
    where
        'a: 'scope,
    {
        let run = move || {
            let mut latencies = Latencies::default();
            drop(gate.read());
            let begun = Instant::now();
            self.write(limits, &mut latencies)?;
            Ok(Written { elapsed: begun.elapsed(), latencies })
        };
        let thread = Builder::new().name("prober".into()).spawn_scoped(scope, run);
        thread.map_err(|error| DeviceError::new(Operation::Write, 0, LEN_BYTES, error))
    }

    fn write(mut self, limits: Limits<'_>, latencies: &mut Latencies) -> Result<()> {
        while self.offset < self.end && !limits.is_interrupted() {
            let data = self.noise.next(LEN_BYTES);
            latencies.time(|| match self.way {
                Way::Durable => self.disk.write_durable(self.offset, data),
                Way::WriteThenFlush => {
                    self.disk.write(self.offset, data).and_then(|()| self.disk.flush())
                }
            })?;
            self.offset += LEN_BYTES as u64;
            if limits.is_over() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use device::{MemoryDevice, Metered};

    use super::*;

    const AREA_BYTES: u64 = 1 << 20;

    #[test]
    fn each_thread_writes_in_its_own_range_and_no_more_than_that() {
        let interrupted = AtomicBool::new(false);
        let limits = |time| Limits::new(time, &interrupted);
        let disk = Metered::new(MemoryDevice::new(2 << 20, 512));
        // The ranges are full before the time is over.
        let found = measure(&disk, AREA_BYTES, Duration::from_secs(600), limits).expect("memory");
        let counters = disk.counters();
        assert_eq!(counters.write_bytes, PASS_COUNT * AREA_BYTES);
        assert_eq!(counters.durable_write_count, 5 * 256);
        assert_eq!(counters.flush_count - counters.durable_write_count, 5 * 256);
        let threads: Vec<usize> = found.iter().map(|of| of.thread_count).collect();
        assert_eq!(threads, THREAD_COUNTS);
        for together in found.iter().flat_map(|of| [&of.durable, &of.write_and_flush]) {
            assert_eq!(together.latencies.count(), 256);
            assert!(together.per_second() > 0.0);
        }
        let bytes = disk.inner().to_bytes();
        assert!(bytes[1 << 20..].iter().all(|byte| *byte == 0), "it wrote outside of its area");
    }

    #[test]
    fn each_thread_writes_once_without_time_and_never_after_an_interrupt() {
        for (is_interrupted, times) in [(false, 1), (true, 0)] {
            let interrupted = AtomicBool::new(is_interrupted);
            let limits = |time| Limits::new(time, &interrupted);
            let disk = MemoryDevice::new(2 << 20, 512);
            let found = measure(&disk, AREA_BYTES, Duration::ZERO, limits).expect("memory");
            for of in found {
                let counts = [&of.durable, &of.write_and_flush].map(|of| of.latencies.count());
                assert_eq!(counts, [times * of.thread_count as u64; 2]);
            }
        }
    }

    #[test]
    fn the_rate_of_all_turns_is_weighted_by_their_time() {
        let together = Together {
            elapsed: Duration::from_secs(4),
            weighted_count: 100.0 + 3.0 * 20.0,
            ..Together::default()
        };
        assert_eq!(together.per_second(), 40.0);
        assert_eq!(Together::default().per_second(), 0.0);
    }

    #[test]
    fn a_disk_that_fails_is_an_error() {
        let interrupted = AtomicBool::new(false);
        let limits = |time| Limits::new(time, &interrupted);
        // Smaller than the area.
        let disk = MemoryDevice::new(4096, 512);
        measure(&disk, AREA_BYTES, Duration::ZERO, limits)
            .expect_err("the second thread writes outside");
    }
}
