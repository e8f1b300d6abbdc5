//! What the unit tests share: the extension in the bundled SQLite, and places for databases.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Once;

use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use crate::abi::handles::Below;
use crate::stream::settings::Settings;

unsafe extern "C" fn entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    let rc = unsafe { crate::sqlite3_onejournal_init(connection.cast(), message, table.cast()) };
    // An automatic extension may not say that it is permanent, which it is.
    if rc == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { rc }
}

/// A directory for databases, their log and its memory.
pub fn directory() -> TempDir {
    let home = tempfile::tempdir_in("/dev/shm").expect("directory");
    for name in ["nvram", "memory"] {
        std::fs::create_dir(home.path().join(name)).expect("directory");
    }
    home
}

/// The VFS below, and the settings of a database in such a directory, with `recover` as its URI
/// says it.
pub fn settings_in(home: &TempDir, path: &Path, recover: Option<&str>) -> (Below, Settings) {
    load();
    let below = Below::unix();
    let parameter = |name: &str| match name {
        "nvram" | "memory" => Some(home.path().join(name).display().to_string()),
        "durability" => Some("process".into()),
        "recover" => recover.map(String::from),
        _ => None,
    };
    (below, Settings::new(path, parameter).expect("settings"))
}

/// Loads it once, so that SQLite's functions can be called.
pub fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an entry of an extension, which lives as long as the program.
        let rc = unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
        assert_eq!(rc, ffi::SQLITE_OK);
        // Opening any connection runs it.
        Connection::open_in_memory().expect("memory");
    });
}
