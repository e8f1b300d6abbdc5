//! What a crash has left: found, and brought home.

mod recover;
mod region_bytes;
mod scan;

pub use recover::{RecoverOptions, Recovery, recover};
pub use scan::{End, Scan, scan};
