//! The VFS `onejournal`, and its files.

mod files;
mod index;
pub mod open;
pub mod parameters;
mod steps;
pub mod unread_uri;
pub mod wal_reset;
