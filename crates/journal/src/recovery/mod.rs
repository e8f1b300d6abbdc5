//! Finds the records that a crash has left, and brings their blocks home.

mod recover;
mod region_bytes;
mod scan;

pub use recover::{RecoverOptions, Recovery, recover};
pub use scan::{End, Scan, scan};
