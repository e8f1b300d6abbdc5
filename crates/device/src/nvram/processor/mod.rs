//! The steps of a durable store, for each processor.

#[cfg(not(target_arch = "x86_64"))]
mod portable;
mod steps;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::Native;
pub(super) use steps::Processor;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::Native;
