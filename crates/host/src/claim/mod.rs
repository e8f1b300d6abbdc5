//! Claims: at most one user at a time has the bytes of a disk.

pub(crate) mod in_use;
pub(crate) mod other_users;
pub(crate) mod proc_locks;
pub(crate) mod published;
pub(crate) mod range_lock;
pub(crate) mod swap;
pub(crate) mod take;
