//! Block devices other than disks.

pub(crate) mod block_device;
pub(crate) mod memory;
pub(crate) mod metered;
