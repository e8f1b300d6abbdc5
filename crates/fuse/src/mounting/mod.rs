//! Mounting and unmounting.

pub(crate) mod attach;
pub(crate) mod namespace;
pub(crate) mod page_cache;
