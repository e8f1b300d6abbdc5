//! A log: durable appends for programs that keep their files on any file system.
//!
//! A log is a directory with *streams*. A [`Stream`] is a named sequence of records. One process at
//! a time writes it, any number of processes read it. [`Stream::append`] copies a record to shared
//! memory, which survives the end of the process. [`Stream::sync`] makes it survive a power cut;
//! all callers that wait share one write to the disk. With NVRAM an append is durable when it
//! returns.
//!
//! # Append, sync, read back
//!
//! ```
//! use onejournal::{Log, Options};
//!
//! # fn main() -> onejournal::Result<()> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let dir = dir.path().join("log");
//! let log = Log::open(&dir, &Options::default())?; // makes the log if there is none
//! let stream = log.stream("events")?;
//!
//! stream.append(b"first")?;
//! let lsn = stream.append(b"second")?;
//! stream.sync(lsn)?; // both survive a power cut now
//!
//! let mut found = Vec::new();
//! for record in stream.read_from(stream.head())? {
//!     found.push(record?.payload);
//! }
//! assert_eq!(found, [b"first".to_vec(), b"second".to_vec()]);
//!
//! drop(stream);
//! log.close()?; // unlike a drop, reports what could not be written
//! # Ok(())
//! # }
//! ```
//!
//! # A durable counter
//!
//! The last record of the stream is the counter. Earlier ones are dropped.
//!
//! ```
//! use onejournal::{Log, Options, Result, Stream};
//!
//! struct Counter {
//!     stream: Stream,
//!     value: u64,
//! }
//!
//! impl Counter {
//!     fn open(log: &Log) -> Result<Counter> {
//!         let stream = log.stream("counter")?;
//!         stream.acquire()?; // from now on no other process counts
//!         let mut value = 0;
//!         for record in stream.read_from(stream.head())? {
//!             value = u64::from_le_bytes(record?.payload.try_into().expect("eight bytes"));
//!         }
//!         Ok(Counter { stream, value })
//!     }
//!
//!     /// The new value, which no power cut takes back.
//!     fn increment(&mut self) -> Result<u64> {
//!         let next = self.value + 1;
//!         let lsn = self.stream.append(&next.to_le_bytes())?;
//!         self.stream.sync(lsn)?;
//!         self.value = next;
//!         self.stream.truncate_before(lsn)?;
//!         Ok(next)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let dir = dir.path().join("log");
//! let log = Log::open(&dir, &Options::default())?;
//! let mut counter = Counter::open(&log)?;
//! assert_eq!((counter.increment()?, counter.increment()?), (1, 2));
//! drop(counter);
//! log.close()?;
//!
//! let log = Log::open(&dir, &Options::default())?;
//! assert_eq!(Counter::open(&log)?.increment()?, 3);
//! # log.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! [`LogError::effect`] says what a failed call has done.
//!
//! | error | what it means | what to do |
//! |---|---|---|
//! | [`Busy`](LogError::Busy) | another process writes the stream | wait for it, or close the stream there |
//! | [`Full`](LogError::Full) | no chunk of the pool became free in time | try again; make logs with a larger `pool_bytes` |
//! | [`NoRoom`](LogError::NoRoom) | the file system is full | free some space and try again |
//! | [`NoMemory`](LogError::NoMemory) | the directory for shared memory has no room, or is not on a tmpfs | make it larger, or name another one in [`Options::memory`] |
//! | [`TooLarge`](LogError::TooLarge) | a record of more than 16 MiB, or an append of more than half the pool | append less at a time |
//! | [`Usage`](LogError::Usage) | a name, a size or an option that cannot be | correct the call |
//! | [`WrongProcess`](LogError::WrongProcess) | a process was forked after the log was opened | open the log again in the new process |
//! | [`NotFound`](LogError::NotFound) | no such stream, or no log there | make it |
//! | [`Truncated`](LogError::Truncated) | the record was truncated away | begin at [`Stream::head`] |
//! | [`PastEnd`](LogError::PastEnd) | the position is after the end of the stream | wait until more is appended |
//! | [`InUse`](LogError::InUse) | a daemon serves the directory, or processes that opened it do | connect to the daemon, or end them |
//! | [`Denied`](LogError::Denied) | the daemon does not let this user do that | ask the stream's owner |
//! | [`Incompatible`](LogError::Incompatible) | files of another log or version | use the program that wrote them |
//! | [`DamagedMemory`](LogError::DamagedMemory) | a process changed the stream's shared memory as no writer does | [`Log::discard_damaged`], which keeps what is in the log files |
//! | [`Damaged`](LogError::Damaged) | records were durable and cannot be read now | [`Log::salvage`], then [`Log::discard_damaged`] |
//! | [`Aborted`](LogError::Aborted) | an earlier write failed | repair the disk, then do what the text says: for a stream, [`Log::discard_damaged`] |
//! | [`Io`](LogError::Io), [`System`](LogError::System) | the medium or the system failed; a sync may have taken effect or not | close the log, open it again and read the end of the stream |
//! | [`Daemon`](LogError::Daemon) | no daemon answers; the call may have taken effect or not | start the daemon and read the end of the stream |
//!
//! ```
//! use onejournal::{Effect, Log, Options};
//!
//! # fn main() -> onejournal::Result<()> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let dir = dir.path().join("log");
//! let one = Log::open(&dir, &Options::default())?;
//! let other = Log::open(&dir, &Options::default())?;
//! let writer = one.stream("events")?;
//! writer.append(b"record")?;
//!
//! let rival = other.stream("events")?;
//! let error = rival.append(b"mine").expect_err("one writer at a time");
//! assert_eq!(error.effect(), Effect::NothingYet);
//!
//! writer.release();
//! rival.append(b"mine")?;
//! # drop((writer, rival));
//! # one.close()?;
//! # other.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Inside
//!
//! ```text
//! append: record -> lane (shared memory; on NVRAM durable now) ... flush worker -> log files
//! sync:   elsewhere: one write of the group log for all callers that wait
//! ```
//!
//! | module | what is inside |
//! |---|---|
//! | `log`, `stream`, `backend` | the public types, and the traits that they call |
//! | `embedded`, `client` | the two implementations: this process serves the directory, or a daemon does |
//! | `server` | the daemon |
//! | `engine` | what a serving process does: append, drain, group commit, recovery |
//! | `directory` | who uses a log's directory, its settings and its shared memory |
//! | `words` | what processes share in memory, and the only atomics on it |
//! | `format` | records, chunks, log files and the group log, byte for byte (`docs/format/log.md`) |
//! | `wire` | messages between a client and the daemon (`docs/format/log-protocol.md`) |
//! | `media` | files, NVRAM and the group log's device |
//!
//! The crate must not know SQLite, LevelDB, or volumes.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   orphans                    shared memory that killed processes left
//!   log stream                 what a program uses
//!   client/ embedded           the two implementations of `backend`
//!   server/                    the daemon
//!   engine/                    append, drain, group commit, recovery
//!   backend                    the traits that `log` and `stream` call
//!   directory/                 who uses a log's directory, its settings, its shared memory
//!   host                       what a service runs on
//!   words/                     what processes share in memory
//!   media/ wire/               files, NVRAM, the group log's device; messages of the daemon
//!   format/                    what is stored, byte for byte
//!   owned stream_name
//!   error types stat clock faults warnings
//! ```

mod backend;
mod client;
mod clock;
#[cfg(test)]
mod clock_test;
mod directory;
mod embedded;
mod engine;
mod error;
mod faults;
mod format;
mod host;
mod log;
mod media;
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
mod warnings;
mod wire;
mod words;

pub use self::host::{DirectoryId, Settings, StreamMeta};
pub use self::log::{Log, names_socket};
pub use client::ConnectOptions;
pub use directory::look::{Look, StreamsFound};
pub use directory::options::Options;
pub use directory::permit::permit;
pub use error::{Effect, LogError, Result};
pub use format::record::{HEADER_BYTES, PAYLOAD_BYTES_MAX};
pub use media::denied::system_at;
pub use orphans::{Orphan, Outcome, collect_orphans};
pub use server::{Limits, Server, ServerOptions};
pub use stat::{LogStat, StreamStat};
pub use stream::{Reader, Stream};
pub use stream_name::{NAME_BYTES_MAX, StreamName};
pub use types::{Lsn, Record, StreamId, Usn};
pub use words::{CHUNK_COUNT_MAX, CLIENT_COUNT_MAX, STREAM_COUNT_MAX, STREAM_HEADER_BYTES};
