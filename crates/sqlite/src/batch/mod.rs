//! Transactions of the rollback modes as one record each, for a SQLite with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`.
//!
//! Such a SQLite keeps the rollback journal in memory where a file says `BATCH_ATOMIC`. Its commit is *begin*,
//! the pages' writes, *commit*; when one of them fails with an I/O error it writes the journal after all.
//!
//! ```text
//! stream:  | closed | pages | pages | ... | pages | home | pages | ... | closed | pages | ...
//! commit:  fsync of the database, only behind the first closed -> record -> log's sync -> pages, no fsync
//! ```
//!
//! A *period* begins with the record *closed*: the database file is durable as it is. Each transaction is then one
//! record, with its pages as the bytes that differ from what the database file held; when it is durable
//! the pages are written, under SQLite's exclusive lock. So after a power cut each byte of a page is that of some version from the
//! period's first to the last record, and the records in their order give the last one over any such mixture, as
//! with frames of a WAL. Pages behind the database's end are written as what is not zero of them, and
//! replay takes them as zeros, whatever the disk has there: a file's growing and getting shorter belong to the
//! records too ([`record::Head`]).
//!
//! **Rules**, by number in the code:
//!
//! 1. Nothing of a transaction is written to the database's pages before its record is durable. (What lies behind
//!    the database's end may be: nobody reads it.)
//! 2. A period begins behind an fsync of the database, of its directory and of a journal that is there: else a journal that
//!    was done with could come back and undo what the log has.
//! 3. Before anything else writes to the database (a journal's transaction, a checkpoint, the rollback of a hot
//!    journal) the period is *released*: the database is synced, then *closed* is appended and synced. Releasing happens
//!    too when a WAL is opened and when a connection ends that was its process's last.
//! 4. After 4 MiB of records a sync of the database begins, and the period goes on (`background`); after 64 MiB the next commit begins a new
//!    one, which bounds what recovery reads.
//! 5. The stream header says *applying* while pages are written. Whoever gets SQLite's shared lock looks at it (64 bytes of shared
//!    memory) and, when the writer died in the middle, replays under the exclusive lock before it reads: a hot record,
//!    as there are hot journals. A sync of the database that failed says so, too, whoever waited for it. A record that was appended by somebody who died before *applying* was never
//!    acknowledged and nobody has seen it: the next commit begins a new period.
//! 6. The stream header has the CRC of the database's header behind the last transaction. Another header was written without the
//!    extension: the next commit begins a new period. After a power cut, replay refuses.
//! 7. When SQLite writes a journal after a batch that failed, it does not sync it, nor end it where an older one went on, and counts its
//!    records before they are durable. Here it is emptied first, its header is zeros until the rest is synced, and both
//!    happens before the first page.
//! 8. With `synchronous=OFF` SQLite would go on without any journal, so `BATCH_ATOMIC` is not said then. The PRAGMA is refused while
//!    there is a journal in memory because it was said.

pub mod background;
mod commit;
mod connection;
mod held;
mod replay;

pub use connection::{Connection, Then, control};

#[cfg(test)]
mod tests;
