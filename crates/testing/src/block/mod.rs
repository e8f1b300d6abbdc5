//! A simulated block device.

mod cache;
mod event;
mod sim_device;

pub use cache::{Cursor, Trace};
pub use event::Event;
pub use sim_device::SimDevice;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace_tests;
