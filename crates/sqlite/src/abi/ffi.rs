//! What SQLite hands to an extension, as far as this one needs it.
//!
//! Declared here and not taken from `libsqlite3-sys`: its feature `loadable_extension` is a switch
//! for the whole build, and with it every other user of SQLite in a workspace (tests with a bundled
//! SQLite) loses its direct calls. These structs are SQLite's stable ABI, only ever extended at the
//! end; a test holds the structs against `libsqlite3-sys`.

#![allow(non_snake_case, non_camel_case_types, missing_docs)]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use super::text::{Name, Text};

/// The type of a function in C.
macro_rules! c_fn {
    ($($signature:tt)*) => { unsafe extern "C" fn $($signature)* };
}
pub(super) use c_fn;

pub const SQLITE_OK: c_int = 0;
pub const SQLITE_ERROR: c_int = 1;
pub const SQLITE_BUSY: c_int = 5;
pub const SQLITE_NOMEM: c_int = 7;
pub const SQLITE_IOERR: c_int = 10;
pub const SQLITE_NOTFOUND: c_int = 12;
pub const SQLITE_FULL: c_int = 13;
pub const SQLITE_CANTOPEN: c_int = 14;
pub const SQLITE_WARNING: c_int = 28;
pub const SQLITE_IOERR_SHORT_READ: c_int = SQLITE_IOERR | (2 << 8);
pub const SQLITE_IOERR_WRITE: c_int = SQLITE_IOERR | (3 << 8);
pub const SQLITE_IOERR_FSYNC: c_int = SQLITE_IOERR | (4 << 8);
pub const SQLITE_READONLY_ROLLBACK: c_int = 8 | (3 << 8);
pub const SQLITE_IOERR_DELETE_NOENT: c_int = SQLITE_IOERR | (23 << 8);
pub const SQLITE_IOERR_LOCK: c_int = SQLITE_IOERR | (15 << 8);
pub const SQLITE_OK_LOAD_PERMANENTLY: c_int = SQLITE_OK | (1 << 8);

pub const SQLITE_OPEN_READONLY: c_int = 0x1;
pub const SQLITE_OPEN_READWRITE: c_int = 0x2;
pub const SQLITE_OPEN_CREATE: c_int = 0x4;
pub const SQLITE_OPEN_MAIN_DB: c_int = 0x100;
pub const SQLITE_OPEN_MAIN_JOURNAL: c_int = 0x800;
pub const SQLITE_OPEN_FULLMUTEX: c_int = 0x1_0000;
pub const SQLITE_OPEN_PRIVATECACHE: c_int = 0x4_0000;
pub const SQLITE_OPEN_WAL: c_int = 0x80000;

pub const SQLITE_SYNC_FULL: c_int = 0x3;

pub const SQLITE_LOCK_NONE: c_int = 0;
pub const SQLITE_LOCK_SHARED: c_int = 1;
pub const SQLITE_LOCK_RESERVED: c_int = 2;
pub const SQLITE_LOCK_EXCLUSIVE: c_int = 4;

pub const SQLITE_FCNTL_SIZE_HINT: c_int = 5;
pub const SQLITE_FCNTL_CHUNK_SIZE: c_int = 6;
pub const SQLITE_FCNTL_FILE_POINTER: c_int = 7;
pub const SQLITE_FCNTL_VFSNAME: c_int = 12;
pub const SQLITE_FCNTL_PRAGMA: c_int = 14;
pub const SQLITE_FCNTL_HAS_MOVED: c_int = 20;
pub const SQLITE_FCNTL_SYNC: c_int = 21;
pub const SQLITE_FCNTL_COMMIT_PHASETWO: c_int = 22;
pub const SQLITE_FCNTL_PDB: c_int = 30;
pub const SQLITE_FCNTL_BEGIN_ATOMIC_WRITE: c_int = 31;
pub const SQLITE_FCNTL_COMMIT_ATOMIC_WRITE: c_int = 32;
pub const SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE: c_int = 33;
pub const SQLITE_FCNTL_LOCK_TIMEOUT: c_int = 34;

pub const SQLITE_SHM_UNLOCK: c_int = 1;
pub const SQLITE_SHM_LOCK: c_int = 2;
pub const SQLITE_SHM_SHARED: c_int = 4;
pub const SQLITE_SHM_EXCLUSIVE: c_int = 8;
pub const SQLITE_CHECKPOINT_PASSIVE: c_int = 0;
pub const SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE: c_int = 1006;
/// Offset of the lock that a writer in WAL mode holds (the file format: "WAL-index", §2.3.1).
pub const WAL_WRITE_LOCK: c_int = 0;
/// The lock of a checkpoint.
pub const WAL_CHECKPOINT_LOCK: c_int = 1;
/// The first lock of the readers, and their number.
pub const WAL_READER_LOCK: c_int = 3;
pub const WAL_READERS: c_int = 5;

pub const SQLITE_IOCAP_SAFE_APPEND: c_int = 0x200;
pub const SQLITE_IOCAP_SEQUENTIAL: c_int = 0x400;
pub const SQLITE_IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;
pub const SQLITE_IOCAP_BATCH_ATOMIC: c_int = 0x4000;

pub const SQLITE_UTF8: c_int = 1;
pub const SQLITE_DIRECTONLY: c_int = 0x8_0000;

#[repr(C)]
pub struct sqlite3_file {
    /// Null: the file is not open.
    pub pMethods: Cell<*const sqlite3_io_methods>,
}

#[repr(C)]
pub struct sqlite3_io_methods {
    pub iVersion: c_int,
    pub xClose: Option<c_fn!((*mut sqlite3_file) -> c_int)>,
    pub xRead: Option<c_fn!((*mut sqlite3_file, *mut c_void, c_int, i64) -> c_int)>,
    pub xWrite: Option<c_fn!((*mut sqlite3_file, *const c_void, c_int, i64) -> c_int)>,
    pub xTruncate: Option<c_fn!((*mut sqlite3_file, i64) -> c_int)>,
    pub xSync: Option<c_fn!((*mut sqlite3_file, c_int) -> c_int)>,
    pub xFileSize: Option<c_fn!((*mut sqlite3_file, &mut i64) -> c_int)>,
    pub xLock: Option<c_fn!((*mut sqlite3_file, c_int) -> c_int)>,
    pub xUnlock: Option<c_fn!((*mut sqlite3_file, c_int) -> c_int)>,
    pub xCheckReservedLock: Option<c_fn!((*mut sqlite3_file, &mut c_int) -> c_int)>,
    pub xFileControl: Option<c_fn!((*mut sqlite3_file, c_int, *mut c_void) -> c_int)>,
    pub xSectorSize: Option<c_fn!((*mut sqlite3_file) -> c_int)>,
    pub xDeviceCharacteristics: Option<c_fn!((*mut sqlite3_file) -> c_int)>,
    pub xShmMap: Option<c_fn!((*mut sqlite3_file, c_int, c_int, c_int, &mut *mut c_void) -> c_int)>,
    pub xShmLock: Option<c_fn!((*mut sqlite3_file, c_int, c_int, c_int) -> c_int)>,
    pub xShmBarrier: Option<c_fn!((*mut sqlite3_file))>,
    pub xShmUnmap: Option<c_fn!((*mut sqlite3_file, c_int) -> c_int)>,
    pub xFetch: Option<c_fn!((*mut sqlite3_file, i64, c_int, &mut *mut c_void) -> c_int)>,
    pub xUnfetch: Option<c_fn!((*mut sqlite3_file, i64, *mut c_void) -> c_int)>,
}

pub type DlSym = c_fn!((*mut sqlite3_vfs, *mut c_void, *const c_char));
pub type Syscall = c_fn!(());

#[repr(C)]
pub struct sqlite3_vfs {
    pub iVersion: c_int,
    pub szOsFile: c_int,
    pub mxPathname: c_int,
    pub pNext: *mut sqlite3_vfs,
    pub zName: *const c_char,
    pub pAppData: *mut c_void,
    pub xOpen: Option<
        c_fn!((
            *mut sqlite3_vfs,
            Option<Name<'_>>,
            *mut sqlite3_file,
            c_int,
            Option<&mut c_int>,
        ) -> c_int),
    >,
    pub xDelete: Option<c_fn!((*mut sqlite3_vfs, Text<'_>, c_int) -> c_int)>,
    pub xAccess: Option<c_fn!((*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int)>,
    pub xFullPathname:
        Option<c_fn!((*mut sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int)>,
    pub xDlOpen: Option<c_fn!((*mut sqlite3_vfs, *const c_char) -> *mut c_void)>,
    pub xDlError: Option<c_fn!((*mut sqlite3_vfs, c_int, *mut c_char))>,
    pub xDlSym: Option<c_fn!((*mut sqlite3_vfs, *mut c_void, *const c_char) -> Option<DlSym>)>,
    pub xDlClose: Option<c_fn!((*mut sqlite3_vfs, *mut c_void))>,
    pub xRandomness: Option<c_fn!((*mut sqlite3_vfs, c_int, *mut c_char) -> c_int)>,
    pub xSleep: Option<c_fn!((*mut sqlite3_vfs, c_int) -> c_int)>,
    pub xCurrentTime: Option<c_fn!((*mut sqlite3_vfs, *mut f64) -> c_int)>,
    pub xGetLastError: Option<c_fn!((*mut sqlite3_vfs, c_int, *mut c_char) -> c_int)>,
    pub xCurrentTimeInt64: Option<c_fn!((*mut sqlite3_vfs, *mut i64) -> c_int)>,
    pub xSetSystemCall: Option<c_fn!((*mut sqlite3_vfs, *const c_char, Option<Syscall>) -> c_int)>,
    pub xGetSystemCall: Option<c_fn!((*mut sqlite3_vfs, *const c_char) -> Option<Syscall>)>,
    pub xNextSystemCall: Option<c_fn!((*mut sqlite3_vfs, *const c_char) -> *const c_char)>,
}

/// A connection, a call's context, a value. Only their addresses are used.
#[repr(C)]
pub struct sqlite3 {
    _private: [u8; 0],
}
#[repr(C)]
pub struct sqlite3_context {
    _private: [u8; 0],
}
#[repr(C)]
pub struct sqlite3_value {
    _private: [u8; 0],
}
