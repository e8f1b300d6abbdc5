//! Measures a disk: how long writes, flushes and durable writes take, and what the disk is.
//!
//! Nothing here says whether a figure is good. What is written goes to files without a name, or to
//! a device that the caller has claimed.

mod append;
mod area;
mod disks;
mod diskstats;
mod flush_count;
mod holder;
mod latency;
mod limits;
mod mark;
mod measure;
mod medium;
mod noise;
mod parallel;
mod sizes;
mod turns;
mod write_cache;

pub use append::{APPEND_BYTES, Appends};
pub use area::{AREA_BYTES_MIN, AREA_UNIT_BYTES, Area};
pub use disks::{DisksBelow, WholeDisk, disks_below};
pub use diskstats::{DiskStats, disk_stats, parse_disk_stats};
pub use flush_count::FlushCount;
pub use holder::Holder;
pub use latency::{COUNT_FOR_P99, Latencies, Latency};
pub use mark::{is_mark, mark};
pub use measure::{Measured, measure};
pub use medium::Medium;
pub use parallel::{Parallel, Together};
pub use sizes::{OfSize, Record, Sizes};
pub use write_cache::WriteCache;
