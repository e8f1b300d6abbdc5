//! The race between a checkpoint and the restart of a WAL, in any copy of SQLite: a VFS stops the
//! checkpoint when it has read the header of the WAL's index and nothing else yet.
//!
//! The VFS is SQLite's own one, with another `xUnfetch`. SQLite calls `xUnfetch` at that moment if
//! the connection has not seen the latest commit. It runs the test's function, once.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use rusqlite::ffi;

type Row = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

/// The functions of a copy of SQLite that a race needs.
pub struct Sqlite {
    version: unsafe extern "C" fn() -> c_int,
    open:
        unsafe extern "C" fn(*const c_char, *mut *mut ffi::sqlite3, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut ffi::sqlite3) -> c_int,
    exec: unsafe extern "C" fn(
        *mut ffi::sqlite3,
        *const c_char,
        Option<Row>,
        *mut c_void,
        *mut *mut c_char,
    ) -> c_int,
    message: unsafe extern "C" fn(*mut ffi::sqlite3) -> *const c_char,
    find_vfs: unsafe extern "C" fn(*const c_char) -> *mut ffi::sqlite3_vfs,
    register_vfs: unsafe extern "C" fn(*mut ffi::sqlite3_vfs, c_int) -> c_int,
    allow_extensions: unsafe extern "C" fn(*mut ffi::sqlite3, c_int) -> c_int,
    load_extension: unsafe extern "C" fn(
        *mut ffi::sqlite3,
        *const c_char,
        *const c_char,
        *mut *mut c_char,
    ) -> c_int,
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `dlopen`: all references at once.
const RTLD_NOW: c_int = 2;

/// A function of a library. `F` is its type.
unsafe fn find<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    unsafe {
        let found = dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        std::mem::transmute_copy(&found)
    }
}

impl Sqlite {
    /// The copy in this program.
    pub fn bundled() -> Sqlite {
        Sqlite {
            version: ffi::sqlite3_libversion_number,
            open: ffi::sqlite3_open_v2,
            close: ffi::sqlite3_close,
            exec: ffi::sqlite3_exec,
            message: ffi::sqlite3_errmsg,
            find_vfs: ffi::sqlite3_vfs_find,
            register_vfs: ffi::sqlite3_vfs_register,
            allow_extensions: ffi::sqlite3_enable_load_extension,
            load_extension: ffi::sqlite3_load_extension,
        }
    }

    /// The copy of the system, which this program does not link.
    pub fn of_system() -> Option<Sqlite> {
        let library = unsafe { dlopen(c"libsqlite3.so.0".as_ptr(), RTLD_NOW) };
        let is_there = !library.is_null();
        is_there.then(|| unsafe {
            Sqlite {
                version: find(library, c"sqlite3_libversion_number"),
                open: find(library, c"sqlite3_open_v2"),
                close: find(library, c"sqlite3_close"),
                exec: find(library, c"sqlite3_exec"),
                message: find(library, c"sqlite3_errmsg"),
                find_vfs: find(library, c"sqlite3_vfs_find"),
                register_vfs: find(library, c"sqlite3_vfs_register"),
                allow_extensions: find(library, c"sqlite3_enable_load_extension"),
                load_extension: find(library, c"sqlite3_load_extension"),
            }
        })
    }

    /// Whether this release has the bug.
    pub fn has_the_bug(&self) -> bool {
        let version = unsafe { (self.version)() };
        let corrected = [3_044_006..3_045_000, 3_050_007..3_051_000, 3_051_003..c_int::MAX];
        !corrected.iter().any(|releases| releases.contains(&version))
    }

    /// Opens a database, with a URI.
    pub fn open(&self, uri: &str) -> Database<'_> {
        let name = CString::new(uri).expect("no zeros");
        let mut connection = std::ptr::null_mut();
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_URI;
        let rc = unsafe { (self.open)(name.as_ptr(), &mut connection, flags, std::ptr::null()) };
        let database = Database { sqlite: self, connection };
        assert_eq!(rc, ffi::SQLITE_OK, "{uri}: {}", database.message());
        database
    }

    /// Makes the VFS that stops the default one.
    pub fn stop_checkpoints(&self) {
        let none = std::ptr::null();
        unsafe {
            let below = (self.find_vfs)(none);
            BELOW.set(below.addr()).expect("one copy of SQLite in a process");
            let _ = below.expose_provenance();
            let mut vfs = std::ptr::read(below);
            vfs.zName = c"stops".as_ptr();
            vfs.pNext = std::ptr::null_mut();
            vfs.xOpen = Some(open);
            let rc = (self.register_vfs)(Box::into_raw(Box::new(vfs)), 1);
            assert_eq!(rc, ffi::SQLITE_OK);
        }
    }

    /// Loads the extension as a program does.
    pub fn load_extension(&self, library: &Path) {
        let database = self.open(":memory:");
        let library = CString::new(library.to_str().expect("text")).expect("no zeros");
        let (none, no_message) = (std::ptr::null(), std::ptr::null_mut());
        unsafe {
            (self.allow_extensions)(database.connection, 1);
            let rc = (self.load_extension)(database.connection, library.as_ptr(), none, no_message);
            assert_eq!(rc, ffi::SQLITE_OK, "{}", database.message());
        }
    }
}

/// A connection.
pub struct Database<'a> {
    sqlite: &'a Sqlite,
    connection: *mut ffi::sqlite3,
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let rc = unsafe { (self.sqlite.close)(self.connection) };
        assert_eq!(rc, ffi::SQLITE_OK);
    }
}

impl Database<'_> {
    fn message(&self) -> String {
        let text = unsafe { CStr::from_ptr((self.sqlite.message)(self.connection)) };
        text.to_string_lossy().into_owned()
    }

    /// Runs statements. Returns the rows' values, with `|` between them, and a space between rows.
    #[track_caller]
    pub fn run(&self, sql: &str) -> String {
        unsafe extern "C" fn add(
            rows: *mut c_void,
            count: c_int,
            values: *mut *mut c_char,
            _names: *mut *mut c_char,
        ) -> c_int {
            unsafe {
                let values = std::slice::from_raw_parts(values, count as usize);
                let text = |value: &*mut c_char| match value.is_null() {
                    true => "NULL".into(),
                    false => CStr::from_ptr(*value).to_string_lossy().into_owned(),
                };
                let row: Vec<String> = values.iter().map(text).collect();
                (*rows.cast::<Vec<String>>()).push(row.join("|"));
            }
            0
        }
        let mut rows: Vec<String> = Vec::new();
        let text = CString::new(sql).expect("no zeros");
        let (place, none) = ((&raw mut rows).cast(), std::ptr::null_mut());
        let rc =
            unsafe { (self.sqlite.exec)(self.connection, text.as_ptr(), Some(add), place, none) };
        assert_eq!(rc, ffi::SQLITE_OK, "{sql}: {}", self.message());
        rows.join(" ")
    }
}

/// The address of SQLite's own VFS.
static BELOW: OnceLock<usize> = OnceLock::new();
/// Its methods for a database, but for `xUnfetch`.
static METHODS: OnceLock<ffi::sqlite3_io_methods> = OnceLock::new();
static UNFETCH: OnceLock<Unfetch> = OnceLock::new();

type Unfetch = unsafe extern "C" fn(*mut ffi::sqlite3_file, i64, *mut c_void) -> c_int;

thread_local! {
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    unsafe {
        let below = BELOW.get().expect("registered");
        let below: *mut ffi::sqlite3_vfs = std::ptr::with_exposed_provenance_mut(*below);
        let rc = ((*below).xOpen.expect("it has all"))(below, name, file, flags, out_flags);
        if rc == ffi::SQLITE_OK && flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            let own = &*(*file).pMethods;
            UNFETCH.get_or_init(|| own.xUnfetch.expect("it has all"));
            let mut methods = std::ptr::read(own);
            methods.xUnfetch = Some(unfetch);
            (*file).pMethods = METHODS.get_or_init(|| methods);
        }
        rc
    }
}

unsafe extern "C" fn unfetch(file: *mut ffi::sqlite3_file, at: i64, memory: *mut c_void) -> c_int {
    if let Some(meanwhile) = MEANWHILE.take() {
        meanwhile();
    }
    let unfetch = UNFETCH.get().expect("an open file");
    unsafe { unfetch(file, at, memory) }
}

/// What became of a database.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Rows without their last committed value.
    pub lost: i64,
    /// Whether the WAL was restarted while the checkpoint was stopped.
    pub has_restarted: bool,
    /// What SQLite's check says.
    pub check: String,
}

impl Outcome {
    /// Nothing was lost.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.check == "ok"
    }
}

const ROWS: u32 = 60;

/// Has `checkpoint` make a checkpoint of the database at `path`, and `writer` commit meanwhile.
/// Then the WAL grows beyond the frames that the checkpoint knew, is copied, and begins again.
/// `reader` opens the database when both are closed.
pub fn race<'a>(
    path: &Path,
    writer: Database<'a>,
    checkpoint: Database<'a>,
    reader: impl FnOnce() -> Database<'a>,
) -> Outcome {
    for connection in [&writer, &checkpoint] {
        assert_eq!(connection.run("PRAGMA journal_mode=WAL"), "wal");
        connection.run("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0");
    }
    writer.run("CREATE TABLE t(id INTEGER PRIMARY KEY, version, v)");
    writer.run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO t SELECT i, 0, hex(randomblob(1500)) FROM n"
    ));
    checkpoint_all(&writer);
    // What it sees now is old when the checkpoint begins.
    assert_eq!(checkpoint.run("SELECT count(*) FROM t"), ROWS.to_string());
    let set_all =
        |version: u32| format!("UPDATE t SET version = {version}, v = hex(randomblob(1500))");
    writer.run(&set_all(1));
    checkpoint_all(&writer);
    let salts = salts_of(path);

    let has_stopped = Cell::new(false);
    let during = || {
        has_stopped.set(true);
        writer.run(&format!("{} WHERE id <= 3", set_all(2)));
    };
    stopped(during, || checkpoint.run("PRAGMA wal_checkpoint(PASSIVE)"));
    assert!(has_stopped.get(), "SQLite calls xUnfetch when a checkpoint finds new frames");
    let has_restarted = salts_of(path) != salts;

    writer.run(&set_all(3));
    writer.run("PRAGMA wal_checkpoint(PASSIVE)");
    writer.run(&format!("{} WHERE id = {ROWS}", set_all(3)));
    drop((writer, checkpoint));
    let reader = reader();
    let lost = reader.run("SELECT count(*) FROM t WHERE version <> 3").parse();
    let check = reader.run("PRAGMA integrity_check(1)");
    Outcome { lost: lost.unwrap_or(i64::MAX), has_restarted, check }
}

/// Runs `body`, and `during` in the first call of `xUnfetch` of this thread.
fn stopped(during: impl FnOnce(), body: impl FnOnce() -> String) {
    let during: Box<dyn FnOnce()> = Box::new(during);
    // SAFETY: it is called, or taken away, before this function returns.
    MEANWHILE.set(Some(unsafe {
        std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce() + 'static>>(during)
    }));
    body();
    MEANWHILE.take();
}

/// Makes a checkpoint of all frames.
fn checkpoint_all(connection: &Database<'_>) {
    let found = connection.run("PRAGMA wal_checkpoint(PASSIVE)");
    let counts: Vec<u32> = found.split('|').map(|count| count.parse().expect(&found)).collect();
    assert!(counts[0] == 0 && counts[1] > 0 && counts[1] == counts[2], "{found}");
}

/// The salts in the header of the WAL of the database at `path`.
fn salts_of(path: &Path) -> Vec<u8> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    std::fs::read(wal).expect("the WAL")[16..24].to_vec()
}
