//! A simulated block device, and layers in front of one.

mod layered;
mod sim_device;

pub use layered::{Layer, Layered};
pub use sim_device::SimDevice;

#[cfg(test)]
mod tests;
