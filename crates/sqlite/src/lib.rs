//! A SQLite extension: commits without an fsync of the WAL, durable all the same.
//!
//! # COMPILING
//!
//! `cargo build --release -p onejournal-sqlite` makes `libonejournal_sqlite.so`. SQLite 3.32 or
//! later can load it.
//!
//! # LOADING
//!
//! In the `sqlite3` program: `.load ./libonejournal_sqlite`. In C: `sqlite3_load_extension`. The
//! entry point is `sqlite3_onejournal_init`. It does three things:
//!
//! - It registers the VFS `onejournal` over the VFS that is the default at that moment.
//! - It adds the SQL functions `onejournal_version()`, `onejournal_stat()` (JSON),
//!   `onejournal_last_error()` and `onejournal_make_default()` to this connection and to all later
//!   ones.
//! - It stays loaded until the process ends.
//!
//! The entry point `sqlite3_onejournal_default_init` also makes the VFS the default one, and so
//! does `SELECT onejournal_make_default()`. A process may have several copies of SQLite; the
//! extension serves the first copy that loads it.
//!
//! # USING
//!
//! Open `file:app.db?vfs=onejournal` and use WAL mode. `examples/commits.rs` is a whole program.
//! More parameters of the URI:
//!
//! | parameter | meaning |
//! |---|---|
//! | `log=DIR` | the log's directory, or a daemon's socket. Default: the environment's `ONEJOURNAL_LOG`, else `.onejournal` beside the database |
//! | `nvram=DIR` | a directory on NVRAM for the log |
//! | `durability=reboot` or `process` | what that NVRAM survives, if less than a power cut |
//! | `memory=DIR` | a tmpfs for the log's shared memory. Default: `/dev/shm` |
//! | `recover=discard` | gives up what the log holds if it does not fit the database |
//! | `checkpoint=background` | checkpoints of a WAL are made by a thread (`checkpoint`) |
//!
//! All databases of one log share its device writes. `docs/reference/sqlite.md` is for users.
//!
//! # NOTES: how it works
//!
//! Database, WAL and shared memory are ordinary files, and all writes go to them at once. So other
//! processes see, through the page cache, what they always see. Only `xSync` of the WAL differs: it
//! appends one record to the database's *stream* of the log and syncs the stream. The record holds
//! the frames since the last logged frame. Each page in it is stored as the bytes that differ from
//! the last version of that page. The last version is the newest earlier frame of the page in this
//! *generation*, or else the page in the database file. A generation is the life of a WAL between
//! two restarts; its salts identify it. A page that did not exist before is stored as its bytes
//! that are not zero. So is a page that was beyond the end of the database at some moment of this
//! generation.
//!
//! ```text
//! stream:  | begin G | frames 1-2 | frames 3-3 | ... | begin G+1 | frames 1-4 | ...
//!          a *base* (begin, durable, closed) voids all records before it
//! ```
//!
//! **Why recovery gets the right pages.** When a generation begins, the database file is durable:
//! SQLite restarts a WAL after a checkpoint has copied all of it and synced the database. During
//! the generation only checkpoints write to the database file, and only pages whose frames were
//! logged or synced first. So after a power cut each byte of a page comes from one of the page's
//! versions, from the first of this generation to the last logged one. The exception is a page that
//! was cut off with the end of the database; if it comes back, it is logged from zeros. Deltas are
//! after-images of runs of bytes. Applied in order over any such mixture, they give the last
//! version (`journal::codec`). Each frame carries its checksum from the WAL, so recovery finds a
//! wrong page before it writes anything.
//!
//! **Rules** that make this hold:
//!
//! 1. A frame is logged only as part of a valid chain of checksums that ends with a commit.
//! 2. If the WAL has frames that this connection did not write and that are not logged, the WAL
//!    file is synced instead, and a base *durable* says so. Such frames come from a program without
//!    the extension or with `synchronous=NORMAL`. A checkpoint may have copied them to the database
//!    already, and then the bytes that they changed are unknown. The file is also synced for a
//!    commit of more than 1 MiB, and when 32 MiB of log follow the base.
//! 3. The first sync of a new WAL is a real one. From then on the file has a valid header.
//! 4. Before SQLite writes the header of a new generation, *begin* is appended; the sync of the
//!    header syncs the log. Headers are not synced, so after a power cut the file may show an older
//!    generation. *begin* lists these generations: at most 32, then the file is synced. A WAL that
//!    SQLite emptied is also synced before *begin*.
//! 5. A sync at a checkpoint does nothing if all frames are logged. With `synchronous=NORMAL` it
//!    syncs the WAL once, as SQLite always did, and the sync of the header is an append. So the
//!    extension is never slower. If the log has frames of this generation, and frames that are not
//!    logged follow them, a base *durable* covers these, too. The checkpoint copies them to the
//!    database, and then SQLite may remove or empty the WAL. Without the base, recovery would
//!    compare such a database with the logged frames only, and refuse it.
//! 6. When the last connection removes the WAL, the removal is made durable and then the log is
//!    *closed*. A plain database is left. A process that leaves while others stay syncs the WAL, or
//!    closes the log if the generation is over.
//! 7. SQLite may write a logged frame again, if the process that logged it died before SQLite
//!    counted it. Before that write the file is synced up to the frame, and a base *durable* voids
//!    the record.
//! 8. A failed sync of the WAL is not tried again. The kernel may mark pages as clean that it could
//!    not write, so a later success says nothing about them. The stream header records the failure.
//!    Commits go on as records. An operation that needs a durable WAL fails, until the first frame
//!    of the next transaction. Before that frame the header and all frames that SQLite counts are
//!    compared with their checksums, written again and synced. That sync counts, because all that
//!    *durable* then covers was written after the failure. The start of a generation needs nothing
//!    from before: the database is durable, and the header and the frames are written later.
//!
//! 9. The first commit after a WAL was made is synced as without the extension, and the log holds
//!    nothing of it. The second one makes the file durable, and *durable* says so. So a connection
//!    that commits once and closes makes no more syncs than without the extension.
//!
//! 10. While the log fails, commits are syncs of the file, and the WAL does not begin again: SQLite
//!     is told that the locks of the readers are busy (`vfs::files`), and appends to the WAL. The
//!     database would otherwise go on without the log, whose records of the old generation would be
//!     compared with it after a power cut. If the log fails for the first time just when a
//!     generation begins, transactions fail until it works.
//!
//! A commit does not read the files. `pending` keeps what the transaction wrote, and `versions`
//! keeps the pages that were logged last. `tail` and `versions` check both against the WAL's chain
//! of checksums. A commit does not sum a page either: SQLite wrote the sum with the page, and the
//! WAL's index says which frame the chain continues from (`wal_index`).
//!
//! The writers of several processes share 64 bytes of memory, the stream header (`stream::header`).
//! A writer reads and writes it while it holds the stream's lease.
//!
//! **Checkpoints and restarts of the WAL** are kept apart (`vfs::wal_reset`). SQLite itself does
//! this since 3.51.3.
//!
//! **Recovery** (`recovery`) runs when the first connection after a restart of the machine opens
//! the database. The stream header is zeros then. Recovery holds SQLite's exclusive lock. It rolls
//! the database file forward and empties the WAL, and refuses a database that was changed
//! meanwhile.
//!
//! **Rollback modes** are passed through, with one exception: a SQLite with
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`. There each transaction is one record, SQLite writes no
//! journal (`batch`), and the database file is synced later in the background
//! (`batch::background`).
//!
//! **On a OneJournal volume** no log is opened. `volume` says what SQLite is told there, and how
//! the frames of a transaction become one write.
//!
//! # Storeys
//!
//! A module uses modules on its own storey and on those below (`tests/tidy.rs`).
//!
//! ```text
//!   entry functions stat   what SQLite calls when it loads the extension; the SQL functions
//!   vfs/                   the VFS and the methods of its files
//!   checkpoint/            checkpoints of a WAL in the background
//!   wal/ batch/ recovery/  the operations: WAL mode, rollback modes, after a restart
//!   database databases     what this process knows of an open database
//!   volume/                databases on a OneJournal volume
//!   frames/                the frames of a WAL, as read from the files or kept in memory
//!   stream/                the database's stream in the log
//!   format/                bytes: records, and SQLite's own headers
//!   real messages          files of the VFS below; what the extension says in words
//!   failure counters known faults
//!   abi/                   SQLite's C interface, made safe
//! ```
//!
//! # Locks
//!
//! In this order: SQLite's own; the state of background checkpoints; the table of databases; a
//! database's syncs (`background`); a database's `LogState`; the table of logs; the stream's lease.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod batch;
mod checkpoint;
mod counters;
mod database;
mod databases;
#[allow(unsafe_code)]
mod entry;
mod failure;
mod faults;
mod format;
mod frames;
mod functions;
mod known;
mod messages;
mod real;
mod recovery;
mod stat;
mod stream;
#[cfg(test)]
#[allow(unsafe_code)]
mod test_load;
mod vfs;
mod volume;
mod wal;

/// Mistakes of the extension, for tests that check their checks.
#[doc(hidden)]
pub use faults::Fault;

#[doc(hidden)]
pub use abi::ffi;
#[doc(hidden)]
pub use batch::background;
#[doc(hidden)]
pub use checkpoint::background as checkpoints;
pub use entry::{sqlite3_extension_init, sqlite3_onejournal_default_init, sqlite3_onejournal_init};
