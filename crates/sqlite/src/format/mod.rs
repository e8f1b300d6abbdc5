//! Bytes: the records of a database's stream, and the headers of SQLite's own files.

pub mod base;
pub mod codec;
pub mod database_header;
#[cfg(test)]
mod documented;
pub mod frames;
pub mod home;
pub mod page;
pub mod pages;
pub mod record;
pub mod wal;
