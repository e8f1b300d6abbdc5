//! Another VFS over this one, which passes names on as they come, or makes its own with
//! `sqlite3_create_filename`, as SQLite's multiplex does. Everything works as without the
//! extension, and nothing follows a name to where there is nothing.

#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use crate::common;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Once;

use common::{Place, is_sound, load, stat};
use rusqlite::{Connection, OpenFlags, ffi};

/// How a VFS names the files below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Naming {
    /// As they come.
    Passes,
    /// A database's three names are its own; journals get them.
    Own,
    /// Each file gets a name as if it were a database without journals (multiplex).
    Apart,
}

const KINDS: [(Naming, &CStr); 3] =
    [(Naming::Passes, c"passes"), (Naming::Own, c"own"), (Naming::Apart, c"apart")];

#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    /// To be freed.
    name: *const c_char,
}

const OFFSET: usize = size_of::<File>().next_multiple_of(16);

unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    unsafe { file.cast::<u8>().add(OFFSET).cast() }
}

unsafe fn below() -> *mut ffi::sqlite3_vfs {
    unsafe { ffi::sqlite3_vfs_find(c"onejournal".as_ptr()) }
}

macro_rules! pass {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*) -> $result:ty) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($argument: $type),*) -> $result {
            unsafe {
                let real = real(file);
                ((*(*real).pMethods).$method.expect("it has all"))(real, $($argument),*)
            }
        }
    };
}

pass!(read, xRead, (to: *mut c_void, count: c_int, at: i64) -> c_int);
pass!(write, xWrite, (from: *const c_void, count: c_int, at: i64) -> c_int);
pass!(truncate, xTruncate, (size: i64) -> c_int);
pass!(sync, xSync, (flags: c_int) -> c_int);
pass!(file_size, xFileSize, (size: *mut i64) -> c_int);
pass!(lock, xLock, (level: c_int) -> c_int);
pass!(unlock, xUnlock, (level: c_int) -> c_int);
pass!(check_reserved_lock, xCheckReservedLock, (out: *mut c_int) -> c_int);
pass!(file_control, xFileControl, (operation: c_int, argument: *mut c_void) -> c_int);
pass!(sector_size, xSectorSize, () -> c_int);
pass!(device_characteristics, xDeviceCharacteristics, () -> c_int);
pass!(
    shm_map,
    xShmMap,
    (region: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int
);
pass!(shm_lock, xShmLock, (offset: c_int, count: c_int, flags: c_int) -> c_int);
pass!(shm_barrier, xShmBarrier, () -> ());
pass!(shm_unmap, xShmUnmap, (delete: c_int) -> c_int);
pass!(fetch, xFetch, (at: i64, count: c_int, out: *mut *mut c_void) -> c_int);
pass!(unfetch, xUnfetch, (at: i64, memory: *mut c_void) -> c_int);

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe {
        let real = real(file);
        let rc = ((*(*real).pMethods).xClose.expect("it has all"))(real);
        ffi::sqlite3_free_filename((*file.cast::<File>()).name);
        rc
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

thread_local! {
    /// The names that the database of `own` was opened with.
    static OWN: std::cell::Cell<*const c_char> = const { std::cell::Cell::new(std::ptr::null()) };
}

/// The name for the file below; the second one is to be freed with the file.
unsafe fn name_below(
    naming: Naming,
    name: *const c_char,
    flags: c_int,
) -> (*const c_char, *const c_char) {
    let none = std::ptr::null();
    if name.is_null() || naming == Naming::Passes {
        return (name, none);
    }
    let kinds = [ffi::SQLITE_OPEN_MAIN_DB, ffi::SQLITE_OPEN_MAIN_JOURNAL, ffi::SQLITE_OPEN_WAL];
    let [is_main, is_journal, is_wal] = kinds.map(|kind| flags & kind != 0);
    unsafe {
        if naming == Naming::Own && is_journal {
            return (ffi::sqlite3_filename_journal(OWN.get()), none);
        }
        if naming == Naming::Own && is_wal {
            return (ffi::sqlite3_filename_wal(OWN.get()), none);
        }
        let own = CStr::from_ptr(name);
        let more = |end: &str| match naming {
            Naming::Own => {
                CString::new([own.to_bytes(), end.as_bytes()].concat()).expect("no zeros")
            }
            _ => CString::default(),
        };
        let (journal, wal) = (more("-journal"), more("-wal"));
        // What the extension has to know.
        let memory = CString::new("memory").expect("no zeros");
        let value = ffi::sqlite3_uri_parameter(name, memory.as_ptr());
        let mut parameters = [memory.as_ptr(), value];
        let count = c_int::from(is_main && !value.is_null());
        let made = ffi::sqlite3_create_filename(
            name,
            journal.as_ptr(),
            wal.as_ptr(),
            count,
            parameters.as_mut_ptr(),
        );
        assert!(!made.is_null());
        if is_main {
            OWN.set(made);
        }
        (made, made)
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    unsafe {
        let naming = KINDS[(*vfs).pAppData.addr()].0;
        (*file).pMethods = std::ptr::null();
        let (passed, made) = name_below(naming, name, flags);
        let below = below();
        let rc = ((*below).xOpen.expect("it has all"))(below, passed, real(file), flags, out_flags);
        if rc != ffi::SQLITE_OK {
            ffi::sqlite3_free_filename(made);
            return rc;
        }
        (*file.cast::<File>()).name = made;
        (*file).pMethods = &METHODS;
        rc
    }
}

fn register() {
    static ONCE: Once = Once::new();
    load();
    ONCE.call_once(|| unsafe {
        for (index, (_, name)) in KINDS.iter().enumerate() {
            let mut vfs = std::ptr::read(below());
            vfs.szOsFile += OFFSET as c_int;
            vfs.zName = name.as_ptr();
            vfs.pNext = std::ptr::null_mut();
            vfs.pAppData = std::ptr::without_provenance_mut(index);
            vfs.xOpen = Some(open);
            let rc = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0);
            assert_eq!(rc, ffi::SQLITE_OK);
        }
    });
}

fn try_open(place: &Place, vfs: &CStr) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let uri = place
        .uri("a.db", "")
        .replace("vfs=onejournal", &format!("vfs={}", vfs.to_str().expect("text")));
    Connection::open_with_flags(uri, flags).expect("open")
}

fn mode(connection: &Connection, mode: &str) {
    let sql = format!("PRAGMA journal_mode={mode}");
    let found: String = connection.query_row(&sql, [], |row| row.get(0)).expect("mode");
    assert_eq!(found, mode);
}

fn a_database_under_another_vfs_is_written_and_read() {
    register();
    for (naming, vfs) in KINDS {
        let place = Place::new(false);
        let mut rows = 0;
        for journal_mode in ["wal", "delete", "truncate", "persist", "wal"] {
            let connection = try_open(&place, vfs);
            mode(&connection, journal_mode);
            connection
                .execute_batch("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)")
                .expect("table");
            for _ in 0..5 {
                let sql = "INSERT INTO t(v) VALUES (hex(randomblob(2000)))";
                connection.execute(sql, []).expect("insert");
                rows += 1;
            }
            connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").expect("rolled back");
            // A transaction that the cache does not hold, and one that is rolled back from its
            // journal.
            connection
                .execute_batch(
                    "PRAGMA cache_size=2; BEGIN; UPDATE t SET v = hex(randomblob(2000)); ROLLBACK",
                )
                .expect("rolled back");
            assert_eq!(common::count(&connection), rows, "{naming:?} {journal_mode}");
            is_sound(&connection);
            // At the same time as one without another VFS.
            let direct = place.open("a.db");
            direct.execute("INSERT INTO t(v) VALUES ('direct')", []).expect("insert");
            rows += 1;
            connection.execute("INSERT INTO t(v) VALUES ('stacked')", []).expect("insert");
            rows += 1;
            assert_eq!(common::count(&direct), rows);
        }
        let plain = Connection::open(place.path("a.db")).expect("plain");
        assert_eq!(common::count(&plain), rows, "{naming:?}");
        is_sound(&plain);
    }
}

/// Records that a transaction in WAL mode makes.
fn records(connection: &Connection) -> i64 {
    let of = |key: &str| stat(connection)[key].as_i64().expect("a counter");
    let before = of("commits");
    connection.execute("INSERT INTO t(v) VALUES ('x')", []).expect("insert");
    of("commits") - before
}

fn only_what_sqlite_itself_writes_becomes_records_of_frames() {
    register();
    for (naming, vfs) in KINDS {
        let place = Place::new(false);
        drop(place.wal("a.db"));
        let connection = try_open(&place, vfs);
        assert_eq!(records(&connection), 0, "{naming:?}");
        drop(connection);
        let connection = place.open("a.db");
        for _ in 0..2 {
            connection.execute("INSERT INTO t(v) VALUES ('first')", []).expect("insert");
        }
        assert_eq!(records(&connection), 1, "{naming:?}");
    }
}

// One after the other: counters are the process's.
#[test]
fn another_vfs_over_this_one() {
    onejournal_testing::own_process!();
    a_database_under_another_vfs_is_written_and_read();
    only_what_sqlite_itself_writes_becomes_records_of_frames();
}
