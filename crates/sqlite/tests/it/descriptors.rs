//! A program that closed its standard descriptors commits through the extension, and writes to
//! their numbers: no commit is lost.

#![allow(clippy::undocumented_unsafe_blocks)]

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use onejournal_testing::{close_standard_descriptors, own_process};
use rusqlite::{Connection, LoadExtensionGuard};

use crate::common::{Place, count, is_sound, library, load, set};

const ROWS: i64 = 100;

/// Loads the library as a program does.
fn load_library() {
    let connection = Connection::open_in_memory().expect("memory");
    unsafe {
        let _enabled = LoadExtensionGuard::new(&connection).expect("enabled");
        connection.load_extension(library(), Some("sqlite3_onejournal_init")).expect("loaded");
    }
}

/// Writes where C programs write, whatever is there.
fn write_garbage() {
    for number in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let _ = rustix::io::write(number, &[b'x'; 64 << 10]);
    }
}

/// Commits rows, and ends without closing anything. The descriptors are closed when SQLite has
/// opened all its files, because it occupies the numbers, too. Then the log takes further chunks.
#[test]
#[ignore = "a process of the tests below"]
fn program() {
    let place = Place::of_environment();
    match std::env::var_os("FAULTY") {
        Some(_) => {
            fault::for_process(host::Fault::UsesStandardNumbers);
            load();
        }
        None => load_library(),
    }
    let connection = place.open("a.db");
    for sql in [
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
    ] {
        set(&connection, sql);
    }
    close_standard_descriptors();
    for id in 0..ROWS {
        let sql = "INSERT INTO t VALUES (?1, hex(randomblob(2000)))";
        connection.execute(sql, [id]).expect("insert");
        write_garbage();
    }
    std::process::exit(i32::from(!are_numbers_free()));
}

/// Whether no file of the log has one of the numbers. SQLite's placeholder is `/dev/null`, ours is
/// the directory `/`.
fn are_numbers_free() -> bool {
    let found = (0..3).map(|number| std::fs::read_link(format!("/proc/self/fd/{number}")));
    found.flatten().all(|path| path == Path::new("/dev/null") || path == Path::new("/"))
}

fn run_program(place: &Place, is_faulty: bool) -> ExitStatus {
    let mut command = onejournal_testing::again(module_path!(), "program");
    place.tell(&mut command);
    if is_faulty {
        command.env("FAULTY", "1");
    }
    command.stdin(Stdio::null()).status().expect("program")
}

#[test]
fn a_program_without_standard_descriptors_loses_no_commit() {
    own_process!(silent);
    load();
    let place = Place::new(false);
    assert!(run_program(&place, false).success());
    // The power goes out, too: half of the WAL was not written yet.
    place.reboot();
    let wal = std::fs::OpenOptions::new().write(true).open(place.path("a.db-wal")).expect("WAL");
    wal.set_len(wal.metadata().expect("length").len() / 2).expect("cut");
    let connection = place.open("a.db");
    is_sound(&connection);
    assert_eq!(count(&connection), ROWS);
}

#[test]
fn canary_a_log_on_the_standard_numbers_is_found() {
    own_process!(silent);
    assert!(!run_program(&Place::new(false), true).success());
}
