//! Rollback modes: a transaction is one record, for a SQLite with
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`.
//!
//! Such a SQLite keeps the rollback journal in memory if the file says `BATCH_ATOMIC`. A commit is
//! then *begin*, the writes of the pages, and *commit*. If one of them fails with an I/O error,
//! SQLite writes the journal to a file after all.
//!
//! ```text
//! stream:  | closed | pages | pages | ... | pages | home | pages | ... | closed | pages | ...
//! commit:  [fsync of the database, only after closed] -> record -> log's sync -> pages, no fsync
//! ```
//!
//! A *period* begins with the record *closed*: the database file is durable as it is. Each
//! transaction is then one record. It holds each page as the bytes that differ from the database
//! file. When the record is durable, the pages are written, under SQLite's exclusive lock. So after
//! a power cut each byte of a page comes from one of the page's versions, from the start of the
//! period to the last record. The records, applied in order over any such mixture, give the last
//! version, as with frames of a WAL. A page beyond the end of the database is stored as its bytes
//! that are not zero, and replay starts it from zeros, whatever the disk has there. The records
//! also hold how the file grows and shrinks (`format::pages::Head`).
//!
//! **Rules**, by number in the code:
//!
//! 1. No page of a transaction is written inside the database before its record is durable. (Pages
//!    beyond the end of the database may be: SQLite does not read there.)
//! 2. A period begins after an fsync of the database, of its directory, and of a journal that
//!    exists. Otherwise an old journal could come back and undo transactions of the log.
//! 3. Before anything else writes to the database, the period is *released*: the database is
//!    synced, then *closed* is appended and synced. Other writers are a transaction with a journal,
//!    a checkpoint, and the rollback of a hot journal. The period is also released when a WAL is
//!    opened, and when the process's last connection ends.
//! 4. After 4 MiB of records a background sync of the database begins, and the period goes on
//!    (`background`). After 64 MiB the next commit begins a new period. This bounds what recovery
//!    reads.
//! 5. The stream header says *applying* while pages are written. A connection that gets SQLite's
//!    shared lock looks at it. If the writer died while applying, the connection takes the
//!    exclusive lock and replays before it reads: a hot record, as there are hot journals. After a
//!    failed sync of the database the header says *applying*, too. If a process died after it
//!    appended a record and before it said *applying*, the transaction was never acknowledged or
//!    seen; the next commit begins a new period.
//! 6. The stream header has the CRC of the database header after the last transaction. If the
//!    database has another header, a program without the extension wrote it: the next commit begins
//!    a new period. After a power cut, replay refuses the database.
//! 7. After a batch that failed, SQLite writes a journal but does not sync it. It does not mark its
//!    end where an older journal went on, and it counts its records before they are durable. So the
//!    extension empties the journal first, keeps the start of its header zeros until the rest is
//!    synced, and does both before the first page is written.
//! 8. With `synchronous=OFF` SQLite would go on without any journal, so the file does not say
//!    `BATCH_ATOMIC` then. While SQLite has a journal in memory because the file said it, the
//!    PRAGMA is refused.

pub mod background;
mod commit;
mod connection;
mod held;
mod replay;
mod states;

pub use connection::{Access, Connection, Then, control};

#[cfg(test)]
mod tests;
