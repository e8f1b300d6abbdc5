//! Measures a disk, and judges what it is good for.
//!
//! # Storeys
//!
//! ```text
//!   judging/     whether flushes look honoured, what a commit costs, for which programs a disk is
//!                good enough, how long it lasts
//!   measuring/   how long writes, flushes and durable writes take, and what the disk is
//! ```

mod judging;
mod measuring;

#[doc(hidden)]
pub use judging::example;
pub use judging::{
    Cache, Commit, CommitKind, Cost, Figures, History, Interval, Obstacle, OneSize,
    ParallelFigures, Program, Reason, Sample, Sent, SizeFigures, Suitability, Sum, TogetherFigures,
    Verdict, Wear, commits, kib,
};
pub use measuring::{
    APPEND_BYTES, AREA_BYTES_MIN, AREA_UNIT_BYTES, Appends, Area, COUNT_FOR_P99, DiskStats,
    DisksBelow, FlushCount, Holder, Latencies, Latency, Measured, Medium, OfSize, Parallel, Record,
    Sizes, Together, WholeDisk, WriteCache, disk_stats, disks_below, is_mark, mark, measure,
    parse_disk_stats,
};
