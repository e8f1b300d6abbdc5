//! Shared by the tests: the extension in a bundled SQLite.

#![allow(dead_code, clippy::undocumented_unsafe_blocks, missing_docs)]

pub mod actor;
pub mod crash_vfs;
pub mod race;
pub mod world;

use std::ffi::{c_char, c_int};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use onejournal_testing::ServiceDirectories;
use rusqlite::{Connection, OpenFlags, ffi};

unsafe extern "C" fn entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    // An automatic extension may not say that it is permanent, which it is.
    let rc = unsafe {
        onejournal_sqlite::sqlite3_onejournal_init(connection.cast(), message, table.cast())
    };
    if rc == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { rc }
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The messages of the extension that reached SQLite's error log. A test that failed while it held
/// the lock does not poison it: SQLite's C code calls `listen`, which must not panic.
pub fn told() -> MutexGuard<'static, Vec<String>> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn listen(_: *mut std::ffi::c_void, code: c_int, text: *const c_char) {
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if let Some(rest) = text.strip_prefix("onejournal: ... ")
        && let Some(last) = told().last_mut()
    {
        eprintln!("{code} {text}");
        *last = format!("{last} {rest}");
    } else if text.starts_with("onejournal") {
        eprintln!("{code} {text}");
        told().push(text);
    }
}

/// Has SQLite's error log kept; before anything else is asked of SQLite.
pub fn listen_to_errors() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        type Listener = unsafe extern "C" fn(*mut std::ffi::c_void, c_int, *const c_char);
        let none = std::ptr::null_mut::<std::ffi::c_void>();
        let rc = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, listen as Listener, none) };
        assert_eq!(rc, ffi::SQLITE_OK);
    });
}

/// Puts the extension into this process, over the VFS that is the default then.
pub fn load() {
    static ONCE: Once = Once::new();
    listen_to_errors();
    ONCE.call_once(|| {
        let rc = unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
        assert_eq!(rc, ffi::SQLITE_OK);
        // Opening any connection runs it.
        Connection::open_in_memory().expect("memory");
    });
}

/// The numbers of the lines `row NUMBER` that a child says, as they come; it ends with the child.
pub fn rows_of(child: &mut Child) -> Receiver<i64> {
    let lines = BufReader::new(child.stdout.take().expect("output")).lines();
    let (sender, rows) = channel();
    std::thread::spawn(move || {
        let rows = lines.map_while(Result::ok);
        let rows = rows.filter_map(|line| line.strip_prefix("row ")?.parse().ok());
        rows.take_while(|row| sender.send(*row).is_ok()).for_each(drop);
    });
    rows
}

/// The library that cargo made beside the tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("myself");
    let deps = tests.parent().expect("a directory");
    let name = "libonejournal_sqlite.so";
    [deps.join(name), deps.with_file_name(name)].into_iter().find(|path| path.exists()).expect(name)
}

/// A directory with databases, and one that stands for the machine's memory.
pub struct Place {
    pub root: PathBuf,
    pub memory: PathBuf,
    pub is_nvram: bool,
    pub kept: Vec<tempfile::TempDir>,
}

impl Place {
    pub fn new(is_nvram: bool) -> Place {
        let ServiceDirectories { root, memory } = ServiceDirectories::new();
        let kept = vec![root, memory];
        let [root, memory] = [0, 1].map(|n: usize| kept[n].path().to_owned());
        Place { root, memory, is_nvram, kept }
    }

    /// The place that another process made, which is in ROOT, MEMORY and NVRAM of the environment
    /// ([`Place::tell`]).
    pub fn of_environment() -> Place {
        let path = |name| PathBuf::from(std::env::var_os(name).expect(name));
        let is_nvram = std::env::var_os("NVRAM").is_some();
        Place { root: path("ROOT"), memory: path("MEMORY"), is_nvram, kept: Vec::new() }
    }

    /// Tells a process where it is.
    pub fn tell(&self, command: &mut std::process::Command) {
        command.env("ROOT", &self.root).env("MEMORY", &self.memory);
        if self.is_nvram {
            command.env("NVRAM", "1");
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn uri(&self, name: &str, more: &str) -> String {
        let memory = self.memory.display();
        let nvram = match self.is_nvram {
            true => format!("&nvram={memory}/nvram&durability=process"),
            false => String::new(),
        };
        let path = self.path(name);
        format!("file:{}?vfs=onejournal&memory={memory}{nvram}{more}", path.display())
    }

    pub fn try_open(&self, name: &str, more: &str) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.uri(name, more), flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(120))?;
        Ok(connection)
    }

    pub fn open(&self, name: &str) -> Connection {
        self.try_open(name, "").expect("open")
    }

    /// A database in WAL mode with a table. Two transactions: with the second one its log begins.
    pub fn wal(&self, name: &str) -> Connection {
        let connection = self.open(name);
        let mode: String =
            connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).expect("wal");
        assert_eq!(mode, "wal");
        connection
            .execute_batch(
                "PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v);
                 PRAGMA user_version=1; PRAGMA user_version=2",
            )
            .expect("table");
        connection
    }

    /// Bytes of a database's WAL. Right after [`Place::wal`] all of them are durable.
    pub fn wal_bytes(&self, name: &str) -> u64 {
        std::fs::metadata(self.path(&format!("{name}-wal"))).expect("WAL").len()
    }

    /// The machine restarts: memory is lost, but for NVRAM.
    pub fn reboot(&self) {
        onejournal_testing::lose_memory(&self.memory);
    }
}

/// Copies a directory with what is in it; the memory of a log before its files, so that nothing
/// that moves from there to here meanwhile is missed.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(from)
        .expect("directory")
        .map(|entry| entry.expect("entry").path())
        .collect();
    paths.sort_by_key(|path| path.is_dir());
    for path in paths {
        let target = to.join(path.file_name().expect("name"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else if let Err(e) = std::fs::copy(&path, &target) {
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{}: {e}", path.display());
        }
    }
}

/// The stream of the database of this file name.
pub fn stream_of(log: &log::Log, name: &str) -> log::Stream {
    let beginning = format!("db-{name}-");
    let names = log.stream_names().expect("names");
    let name = names.iter().find(|it| it.as_str().starts_with(&beginning)).expect("its stream");
    log.stream(name.as_str()).expect("stream")
}

/// The directory of that stream, below that of the log.
pub fn stream_directory(place: &Place, name: &str) -> String {
    let streams = std::fs::read_dir(place.path(".onejournal/streams")).expect("streams");
    let names = streams.map(|entry| entry.expect("entry").file_name().into_string().expect("text"));
    let beginning = format!("db-{name}-");
    let name = names.into_iter().find(|it| it.starts_with(&beginning)).expect("its stream");
    format!("streams/{name}")
}

/// Runs a statement to its end, whatever rows it has.
pub fn set(connection: &Connection, sql: &str) {
    let mut statement = connection.prepare(sql).expect(sql);
    let mut rows = statement.query([]).expect(sql);
    while rows.next().expect(sql).is_some() {}
}

/// Loads the extension, over a VFS that records what happens. Both are the process's, so each test
/// here has a process of its own.
pub fn set_up() {
    crash_vfs::register();
    load();
}

pub fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("count")
}

pub fn stat(connection: &Connection) -> serde_json::Value {
    let text: String =
        connection.query_row("SELECT onejournal_stat()", [], |row| row.get(0)).expect("stat");
    serde_json::from_str(&text).expect("JSON")
}

pub fn is_sound(connection: &Connection) {
    let text: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("check");
    assert_eq!(text, "ok");
}
