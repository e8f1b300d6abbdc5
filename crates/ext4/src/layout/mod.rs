//! The on-disk structures, byte for byte, with one file for each.

pub mod claim;
pub mod dir;
pub mod extent;
pub mod group;
pub mod htree;
pub mod inode;
pub mod jbd2;
pub mod orphan;
pub mod superblock;
pub mod xattr;
