//! What SQLite hands to an extension, as far as this one needs it.
//!
//! Declared here and not taken from `libsqlite3-sys`: its feature `loadable_extension` is a switch
//! for the whole build, and with it every other user of SQLite in a workspace (tests with a bundled
//! SQLite) loses its direct calls. These structs are SQLite's stable ABI, only ever extended at the
//! end; a test holds the structs against `libsqlite3-sys`.

#![allow(non_snake_case, non_camel_case_types, missing_docs)]

use std::ffi::{c_char, c_int, c_void};

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
    pub pMethods: *const sqlite3_io_methods,
}

#[repr(C)]
pub struct sqlite3_io_methods {
    pub iVersion: c_int,
    pub xClose: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub xRead: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_void, c_int, i64) -> c_int>,
    pub xWrite: Option<unsafe extern "C" fn(*mut sqlite3_file, *const c_void, c_int, i64) -> c_int>,
    pub xTruncate: Option<unsafe extern "C" fn(*mut sqlite3_file, i64) -> c_int>,
    pub xSync: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub xFileSize: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut i64) -> c_int>,
    pub xLock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub xUnlock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub xCheckReservedLock: Option<unsafe extern "C" fn(*mut sqlite3_file, *mut c_int) -> c_int>,
    pub xFileControl: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, *mut c_void) -> c_int>,
    pub xSectorSize: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub xDeviceCharacteristics: Option<unsafe extern "C" fn(*mut sqlite3_file) -> c_int>,
    pub xShmMap: Option<
        unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    >,
    pub xShmLock: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int, c_int, c_int) -> c_int>,
    pub xShmBarrier: Option<unsafe extern "C" fn(*mut sqlite3_file)>,
    pub xShmUnmap: Option<unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int>,
    pub xFetch:
        Option<unsafe extern "C" fn(*mut sqlite3_file, i64, c_int, *mut *mut c_void) -> c_int>,
    pub xUnfetch: Option<unsafe extern "C" fn(*mut sqlite3_file, i64, *mut c_void) -> c_int>,
}

pub type DlSym = unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char);
pub type Syscall = unsafe extern "C" fn();

#[repr(C)]
pub struct sqlite3_vfs {
    pub iVersion: c_int,
    pub szOsFile: c_int,
    pub mxPathname: c_int,
    pub pNext: *mut sqlite3_vfs,
    pub zName: *const c_char,
    pub pAppData: *mut c_void,
    pub xOpen: Option<
        unsafe extern "C" fn(
            *mut sqlite3_vfs,
            *const c_char,
            *mut sqlite3_file,
            c_int,
            *mut c_int,
        ) -> c_int,
    >,
    pub xDelete: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int>,
    pub xAccess:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub xFullPathname:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub xDlOpen: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *mut c_void>,
    pub xDlError: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char)>,
    pub xDlSym:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char) -> Option<DlSym>>,
    pub xDlClose: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void)>,
    pub xRandomness: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub xSleep: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int>,
    pub xCurrentTime: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut f64) -> c_int>,
    pub xGetLastError: Option<unsafe extern "C" fn(*mut sqlite3_vfs, c_int, *mut c_char) -> c_int>,
    pub xCurrentTimeInt64: Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut i64) -> c_int>,
    pub xSetSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, Option<Syscall>) -> c_int>,
    pub xGetSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> Option<Syscall>>,
    pub xNextSystemCall:
        Option<unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char) -> *const c_char>,
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

pub type Function = unsafe extern "C" fn(*mut sqlite3_context, c_int, *mut *mut sqlite3_value);
/// The entry point of an extension: a connection, the place for a message, and SQLite's table.
pub type Entry = unsafe extern "C" fn(*mut sqlite3, *mut *mut c_char, *const c_void) -> c_int;
pub type Destructor = unsafe extern "C" fn(*mut c_void);
/// A WAL hook: its argument, the connection, the database's name, and the frames in the WAL.
pub type WalHook = unsafe extern "C" fn(*mut c_void, *mut sqlite3, *const c_char, c_int) -> c_int;
type Row = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// `sqlite3_api_routines`, by the index of each function in it.
pub mod index {
    pub const CLOSE: usize = 16;
    pub const EXEC: usize = 55;
    pub const LIBVERSION_NUMBER: usize = 67;
    pub const MPRINTF: usize = 69;
    pub const RESULT_TEXT: usize = 85;
    pub const FILE_CONTROL: usize = 127;
    pub const OPEN_V2: usize = 135;
    pub const VFS_FIND: usize = 141;
    pub const VFS_REGISTER: usize = 142;
    pub const COMPILEOPTION_USED: usize = 161;
    pub const CREATE_FUNCTION_V2: usize = 162;
    pub const DB_CONFIG: usize = 163;
    pub const DB_MUTEX: usize = 164;
    pub const LOG: usize = 167;
    pub const WAL_HOOK: usize = 175;
    pub const DB_FILENAME: usize = 180;
    pub const URI_PARAMETER: usize = 189;
    pub const WAL_CHECKPOINT_V2: usize = 191;
    pub const AUTO_EXTENSION: usize = 192;
    pub const URI_KEY: usize = 245;
    pub const FILENAME_DATABASE: usize = 246;
    pub const FILENAME_JOURNAL: usize = 247;
    pub const FILENAME_WAL: usize = 248;
    pub const CREATE_FILENAME: usize = 249;
    pub const FREE_FILENAME: usize = 250;
    pub const DATABASE_FILE_OBJECT: usize = 251;
}

/// From one of a database's names to another one.
type NameOfName = unsafe extern "C" fn(*const c_char) -> *const c_char;

/// The functions of SQLite that are called.
#[derive(Clone, Copy)]
pub struct Api {
    pub mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    pub result_text:
        unsafe extern "C" fn(*mut sqlite3_context, *const c_char, c_int, Option<Destructor>),
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut sqlite3_vfs,
    pub vfs_register: unsafe extern "C" fn(*mut sqlite3_vfs, c_int) -> c_int,
    pub create_function_v2: unsafe extern "C" fn(
        *mut sqlite3,
        *const c_char,
        c_int,
        c_int,
        *mut c_void,
        Option<Function>,
        Option<Function>,
        Option<unsafe extern "C" fn(*mut sqlite3_context)>,
        Option<Destructor>,
    ) -> c_int,
    pub log: unsafe extern "C" fn(c_int, *const c_char, ...),
    pub uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    pub uri_key: unsafe extern "C" fn(*const c_char, c_int) -> *const c_char,
    pub auto_extension: unsafe extern "C" fn(Option<Entry>) -> c_int,
    pub db_filename: unsafe extern "C" fn(*mut sqlite3, *const c_char) -> *const c_char,
    pub filename_database: NameOfName,
    pub filename_journal: NameOfName,
    pub filename_wal: NameOfName,
    pub create_filename: unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
    ) -> *const c_char,
    pub free_filename: unsafe extern "C" fn(*const c_char),
    /// For names that the pager has made (`names`).
    pub database_file_object: unsafe extern "C" fn(*const c_char) -> *mut sqlite3_file,
    /// SQLite may be compiled without it.
    pub compileoption_used: Option<unsafe extern "C" fn(*const c_char) -> c_int>,
    /// SQLite may be compiled without a WAL.
    pub checkpoints: Option<CheckpointApi>,
}

/// The functions for checkpoints by a connection of the extension's own.
#[derive(Clone, Copy)]
pub struct CheckpointApi {
    pub open_v2:
        unsafe extern "C" fn(*const c_char, *mut *mut sqlite3, c_int, *const c_char) -> c_int,
    pub close: unsafe extern "C" fn(*mut sqlite3) -> c_int,
    pub exec: unsafe extern "C" fn(
        *mut sqlite3,
        *const c_char,
        Option<Row>,
        *mut c_void,
        *mut *mut c_char,
    ) -> c_int,
    pub file_control:
        unsafe extern "C" fn(*mut sqlite3, *const c_char, c_int, *mut c_void) -> c_int,
    pub db_config: unsafe extern "C" fn(*mut sqlite3, c_int, ...) -> c_int,
    /// Null: SQLite does not let threads share this connection.
    pub db_mutex: unsafe extern "C" fn(*mut sqlite3) -> *mut c_void,
    pub wal_hook: unsafe extern "C" fn(*mut sqlite3, Option<WalHook>, *mut c_void) -> *mut c_void,
    pub wal_checkpoint_v2:
        unsafe extern "C" fn(*mut sqlite3, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int,
}

impl CheckpointApi {
    /// # Safety
    /// As [`Api::from_table`], and the release is at least [`VERSION_MIN`].
    unsafe fn from_table(table: *const *const c_void) -> Option<CheckpointApi> {
        // SAFETY: as in `Api::from_table`: the release has all these indexes, and each holds a
        // function of the type that the field has, or nothing, which is `None`.
        unsafe {
            let at = |index: usize| *table.add(index);
            Some(CheckpointApi {
                open_v2: std::mem::transmute::<*const c_void, Option<_>>(at(index::OPEN_V2))?,
                close: std::mem::transmute::<*const c_void, Option<_>>(at(index::CLOSE))?,
                exec: std::mem::transmute::<*const c_void, Option<_>>(at(index::EXEC))?,
                file_control: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::FILE_CONTROL,
                ))?,
                db_config: std::mem::transmute::<*const c_void, Option<_>>(at(index::DB_CONFIG))?,
                db_mutex: std::mem::transmute::<*const c_void, Option<_>>(at(index::DB_MUTEX))?,
                wal_hook: std::mem::transmute::<*const c_void, Option<_>>(at(index::WAL_HOOK))?,
                wal_checkpoint_v2: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::WAL_CHECKPOINT_V2,
                ))?,
            })
        }
    }
}

/// The first release with `sqlite3_database_file_object`.
pub const VERSION_MIN: c_int = 3_032_000;

impl Api {
    /// The functions in the table that SQLite gives to an extension's entry.
    ///
    /// # Errors
    /// The version found, when it is older than [`VERSION_MIN`]; 0: the table lacks a function.
    ///
    /// # Safety
    /// `table` is the third argument of an extension's entry, as SQLite passed it.
    pub unsafe fn from_table(table: *const c_void) -> Result<Api, c_int> {
        let table = table.cast::<*const c_void>();
        if table.is_null() {
            return Err(0);
        }
        // SAFETY: every release of SQLite that can load extensions has this function at this index.
        let version = unsafe { *table.add(index::LIBVERSION_NUMBER) };
        // SAFETY: the entry is a function of that type, or null, which is `None`.
        let version: Option<unsafe extern "C" fn() -> c_int> =
            unsafe { std::mem::transmute(version) };
        // SAFETY: it takes nothing and returns a number.
        let version = version.map_or(0, |version| unsafe { version() });
        if version < VERSION_MIN {
            return Err(version);
        }
        // SAFETY: the release is new enough to have all indexes up to this one, and each holds a
        // function of the type that the field has (`sqlite3ext.h`; the table is only ever
        // extended), or nothing where it was compiled without, which is `None`.
        unsafe {
            let at = |index: usize| *table.add(index);
            Ok(Api {
                mprintf: std::mem::transmute::<*const c_void, Option<_>>(at(index::MPRINTF))
                    .ok_or(0)?,
                result_text: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::RESULT_TEXT,
                ))
                .ok_or(0)?,
                vfs_find: std::mem::transmute::<*const c_void, Option<_>>(at(index::VFS_FIND))
                    .ok_or(0)?,
                vfs_register: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::VFS_REGISTER,
                ))
                .ok_or(0)?,
                create_function_v2: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::CREATE_FUNCTION_V2,
                ))
                .ok_or(0)?,
                log: std::mem::transmute::<*const c_void, Option<_>>(at(index::LOG)).ok_or(0)?,
                uri_parameter: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::URI_PARAMETER,
                ))
                .ok_or(0)?,
                uri_key: std::mem::transmute::<*const c_void, Option<_>>(at(index::URI_KEY))
                    .ok_or(0)?,
                auto_extension: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::AUTO_EXTENSION,
                ))
                .ok_or(0)?,
                db_filename: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::DB_FILENAME,
                ))
                .ok_or(0)?,
                filename_database: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::FILENAME_DATABASE,
                ))
                .ok_or(0)?,
                filename_journal: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::FILENAME_JOURNAL,
                ))
                .ok_or(0)?,
                filename_wal: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::FILENAME_WAL,
                ))
                .ok_or(0)?,
                create_filename: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::CREATE_FILENAME,
                ))
                .ok_or(0)?,
                free_filename: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::FREE_FILENAME,
                ))
                .ok_or(0)?,
                database_file_object: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::DATABASE_FILE_OBJECT,
                ))
                .ok_or(0)?,
                compileoption_used: std::mem::transmute::<*const c_void, Option<_>>(at(
                    index::COMPILEOPTION_USED,
                )),
                checkpoints: CheckpointApi::from_table(table),
            })
        }
    }
}
