//! The figures of a measurement, as plain numbers. All judgements take them from here, and nothing
//! else.

use std::time::Duration;

use device::probe::{Latencies, Measured, OfSize, Percentiles};
use serde::Serialize;

/// What many operations of one kind took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// Operations of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeFigures {
    pub len_bytes: u64,
    pub write: Latency,
    pub flush: Latency,
    pub write_and_flush: Latency,
    pub durable_write: Latency,
}

/// Durable writes of 4 KiB by several threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ParallelFigures {
    pub thread_count: u64,
    pub durable_writes_per_s: f64,
    /// How many durable writes fit in the time of one by a single thread.
    pub in_the_time_of_one: f64,
    pub durable_write: Latency,
}

/// One kind of operation of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OneSize {
    pub len_bytes: u64,
    #[serde(flatten)]
    pub latency: Latency,
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub seconds: f64,
    pub written_bytes: u64,
    pub sector_bytes: u64,
    pub sizes: Vec<SizeFigures>,
    /// Durable writes of the size of a record in the journal of OneJournal.
    pub journal_record: OneSize,
    pub clean_flush: Latency,
    pub parallel: Vec<ParallelFigures>,
    /// `fdatasync` after each append.
    pub append_sync: OneSize,
    /// Calls of `fdatasync` while the sizes were measured.
    pub flushes_asked_count: u64,
    /// Flushes that the disks completed meanwhile, if the kernel counts them.
    pub flushes_reached_count: Option<u64>,
}

impl Figures {
    /// The figures of a measurement; `None` if it was interrupted before everything was measured.
    pub fn of(measured: &Measured) -> Option<Figures> {
        let sizes = measured.sizes.of.iter().map(size).collect::<Option<Vec<_>>>()?;
        let record = &measured.sizes.record;
        let one_size = |len_bytes: usize, latencies: &Latencies| {
            let latency = latency(latencies)?;
            Some(OneSize { len_bytes: len_bytes as u64, latency })
        };
        Some(Figures {
            seconds: rounded(measured.elapsed),
            written_bytes: measured.written_bytes,
            sector_bytes: measured.sector_bytes as u64,
            sizes,
            journal_record: one_size(record.len_bytes, &record.durable)?,
            clean_flush: latency(&measured.sizes.clean_flush)?,
            parallel: parallel(measured)?,
            append_sync: one_size(device::probe::APPEND_BYTES, &measured.appends.sync)?,
            flushes_asked_count: measured.flushes.asked_count,
            flushes_reached_count: measured.flushes.reached_count,
        })
    }

    /// The figures of one of the sizes that are always measured.
    pub fn of_size(&self, len_bytes: u64) -> &SizeFigures {
        let found = self.sizes.iter().find(|size| size.len_bytes == len_bytes);
        found.expect("this size is always measured")
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

fn latency(latencies: &Latencies) -> Option<Latency> {
    let Percentiles { count, p50_ns, p99_ns, max_ns } = latencies.percentiles()?;
    Some(Latency { count, p50_ns, p99_ns, max_ns })
}

fn size(of: &OfSize) -> Option<SizeFigures> {
    Some(SizeFigures {
        len_bytes: of.len_bytes as u64,
        write: latency(&of.write)?,
        flush: latency(&of.flush)?,
        write_and_flush: latency(&of.write_and_flush)?,
        durable_write: latency(&of.durable)?,
    })
}

fn parallel(measured: &Measured) -> Option<Vec<ParallelFigures>> {
    let of_one = measured.parallel.first()?.per_second();
    let figures = measured.parallel.iter().map(|of| {
        let per_second = of.per_second();
        Some(ParallelFigures {
            thread_count: of.thread_count as u64,
            durable_writes_per_s: (per_second * 10.0).round() / 10.0,
            in_the_time_of_one: (per_second / of_one * 100.0).round() / 100.0,
            durable_write: latency(&of.durable)?,
        })
    });
    figures.collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A latency that is the same in all its percentiles.
    pub fn flat(ns: u64) -> Latency {
        Latency { count: 1000, p50_ns: ns, p99_ns: ns, max_ns: ns }
    }

    /// A disk on which every write takes `write_ns`, and every flush `flush_ns` more.
    pub fn figures(write_ns: u64, flush_ns: u64) -> Figures {
        let both = flat(write_ns + flush_ns);
        let size = |len_bytes| SizeFigures {
            len_bytes,
            write: flat(write_ns),
            flush: flat(flush_ns),
            write_and_flush: both,
            durable_write: both,
        };
        let parallel = |thread_count| ParallelFigures {
            thread_count,
            durable_writes_per_s: 1e9 / both.p50_ns as f64,
            in_the_time_of_one: 1.0,
            durable_write: both,
        };
        Figures {
            seconds: 10.0,
            written_bytes: 123_456_789,
            sector_bytes: 512,
            sizes: [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20].map(size).to_vec(),
            journal_record: OneSize { len_bytes: 4608, latency: both },
            clean_flush: flat(1_000),
            parallel: [1, 2, 4, 8, 16].map(parallel).to_vec(),
            append_sync: OneSize { len_bytes: 2300, latency: both },
            flushes_asked_count: 1000,
            flushes_reached_count: Some(1000),
        }
    }

    #[test]
    fn an_interrupted_measurement_has_no_figures() {
        use device::probe::{Appends, FlushCount, Record, Sizes};
        let nothing = || Latencies::default();
        let some = || {
            let mut latencies = Latencies::default();
            latencies.add(Duration::from_micros(5));
            latencies
        };
        let measured = |durable: Latencies| Measured {
            sector_bytes: 512,
            sizes: Sizes {
                of: vec![OfSize {
                    len_bytes: 512,
                    write: some(),
                    flush: some(),
                    write_and_flush: some(),
                    durable: durable.clone(),
                }],
                record: Record { len_bytes: 4608, durable: some() },
                clean_flush: some(),
            },
            parallel: vec![device::probe::Parallel {
                thread_count: 1,
                write_count: 10,
                elapsed: Duration::from_millis(5),
                durable: some(),
            }],
            appends: Appends { sync: some(), written_bytes: 0 },
            flushes: FlushCount { asked_count: 1, reached_count: None },
            written_bytes: 5,
            elapsed: Duration::from_micros(1_500),
        };
        assert_eq!(Figures::of(&measured(nothing())), None);
        let found = Figures::of(&measured(some())).expect("everything is measured");
        assert_eq!((found.seconds, found.of_size(512).durable_write.p99_ns), (0.002, 5_000));
        assert_eq!(found.parallel[0].durable_writes_per_s, 2_000.0);
    }
}
