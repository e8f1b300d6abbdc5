//! The figures of a measurement, as plain numbers. All judgements take them from here, and nothing
//! else.

use std::time::Duration;

use serde::Serialize;

use crate::measuring::{APPEND_BYTES, Latencies, Latency, Measured, OfSize, Together};

/// Operations of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeFigures {
    /// The size.
    pub len_bytes: u64,
    /// A write that is not durable when it returns.
    pub write: Latency,
    /// The flush after each of them.
    pub flush: Latency,
    /// Both together.
    pub write_and_flush: Latency,
    /// A write that is durable when it returns.
    pub durable_write: Latency,
}

/// Writes of 4 KiB that several threads make durable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ParallelFigures {
    /// How many threads wrote.
    pub thread_count: u64,
    /// Writes that are durable when they return.
    pub durable_write: TogetherFigures,
    /// Writes, each with a flush after it.
    pub write_and_flush: TogetherFigures,
}

/// What several threads did together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TogetherFigures {
    /// Writes a second.
    pub per_s: f64,
    /// Times the rate of a single thread.
    pub speed_up: f64,
    /// How long each of them took.
    #[serde(flatten)]
    pub latency: Latency,
}

/// One kind of operation of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OneSize {
    /// The size.
    pub len_bytes: u64,
    /// How long each of them took.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// How long it took.
    pub seconds: f64,
    /// What was written, without metadata of a file system.
    pub written_bytes: u64,
    /// The logical sector.
    pub sector_bytes: u64,
    /// Ascending.
    pub sizes: Vec<SizeFigures>,
    /// Durable writes of the size of a record in the journal of OneJournal.
    pub journal_record: OneSize,
    /// Flushes when nothing is unflushed.
    pub clean_flush: Latency,
    /// By number of threads, ascending.
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
            let latency = latencies.percentiles()?;
            Some(OneSize { len_bytes: len_bytes as u64, latency })
        };
        Some(Figures {
            seconds: rounded(measured.elapsed),
            written_bytes: measured.written_bytes,
            sector_bytes: measured.sector_bytes as u64,
            sizes,
            journal_record: one_size(record.len_bytes, &record.durable)?,
            clean_flush: measured.sizes.clean_flush.percentiles()?,
            parallel: parallel(measured)?,
            append_sync: one_size(APPEND_BYTES, &measured.appends.sync)?,
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

fn size(of: &OfSize) -> Option<SizeFigures> {
    Some(SizeFigures {
        len_bytes: of.len_bytes as u64,
        write: of.write.percentiles()?,
        flush: of.flush.percentiles()?,
        write_and_flush: of.write_and_flush.percentiles()?,
        durable_write: of.durable.percentiles()?,
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

fn together(of: &Together, of_one: &Together) -> Option<TogetherFigures> {
    let per_second = of.per_second();
    Some(TogetherFigures {
        per_s: (per_second * 10.0).round() / 10.0,
        speed_up: (per_second / of_one.per_second() * 100.0).round() / 100.0,
        latency: of.latencies.percentiles()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_measurement_has_no_figures() {
        use crate::measuring::{Appends, FlushCount, Parallel, Record, Sizes};
        let nothing = || Latencies::default();
        let some = || {
            let mut latencies = Latencies::default();
            latencies.add(Duration::from_micros(5));
            latencies
        };
        let together = |weighted_count| Together {
            latencies: some(),
            elapsed: Duration::from_millis(5),
            weighted_count,
        };
        let of_threads = |thread_count, weighted_count| Parallel {
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
        let rates = |of: &TogetherFigures| (of.per_s, of.speed_up);
        assert_eq!(rates(&found.parallel[0].durable_write), (2_000.0, 1.0));
        assert_eq!(rates(&found.parallel[1].durable_write), (7_000.0, 3.5));
        assert_eq!(rates(&found.parallel[1].write_and_flush), (400.0, 1.0));
    }
}
