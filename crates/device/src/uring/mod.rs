//! io_uring: durable writes and commands of devices.

pub(crate) mod command_ring;
pub(crate) mod ring;
