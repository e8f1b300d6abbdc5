//! io_uring: durable writes, and long-lived commands on a file.

pub(crate) mod command_ring;
pub(crate) mod ring;
