//! A driver that opens no URIs makes a file with the name of the URI. The extension says so.

#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use crate::common::{library, listen_to_errors, load, stat, told};
use onejournal_testing::own_process;
use rusqlite::{Connection, OpenFlags, ffi};

const WHY: &str = "opened as the name of a file";

/// Opens a file by its name, as such drivers do.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )
}

#[track_caller]
fn refused(path: &Path) -> String {
    let error = open(path).expect_err("refused");
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
    error.to_string()
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir_in("/dev/shm").expect("directory");
    let uri = home.path().join("file:app.db?vfs=onejournal");
    (home, uri)
}

#[test]
fn a_connection_to_a_file_with_the_name_of_a_uri_is_refused() {
    own_process!();
    load();
    let (home, uri) = home();
    let message = refused(&uri);
    assert!(message.contains(WHY) && message.contains("onejournal_make_default()"), "{message}");
    assert!(told().iter().any(|text| text.contains(WHY)));
    // Another VFS's names are its own.
    for name in ["file:app.db?mode=ro", "file:app.db", "app.db"] {
        open(&home.path().join(name)).expect(name);
    }
}

#[test]
fn the_extension_is_not_loaded_into_a_connection_to_such_a_file() {
    own_process!();
    listen_to_errors();
    let (_home, uri) = home();
    let connection = open(&uri).expect("nothing looks at the name yet");
    let loaded = unsafe {
        let _allowed = rusqlite::LoadExtensionGuard::new(&connection).expect("allowed");
        connection.load_extension(library(), None::<&str>)
    };
    let message = loaded.expect_err("refused").to_string();
    assert!(message.contains(WHY), "{message}");
    let vfs = unsafe { ffi::sqlite3_vfs_find(c"onejournal".as_ptr()) };
    assert!(vfs.is_null());
}

unsafe extern "C" fn default_entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    // An automatic extension may not say that it is permanent, which it is.
    let rc = unsafe {
        onejournal_sqlite::sqlite3_onejournal_default_init(connection.cast(), message, table.cast())
    };
    if rc == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { rc }
}

#[test]
fn the_default_vfs_takes_plain_names_and_refuses_those_of_uris() {
    own_process!();
    listen_to_errors();
    let rc = unsafe { ffi::sqlite3_auto_extension(Some(default_entry)) };
    assert_eq!(rc, ffi::SQLITE_OK);
    let other = Connection::open_in_memory().expect("memory");
    let (home, uri) = home();
    for path in [uri, home.path().join("file:app.db?mode=rwc")] {
        refused(&path);
        assert!(!path.exists(), "no file is left");
        let last: String = other
            .query_row("SELECT onejournal_last_error()", [], |row| row.get(0))
            .expect("the reason");
        assert!(last.contains(WHY), "{last}");
        assert!(std::mem::take(&mut *told()).iter().any(|text| text.contains(WHY)));
    }
    let connection = open(&home.path().join("app.db")).expect("open");
    let mode: String =
        connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).expect("wal");
    assert_eq!(mode, "wal");
    connection.execute_batch("CREATE TABLE t(v)").expect("table");
    let databases = stat(&connection)["databases"].to_string();
    assert!(databases.contains("app.db"), "{databases}");
}

#[test]
fn the_vfs_can_be_made_the_default_one_with_sql() {
    own_process!();
    load();
    let other = Connection::open_in_memory().expect("memory");
    let sql = "SELECT onejournal_make_default()";
    let (home, uri) = home();
    let path = home.path().join("a.db");
    let has_it = |connection: &Connection| {
        connection.execute_batch("PRAGMA user_version=1").expect("a transaction");
        let databases = stat(connection)["databases"].to_string();
        databases.contains("a.db")
    };
    assert!(!has_it(&open(&path).expect("open")));
    // A schema cannot do it.
    other.execute_batch(&format!("CREATE VIEW v AS {sql}")).expect("a view");
    assert!(other.query_row("SELECT * FROM v", [], |_| Ok(())).is_err());
    assert!(!has_it(&open(&path).expect("open")));
    let name: String = other.query_row(sql, [], |row| row.get(0)).expect("made");
    assert_eq!(name, "onejournal");
    assert!(has_it(&open(&path).expect("open")));
    refused(&uri);
}
