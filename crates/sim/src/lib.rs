//! Crash enumeration, fault injection and reference models.
//!
//! Runs the real file system over the real engine on a simulated device, without a mount and
//! without threads, so that everything follows from a seed; cuts the power at every write; and
//! compares what recovery makes of it with a reference file system in memory.
//!
//! ```text
//! workload -> ops -> session (the volume) -> machine -> trace
//!                \-> model               -> history            \
//!                                               \               v
//!                                                judge <- tree <- recover <- crash image
//! ```
//!
//! It must not know how the journal or the format work: it uses what their users use. The
//! exceptions are [`faults`], which flips bits in journal records, [`mod@format`], which asks debugfs
//! where the journal lies, and [`machine`], which makes empty journals on media of their own.

pub mod calls;
pub mod case;
pub mod content;
pub mod enumerate;
pub mod faults;
pub mod format;
pub mod fsck;
pub mod history;
pub mod kernel;
pub mod liar;
pub mod lockstep;
pub mod machine;
pub mod model;
pub mod op;
pub mod recording;
pub mod recover;
pub mod session;
pub mod shrink;
pub mod tree;
pub mod workload;

/// Size of a block of every volume here, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
