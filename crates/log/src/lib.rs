//! The log service: durable appends for programs that keep their files on any file system.
//!
//! ```text
//! append: record -> lane (shared memory; on NVRAM durable now) ... flush worker -> log files
//! sync:   elsewhere: everybody who waits -> one write of the group log
//! ```
//!
//! A *service* is a directory. It has *streams*, named sequences of records; each has one writer at a time,
//! which holds its *lease*, and any number of readers. Records are appended to the stream's *lane*: chunks of
//! shared memory, allocated from one `pool`. `service` says who may do what in which process, `words` what
//! they share, `group_commit` who writes for all, `recovery` what happens after a restart; the formats are in `record`, `chunk`,
//! `segments` and `group`, and in `docs/format/log.md`.
//!
//! It must not know SQLite, LevelDB, or volumes.

mod backend;
mod broken;
mod client;
mod clock;
mod directory;
mod embedded;
mod engine;
mod error;
mod format;
mod host;
mod log;
mod media;
mod mortal;
mod orphans;
mod owned;
mod server;
#[cfg(test)]
mod sim;
mod stat;
mod stream;
mod stream_name;
#[cfg(test)]
mod test_directory;
mod types;
mod wire;
mod words;

pub use self::log::{Log, names_socket};
pub use client::ConnectOptions;
pub use directory::look::Look;
pub use directory::options::Options;
pub use error::{Effect, LogError, Result};
pub use format::record::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
pub use host::{Settings, StreamMeta};
pub use orphans::{Orphan, Outcome, collect_orphans};
pub use server::{Limits, Server, ServerOptions};
pub use stat::{LogStat, StreamStat};
pub use stream::{Reader, Stream};
pub use stream_name::{NAME_BYTES_MAX, StreamName};
pub use types::{Lsn, Record, StreamId, Usn};
pub use words::{CHUNK_COUNT_MAX, CLIENT_COUNT_MAX, NOTE_BYTES, STREAM_COUNT_MAX};
