//! The VFS `onejournal`, as SQLite sees it.

pub mod file;
pub mod main_file;
pub mod names;
pub mod open;
pub mod parameters;
