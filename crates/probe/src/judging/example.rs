//! Figures of a disk that always takes the same time, for tests of what is concluded from figures.

use super::figures::{Figures, OneSize, ParallelFigures, SizeFigures, TogetherFigures};
use crate::measuring::Latency;

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
    let together =
        TogetherFigures { per_s: 1e9 / both.p50_ns as f64, speed_up: 1.0, latency: both };
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
