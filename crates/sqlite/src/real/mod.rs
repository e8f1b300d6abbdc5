//! The VFS below and its files.

pub mod file;
pub mod loaded;
