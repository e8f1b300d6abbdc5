//! The log service: durable appends for programs that keep their files on any file system.
//!
//! ```text
//! append: record -> lane (shared memory; on NVRAM durable now) ... flush worker -> log files
//! sync:   elsewhere: everybody who waits -> one write of the group log
//! ```
//!
//! A *service* is a directory. It has *streams*, named sequences of records; each has one writer at a time,
//! which holds its *lease*, and any number of readers. Records are appended to the stream's *lane*: chunks of
//! shared memory, lent from one `pool`. `service` says who may do what in which process, `words` what
//! they share, `group_commit` who writes for all, `recovery` what happens after a restart; the formats are in `record`, `chunk`,
//! `segments` and `group`, and in `docs/format/log.md`.
//!
//! It must not know SQLite, LevelDB, or volumes.

mod chunk;
mod chunk_file;
mod client;
mod clock;
mod drain;
mod error;
mod faults;
mod files;
#[cfg(test)]
mod format_page;
mod gather;
mod group;
mod group_commit;
mod host;
mod kept;
mod kick;
mod lane;
mod lease;
mod life;
mod log;
mod look;
mod manage;
mod media;
mod options;
mod orphans;
mod own_lease;
mod owned;
mod patience;
mod place;
mod pool;
mod protocol;
mod reading;
mod record;
mod recovery;
mod remote;
mod scan;
mod segments;
mod served;
mod server;
mod service;
#[cfg(test)]
mod sim;
mod slots;
mod stream;
#[cfg(test)]
mod test_place;
mod transport;
mod types;
mod words;
mod worker;
mod writer;

pub use self::log::{Log, LogStat, names_socket};
pub use client::ConnectOptions;
pub use error::{LogError, Result};
pub use host::{Settings, StreamMeta};
pub use look::Look;
pub use options::Options;
pub use orphans::{Orphan, Outcome, collect_orphans};
pub use record::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
pub use server::{Limits, Server, ServerOptions};
pub use stream::{Reader, Record, Stream, StreamStat};
pub use types::{Lsn, NAME_BYTES_MAX, StreamId, StreamName, Usn};
pub use words::{CHUNK_COUNT_MAX, CLIENT_COUNT_MAX, NOTE_BYTES, STREAM_COUNT_MAX};
