//! Measures a disk: how long writes, flushes and durable writes take, and what the disk is.
//!
//! It measures and does not judge. Nothing here says whether a figure is good; that is the caller's
//! part. What is written goes to files without a name, or to a device that the caller has claimed.

mod append;
mod area;
mod disks;
mod diskstats;
mod latency;
mod limits;
mod mark;
mod measure;
mod noise;
mod parallel;
mod sizes;
mod turns;

pub use append::{APPEND_BYTES, Appends};
pub use area::{AREA_BYTES_MIN, AREA_UNIT_BYTES, Area};
pub use disks::{DisksBelow, WholeDisk, WriteCache, disks_below, mount_of};
pub use diskstats::{DiskStats, disk_stats, parse_disk_stats};
pub use latency::{Latencies, Percentiles};
pub use mark::{is_mark, mark};
pub use measure::{FlushCount, Measured, measure};
pub use parallel::Parallel;
pub use sizes::{OfSize, Record, Sizes};
