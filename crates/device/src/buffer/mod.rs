//! Buffers for direct I/O.

pub(crate) mod aligned;
pub(crate) mod huge;
