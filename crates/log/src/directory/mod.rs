//! A service's directory: who uses it, its settings, and its shared memory.

pub(crate) mod incarnation;
pub(crate) mod look;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod permit;
pub(crate) mod room;
pub(crate) mod served;
pub(crate) mod service_directory;
pub(crate) mod slots;
