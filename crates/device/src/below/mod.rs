//! What the bytes of a disk are on: files, loop devices, partitions, and the tables of the kernel that tell.

pub(crate) mod backing;
pub(crate) mod file_system;
pub(crate) mod kind;
pub(crate) mod length;
pub(crate) mod loop_device;
pub(crate) mod loop_status;
pub(crate) mod mount_table;
pub(crate) mod sysfs;
