//! A file or block device as a [`BlockDevice`](crate::BlockDevice).

pub(crate) mod block_durability;
pub(crate) mod caches;
pub(crate) mod device;
pub(crate) mod direct_io;
pub(crate) mod geometry;
