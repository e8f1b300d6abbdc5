//! A simulated block device, and layers in front of one.

mod cache;
mod event;
mod layered;
mod sim_device;

pub use cache::{Cursor, Trace};
pub use event::Event;
pub use layered::{Layer, Layered};
pub use sim_device::SimDevice;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace_tests;
