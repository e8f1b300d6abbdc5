//! WAL checkpoints in the background (`checkpoint=background` in the URI).
//!
//! SQLite makes a checkpoint inside the commit that finds 1,000 frames in the WAL. It writes the
//! pages to the database and syncs it, and that commit waits. Here a WAL hook takes the place of
//! SQLite's own one. A thread then makes the checkpoint, through a connection of the extension's
//! own:
//!
//! ```text
//! connection:  commit, commit (1,000 frames) | commit, commit ... commit | commit: new generation
//! hook:                        begins a pass |                           |
//! thread:                                    | passive checkpoint        |
//! ```
//!
//! **Why it is safe.** A pass is an ordinary checkpoint of an ordinary connection, in SQLite's own
//! order, with SQLite's own locks. Everything that holds for a second connection holds here, also
//! for programs without the extension and for a process that is killed.
//!
//! **Rules.**
//!
//! 1. A pass is passive: it waits for no lock, so no statement of the program finds the database
//!    busy because of it. If frames are committed during a pass, some of them remain for the next.
//! 2. SQLite begins the WAL again only when a checkpoint has copied all of it. So from
//!    [`policy::GROWTH`] thresholds on, a commit makes the checkpoint itself as soon as passes
//!    have left it little to copy. At twice that size it waits for the pass under way first. This
//!    bounds the WAL as SQLite does: by the frames that are committed meanwhile, and by readers.
//! 3. The own connection is closed before a connection of the program asks for the exclusive lock
//!    of the database: to remove the WAL when it is the last one, or to change the journal mode.
//!    So no program can tell that there is one more connection. It is also closed before the last
//!    connection of the process, and never makes the checkpoint of the last connection itself
//!    (`NO_CKPT_ON_CLOSE`).
//! 4. Where the connection cannot be opened (the database has another file by now, SQLite was built
//!    or configured without threads, a program has the database to itself), the commit makes the
//!    checkpoint, as without the parameter.
//! 5. A program that sets a WAL hook of its own after its first transaction has its own hook. The
//!    pragma `wal_autocheckpoint` sets the threshold; 0 turns checkpoints off.
//! 6. A forked process touches neither its parent's connection nor its parent's thread.
//! 7. The thread syncs the database after each pass: SQLite itself syncs it only when all of the
//!    WAL was copied. If that fails with an I/O error, SQLite may count frames as copied that the
//!    kernel could not write. So the process writes no more, and leaves the WAL as it is. When all
//!    its connections have closed, the next process that opens the database makes a new index of
//!    the WAL, in which nothing counts as copied, and copies all frames again.

pub mod background;
pub mod link;
mod own;
pub mod policy;

pub use own::is_opening;
