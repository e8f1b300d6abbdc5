//! A database's stream in the log: where the log is, who writes the stream, and what the stream says of itself.

pub mod aside;
pub mod doubt;
pub mod header;
pub mod lease;
pub mod live;
pub mod settings;
