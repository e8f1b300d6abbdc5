//! Block devices other than disks.

pub(crate) mod memory;
pub(crate) mod metered;
