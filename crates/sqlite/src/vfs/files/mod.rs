//! The files of the VFS: each is a [`File`](crate::abi::file::File), and passes on the calls that
//! it does not need.

pub mod journal;
pub mod log;
pub mod plain;
pub mod volume;
pub mod wal;
