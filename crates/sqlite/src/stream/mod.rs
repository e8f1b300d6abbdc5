//! A database's stream in the log: where the log is, which stream is the database's, who writes it,
//! and what the stream says of itself.

pub mod binding;
pub mod doubt;
pub mod header;
pub mod lease;
pub mod live;
pub mod logs;
pub mod names;
pub mod settings;
pub mod stamp;
pub mod stamped;
pub mod verdict;
