//! What the bytes of a disk are stored on: files, loop devices, partitions, and the kernel's tables
//! that show them.

pub(crate) mod backing;
pub(crate) mod file_system;
pub(crate) mod kind;
pub(crate) mod list;
pub(crate) mod loop_device;
pub(crate) mod loop_status;
pub(crate) mod mount_table;
pub(crate) mod sysfs;
