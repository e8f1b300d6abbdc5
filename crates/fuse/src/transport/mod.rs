//! How requests reach the file system, and answers the kernel.

pub(crate) mod blocked;
pub(crate) mod large_writes;
pub(crate) mod polled;
pub(crate) mod queues;
pub(crate) mod receive;
pub(crate) mod workers;
