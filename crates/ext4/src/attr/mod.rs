//! Operations on the attributes of inodes and of the volume.

mod attributes;
mod data_modes;
mod declared;
mod label;
mod stat_fs;
mod xattrs;
