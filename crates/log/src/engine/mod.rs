//! What a process does that serves a log's directory: an embedded one, or the daemon.

pub(crate) mod aside;
pub(crate) mod drain;
pub(crate) mod gather;
pub(crate) mod group_commit;
mod join;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod leave;
pub(crate) mod manage;
pub(crate) mod own_lease;
pub(crate) mod pool;
pub(crate) mod reading;
pub(crate) mod recovery;
pub(crate) mod service;
pub(crate) mod stall;
pub(crate) mod wakeup;
pub(crate) mod worker;
pub(crate) mod writer;
