//! Crash enumeration, fault injection and reference models.
//!
//! Runs the real file system on the real engine and a simulated device, without a mount and without
//! threads, so that everything depends only on a seed. Cuts the power at every write, and compares
//! the recovered volume with a reference file system in memory.
//!
//! ```text
//! workload -> ops -> session (the volume) -> machine -> trace
//!                \-> model               -> history            \
//!                                               \               v
//!                                                judge <- tree <- recover <- crash image
//! ```
//!
//! It does not know how the journal or the format work, and uses the same interfaces as their
//! users. There are three exceptions: [`faults`] flips bits in journal records, [`mod@format`] asks
//! debugfs for the place of the journal, and [`machine`] makes empty external journals.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   fuzz/                crafted journals and volumes
//!   shrink               the shortest list of operations that fails
//!   enumerate faults     crashes at every write; media that fail
//!   recording            a workload on the simulated device, with its history and trace
//!   recover history      what a crash left, and what it may leave
//!   machine lockstep     the media of a run; one operation on volume and model
//!   case kernel          the name of a run; the kernel's ext4 as a second reference
//!   workload/ calls      lists of operations; operations as system calls
//!   model session tree   the reference, the volume, and what both look like
//!   content op format fsck liar
//! ```

pub mod calls;
pub mod case;
pub mod content;
pub mod enumerate;
pub mod faults;
pub mod format;
pub mod fsck;
pub mod fuzz;
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

#[cfg(test)]
mod tests;
