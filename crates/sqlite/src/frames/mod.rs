//! The frames of a WAL: what a connection wrote, what SQLite counts, and the newest version of each
//! page.

pub mod pending;
pub mod read;
pub mod scan;
pub mod tail;
pub mod versions;
pub mod wal_index;
pub mod witnesses;
