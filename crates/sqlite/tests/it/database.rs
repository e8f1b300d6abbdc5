//! The extension as a program uses it, without crashes.

use crate::common;

use common::{Place, count, is_sound, load, stat};
use rusqlite::{Connection, ffi};

/// The counters are those of the process.
fn set_up() {
    load();
}

#[test]
fn commits_become_records_and_the_closed_database_is_plain() {
    onejournal_testing::own_process!();
    set_up();
    for is_nvram in [false, true] {
        let place = Place::new(is_nvram);
        let connection = place.wal("a.db");
        let before = stat(&connection)["real_syncs"].as_u64();
        for number in 0..50 {
            connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
        }
        let after = stat(&connection);
        assert_eq!(after["real_syncs"].as_u64(), before, "no sync of the WAL: {after}");
        let found = after["databases"].as_array().expect("list");
        let path = place.path("a.db").display().to_string();
        let mine = found.iter().find(|database| database["path"] == *path).expect("mine");
        assert!(mine["stream"]["record_count"].as_u64() >= Some(50), "{mine}");
        drop(connection);
        assert!(!place.path("a.db-wal").exists());
        let plain = Connection::open(place.path("a.db")).expect("plain");
        assert_eq!(count(&plain), 50);
        is_sound(&plain);
    }
}

/// As `.vfsname` of SQLite's shell asks.
fn vfs_name(connection: &Connection) -> String {
    let mut name: *mut std::ffi::c_char = std::ptr::null_mut();
    let argument: *mut *mut std::ffi::c_char = &mut name;
    let operation = ffi::SQLITE_FCNTL_VFSNAME;
    // SAFETY: an open connection; the control sets the pointer to a text, which is the caller's.
    unsafe {
        let handle = connection.handle();
        let rc = ffi::sqlite3_file_control(handle, c"main".as_ptr(), operation, argument.cast());
        assert_eq!(rc, ffi::SQLITE_OK);
        let text = std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned();
        ffi::sqlite3_free(name.cast());
        text
    }
}

#[test]
fn a_database_names_the_vfs_and_what_is_below() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    assert_eq!(vfs_name(&place.wal("a.db")), "onejournal/unix");
    let plain = Connection::open(place.path("a.db")).expect("plain");
    assert_eq!(vfs_name(&plain), "unix");
}

#[test]
fn many_databases_share_a_log_attach_vacuum_and_backup_work() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let first = place.wal("a.db");
    let second = place.wal("b.db");
    first.execute("ATTACH ?1 AS other", [place.uri("b.db", "")]).expect("attach");
    first
        .execute_batch(
            "BEGIN; INSERT INTO t(v) VALUES (1); INSERT INTO other.t(v) VALUES (2); COMMIT",
        )
        .expect("both");
    assert_eq!((count(&first), count(&second)), (1, 1));
    first.execute_batch("DETACH other; VACUUM").expect("vacuum");
    let mut copy = place.wal("c.db");
    rusqlite::backup::Backup::new(&first, &mut copy)
        .and_then(|backup| backup.run_to_completion(5, std::time::Duration::ZERO, None))
        .expect("backup");
    assert_eq!(count(&copy), 1);
    is_sound(&copy);
    let temporary = rusqlite::Connection::open_with_flags_and_vfs(
        "",
        rusqlite::OpenFlags::default(),
        "onejournal",
    )
    .expect("a temporary database");
    temporary.execute_batch("CREATE TABLE t(v); INSERT INTO t VALUES (1)").expect("temporary");
    drop((first, second, copy, temporary));
    for name in ["a.db", "b.db", "c.db"] {
        assert_eq!(count(&Connection::open(place.path(name)).expect("plain")), 1, "{name}");
    }
}

#[test]
fn large_transactions_and_other_programs_make_the_file_durable_itself() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = place.wal("a.db");
    let syncs = |connection: &Connection| stat(connection)["real_syncs"].as_u64().expect("number");
    let before = syncs(&connection);
    connection.execute("INSERT INTO t(v) VALUES (zeroblob(3000000))", []).expect("large");
    assert!(syncs(&connection) > before);
    let plain = Connection::open(place.path("a.db")).expect("plain");
    plain.execute("INSERT INTO t(v) VALUES (1)", []).expect("plain");
    connection.execute("INSERT INTO t(v) VALUES (2)", []).expect("ours");
    assert_eq!((count(&plain), count(&connection)), (3, 3));
}

#[test]
fn wrong_parameters_are_refused() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    for wrong in ["&durability=some", "&recover=yes", "&log=/proc/nowhere"] {
        let opened = place.try_open("a.db", wrong);
        let used = opened.and_then(|connection| {
            connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)")
        });
        assert!(used.is_err(), "{wrong}");
    }
}

/// The extension's own declarations against those of `libsqlite3-sys`; of the table of functions it
/// knows no field, but that is what every test gets its functions from.
#[test]
fn the_structs_are_sqlites() {
    onejournal_testing::own_process!();
    use onejournal_sqlite::ffi as ours;
    use rusqlite::ffi as theirs;
    use std::mem::{offset_of, size_of};
    macro_rules! same {
        ($name:ident: $($field:ident),*) => {
            $(assert_eq!(offset_of!(ours::$name, $field), offset_of!(theirs::$name, $field));)*
            assert_eq!(size_of::<ours::$name>(), size_of::<theirs::$name>());
        };
    }
    same!(sqlite3_vfs: szOsFile, mxPathname, zName, xOpen, xDelete, xAccess, xSleep);
    same!(sqlite3_vfs: xNextSystemCall);
    same!(sqlite3_io_methods: xClose, xWrite, xSync, xLock, xFileControl, xShmMap);
    same!(sqlite3_io_methods: xFetch, xUnfetch);
    same!(sqlite3_file: pMethods);
}
