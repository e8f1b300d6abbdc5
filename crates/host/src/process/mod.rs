//! This process, other processes, the machine, and to whom users count.

pub(crate) mod account;
pub(crate) mod fork_closed;
pub(crate) mod inherited;
pub(crate) mod interrupt;
pub(crate) mod machine;
pub(crate) mod open_files;
pub(crate) mod own_descriptors;
pub(crate) mod own_mounts;
pub(crate) mod replace;
pub(crate) mod unread;
