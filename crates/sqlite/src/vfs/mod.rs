//! The VFS `onejournal`, as SQLite sees it.

pub mod before;
pub mod file;
pub mod methods;
pub mod names;
pub mod open;
pub mod parameters;
pub mod unread_uri;
pub mod wal_hook;
pub mod wal_reset;
