//! SQLite's C interface, made safe: the VFS below and its files, the extension's own files and
//! VFS, SQLite's functions. The only place with `unsafe` beside `entry`.
//!
//! # SQLite's promises
//!
//! The proofs in this folder name them by number.
//!
//! 1. *Files.* `xOpen` gets `szOsFile` bytes for the file's object, aligned for anything. They stay
//!    the file's until `xOpen` fails or `xClose` returns. In between, SQLite calls the methods that
//!    `pMethods` leads to, with the file as their first argument.
//! 2. *Threads.* A database, its WAL and its journal belong to a connection, or to all connections
//!    that share a cache. One thread at a time calls their methods: SQLite holds the connection's
//!    mutex, or the program says that it does the same, and SQLite holds the mutex of a shared
//!    cache. So what these files share needs no lock. Other files may be used at the same time.
//!    Two calls come without the mutex of a shared cache, while another thread may be in any
//!    method of the file: the control `SQLITE_FCNTL_PDB` of each connection that is opened, and
//!    the WAL hook. Each connection that is opened or in a hook keeps the file open. Other calls
//!    of SQLite without that mutex (backups, snapshots, `VACUUM INTO` an open database) are not
//!    provided for: SQLite's own fields, or its documentation, forbid them then.
//! 3. *Arguments.* They are as `sqlite3.h` says: a buffer has as many bytes as its count says, a
//!    place for a result can be written, a string ends with a zero. The argument of a control has
//!    the type that belongs to the control.
//! 4. *Names.* The name that `xOpen` gets is null, or stays as it is until `xClose` returns.
//! 5. *The VFS.* A registered VFS stays, and is used by any thread.
//! 6. *Functions.* SQLite's table has functions of the types in `sqlite3ext.h`, and they stay:
//!    the extension is never unloaded. Any thread may call them.
//!
//! # What this folder promises
//!
//! A file of the extension is called through `&dyn File`, never `&mut`: the WAL and the journal of
//! a connection use what its database keeps, and SQLite may call a file while another file's method
//! runs. A [`real::Real`] can be kept after its file was closed. Its calls then fail, and touch no
//! memory. A panic does not reach SQLite.

pub mod connection;
pub mod control;
pub mod exit;
pub mod ffi;
pub mod file;
pub mod functions;
pub mod guard;
pub mod handles;
pub mod hook;
pub mod loaded;
pub mod loading;
mod name;
pub mod opened;
pub mod owner;
pub mod real;
pub mod table;
pub mod text;
pub mod vfs;
