//! Files and directories, and the users that they may belong to.

mod as_owner;
pub(crate) mod file_id;
pub(crate) mod folder;
pub(crate) mod found;
pub(crate) mod fuse;
pub(crate) mod parent;
pub(crate) mod reach;
pub(crate) mod servers;
pub(crate) mod trust;
pub(crate) mod trusted_file;
