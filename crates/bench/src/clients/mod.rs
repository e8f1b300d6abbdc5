//! Programs that the experiments start as clients: a process each, so that a system can give them an
//! environment ([`crate::systems::client`]). They read lines and answer, or print JSON at their end.

pub mod entries;
pub mod sqlite;
mod sqlite_options;

pub use sqlite_options::{SqliteAccess, SqliteOptions};
