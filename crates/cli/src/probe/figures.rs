//! The figures of a measurement, as plain numbers. All judgements take them from here, and nothing
//! else.

use std::time::Duration;

use device::probe::{
    COUNT_FOR_P99, Latencies, Measured, OfSize, Percentiles, Together as Measurement,
};
use serde::Serialize;

/// What many operations of one kind took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// There are too few observations for a 99th percentile.
    pub p99_is_max: bool,
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

/// Writes of 4 KiB that several threads make durable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ParallelFigures {
    pub thread_count: u64,
    pub durable_write: Together,
    pub write_and_flush: Together,
}

/// What several threads did together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Together {
    pub per_s: f64,
    /// Times the rate of a single thread.
    pub speed_up: f64,
    #[serde(flatten)]
    pub latency: Latency,
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
    /// Calls of `fdatasync`, each after a write, while the flushes were counted.
    pub flushes_asked_count: u64,
    /// Flushes that the disks completed meanwhile, if the kernel counts them.
    pub flushes_reached_count: Option<u64>,
    /// Flushes that the loop device in between completed meanwhile, if there is one.
    pub flushes_loop_reached_count: Option<u64>,
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
            flushes_loop_reached_count: measured.flushes.loop_reached_count,
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
    Some(Latency { count, p50_ns, p99_ns, max_ns, p99_is_max: count < COUNT_FOR_P99 })
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
    let first = measured.parallel.first()?;
    let figures = measured.parallel.iter().map(|of| {
        Some(ParallelFigures {
            thread_count: of.thread_count as u64,
            durable_write: together(&of.durable, &first.durable)?,
            write_and_flush: together(&of.write_and_flush, &first.write_and_flush)?,
        })
    });
    figures.collect()
}

fn together(of: &Measurement, of_one: &Measurement) -> Option<Together> {
    let per_second = of.per_second();
    Some(Together {
        per_s: (per_second * 10.0).round() / 10.0,
        speed_up: (per_second / of_one.per_second() * 100.0).round() / 100.0,
        latency: latency(&of.latencies)?,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A latency that is the same in all its percentiles.
    pub fn flat(ns: u64) -> Latency {
        Latency { count: 1000, p50_ns: ns, p99_ns: ns, max_ns: ns, p99_is_max: false }
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
        let together = Together { per_s: 1e9 / both.p50_ns as f64, speed_up: 1.0, latency: both };
        let parallel = |thread_count| ParallelFigures {
            thread_count,
            durable_write: together,
            write_and_flush: together,
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
            flushes_loop_reached_count: None,
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
        let together = |weighted_count| Measurement {
            latencies: some(),
            elapsed: Duration::from_millis(5),
            weighted_count,
        };
        let of_threads = |thread_count, weighted_count| device::probe::Parallel {
            thread_count,
            durable: together(weighted_count),
            write_and_flush: together(2.0),
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
            parallel: vec![of_threads(1, 10.0), of_threads(4, 35.0)],
            appends: Appends { sync: some(), written_bytes: 0 },
            flushes: FlushCount { asked_count: 1, reached_count: None, loop_reached_count: None },
            written_bytes: 5,
            elapsed: Duration::from_micros(1_500),
        };
        assert_eq!(Figures::of(&measured(nothing())), None);
        let found = Figures::of(&measured(some())).expect("everything is measured");
        assert_eq!((found.seconds, found.of_size(512).durable_write.p99_ns), (0.002, 5_000));
        assert!(found.of_size(512).durable_write.p99_is_max);
        let rates = |of: &Together| (of.per_s, of.speed_up);
        assert_eq!(rates(&found.parallel[0].durable_write), (2_000.0, 1.0));
        assert_eq!(rates(&found.parallel[1].durable_write), (7_000.0, 3.5));
        assert_eq!(rates(&found.parallel[1].write_and_flush), (400.0, 1.0));
    }
}
