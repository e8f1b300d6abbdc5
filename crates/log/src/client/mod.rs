//! The log when a daemon serves its directory. The lanes that this process writes are mapped here.
//! For all else the daemon is asked.
//!
//! An append needs the daemon only for the next chunk, which a thread asks for before it is needed.

mod chunks;
mod connection;
mod log;
mod stream;

pub use connection::ConnectOptions;
#[cfg(test)]
pub(crate) use connection::{Patience, receive_answer};
pub(crate) use log::connect;
