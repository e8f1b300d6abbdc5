//! A file or block device as a [`BlockDevice`](crate::BlockDevice).

pub(crate) mod caches;
pub(crate) mod device;
pub(crate) mod geometry;
