//! A SQLite extension with which commits stop calling fsync on the WAL.
//!
//! # COMPILING
//!
//! `cargo build --release -p onejournal-sqlite` makes `libonejournal_sqlite.so`. SQLite 3.32 or later loads it.
//!
//! # LOADING
//!
//! `.load ./libonejournal_sqlite` in the `sqlite3` program, or `sqlite3_load_extension`; the entry is
//! `sqlite3_onejournal_init`. It stays loaded, registers the VFS `onejournal` over what is the default VFS then,
//! and adds the SQL functions `onejournal_version()`, `onejournal_stat()` (JSON) and `onejournal_last_error()` to this
//! connection and to all that are opened later. A process may have several copies of SQLite; the extension serves the
//! first that loads it.
//!
//! # USING
//!
//! `file:app.db?vfs=onejournal[&log=DIR][&nvram=DIR&durability=process][&memory=DIR][&recover=discard]` in WAL
//! mode. Without `log` (or the environment's `ONEJOURNAL_LOG`) the log is `.onejournal` beside the database, one for
//! all databases there, so that their commits share device writes. `docs/reference/sqlite.md` is for users.
//!
//! # NOTES: how it works
//!
//! Database, WAL and shared memory are ordinary files, and all writes go to them at once, so that other processes see
//! through the page cache what they always see. Only `xSync` of the WAL is another: it appends one record to the
//! database's stream of the log and syncs that. The record holds the frames since the last logged one, each as the
//! bytes that differ from the last version of its page: the newest earlier frame of the page in this
//! *generation* (the life of a WAL between two restarts, known by its salts), else the page in the database
//! file; what was not there before, or behind the end of the database since, is what is not zero of it.
//!
//! ```text
//! stream:  | begin G | frames 1-2 | frames 3-3 | ... | begin G+1 | frames 1-4 | ...
//!          a *base* (begin, durable, closed) voids all before it
//! ```
//!
//! **Why recovery gets the right pages.** The database file is durably what it was when the generation began: SQLite
//! restarts a WAL when a checkpoint has brought all of it home and synced the database. During the generation only
//! checkpoints write to it, and only pages whose frames were logged or synced first. So after a cut each byte of a
//! page is that of some version from the generation's first to the last logged one, or was cut off with the database's
//! end: then the page is logged from zeros when it comes back. The deltas are after-images of runs; applied in order over
//! any such mixture they give the last version (`journal::codec`). Each frame carries its checksum of the WAL, which says
//! what its page is, so a wrong page is found before anything is written.
//!
//! **Rules** that make this hold:
//!
//! 1. A frame is logged only as part of a valid chain of checksums that ends with a commit.
//! 2. When there are frames that this connection did not write and nobody logged (by a program without the
//!    extension, or with synchronous=NORMAL), the WAL file is synced instead, and a base *durable* says so. Those
//!    frames may be in the database already, and what they changed could not be seen any more. So do
//!    more than 1 MiB at once, and 32 MiB of log behind a base.
//! 3. The first sync of a WAL that was made new is real: from then on the file has a valid header.
//! 4. Before the header of a new generation is written, *begin* is appended; the sync of the header syncs the log.
//!    It names the generations that the disk may still show (their headers are not synced): at most 32, then
//!    the file is synced. So is one that SQLite emptied, before *begin*.
//! 5. A sync at a checkpoint does nothing when all is logged. With synchronous=NORMAL it is the one sync of the WAL
//!    that there was before, and the header's sync is an append: never slower.
//! 6. The last connection's removal of the WAL is made durable, then the log is *closed*: what is left is a plain
//!    database. A process that leaves while others stay syncs the WAL, or closes the log when the generation is over.
//! 7. A frame that is logged already may be written again when whoever logged it died before SQLite counted it:
//!    before the write the file is synced up to there and a base *durable* voids the record.
//! 8. A sync of the WAL that failed is not tried again: the kernel may count pages as clean that it could not write, and
//!    a later success says nothing of them. The note says so. Commits go on as records; what needs the WAL to be
//!    durable fails, until the next transaction's first frame: before that the header and all frames that SQLite counts
//!    are held against their checksums, written again and synced. That sync counts, since all that *durable* then says
//!    was written behind the failure. A generation that begins needs nothing from before: the database is durable, and
//!    its header and frames are written later.
//!
//! A commit reads nothing of the files back: `pending` keeps what the transaction wrote, `versions` the pages that
//! were logged last, and `tail` and `versions` hold both against the WAL's chain of checksums. Nor does it sum a page
//! again: SQLite has written its sum with it, and says in the WAL's index what it went on from (`wal_index`).
//!
//! What the writers of several processes have to know of each other is the stream's note (`note`): 64 bytes of
//! shared memory, read and written while holding the stream's lease.
//!
//! **Recovery** (`recovery`) happens when the first connection after a restart of the machine opens the database (the
//! note is zeros then), under SQLite's exclusive lock. It rolls forward into the database file and empties the
//! WAL, which needs neither frames nor checksums to be made again, and refuses what was changed meanwhile.
//!
//! **Rollback modes** are passed through, but for the transactions of a SQLite with
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`: each is one record and there is no journal (`batch`), and the database is synced behind them (`background`).
//!
//! **On a OneJournal volume** no log is opened: `volume` says what SQLite is told there, `frames` how
//! the frames of a transaction become one write.
//!
//! Locks, in this order: SQLite's; table of databases; a database's syncs (`background`); a database's state; table of logs; the stream's lease.

mod aside;
pub mod background;
mod batch;
mod database;
mod doubt;
mod failure;
mod faults;
pub mod ffi;
mod file;
#[cfg(test)]
mod format_page;
mod frames;
mod functions;
mod home;
mod known;
mod last_error;
mod main_file;
mod names;
mod note;
mod page;
mod parameters;
mod pending;
mod place;
mod real;
mod record;
mod recovery;
mod roll_forward;
mod stat;
mod stream;
mod tail;
#[cfg(test)]
mod test_load;
mod versions;
mod vfs;

/// Mistakes of the extension, for tests that check their checks.
#[cfg(feature = "canary")]
pub use faults::Fault;
mod volume;
mod wal;
mod wal_file;
mod wal_index;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use failure::Failure;
use ffi::*;

/// Runs `f`; a panic, which is a bug, becomes `otherwise` and does not reach SQLite.
fn guard<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// The entry that SQLite calls when it loads the extension.
///
/// # Safety
/// SQLite's arguments of an extension's entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onejournal_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    guard(SQLITE_ERROR, || {
        // SAFETY: SQLite's table.
        let Ok(api) = (unsafe { Api::from_table(table) }) else { return SQLITE_ERROR };
        if vfs::is_of_another_sqlite(api) {
            if !message.is_null() {
                // SAFETY: the format takes no argument; the SQLite that calls frees what this returns.
                unsafe { *message = (api.mprintf)(ANOTHER_SQLITE.as_ptr()) };
            }
            return SQLITE_ERROR;
        }
        let rc = vfs::register(api);
        if rc != SQLITE_OK {
            return rc;
        }
        // SAFETY: the entry lives for good; SQLite's connection.
        let (later, now) = unsafe {
            ((api.auto_extension)(Some(add_functions)), functions::register(api, connection))
        };
        match (later, now) {
            (SQLITE_OK, SQLITE_OK) => SQLITE_OK_LOAD_PERMANENTLY,
            (SQLITE_OK, rc) | (rc, _) => rc,
        }
    })
}

/// What a second copy of SQLite in the process is told.
const ANOTHER_SQLITE: &CStr = c"onejournal: another copy of SQLite in this process has loaded the extension already, and \
    it serves one copy only: open all databases with vfs=onejournal through that copy (in Python: through sqlite3 or \
    through apsw, not both)";

/// SQLite calls this for every connection that is opened.
unsafe extern "C" fn add_functions(
    connection: *mut sqlite3,
    _message: *mut *mut c_char,
    _table: *const c_void,
) -> c_int {
    // SAFETY: SQLite's connection, which no other thread has yet.
    guard(SQLITE_ERROR, || unsafe { functions::register(vfs::loaded().api, connection) })
}

/// The same, under the name that SQLite looks for first.
///
/// # Safety
/// As [`sqlite3_onejournal_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sqlite3_onejournal_init(connection, message, table) }
}

/// As [`sqlite3_onejournal_init`], and makes the VFS the default one of the process: databases that are opened
/// from then on without naming a VFS use it. `SELECT load_extension('./libonejournal_sqlite',
/// 'sqlite3_onejournal_default_init')` calls it.
///
/// # Safety
/// As [`sqlite3_onejournal_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_onejournal_default_init(
    connection: *mut sqlite3,
    message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let rc = unsafe { sqlite3_onejournal_init(connection, message, table) };
    if rc != SQLITE_OK_LOAD_PERMANENTLY {
        return rc;
    }
    // SAFETY: SQLite's table.
    guard(SQLITE_ERROR, || match unsafe { Api::from_table(table) }.map(vfs::make_default) {
        Ok(SQLITE_OK) => SQLITE_OK_LOAD_PERMANENTLY,
        Ok(rc) => rc,
        Err(_) => SQLITE_ERROR,
    })
}
