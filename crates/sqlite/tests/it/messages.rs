//! What a program is told: functions on every connection, and the reason of an error where SQLite
//! only says that it cannot open a database file. In a program of its own: it loads the extension
//! as others do.

#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

use crate::common;

use std::sync::Once;

use common::{Place, count, library};
use rusqlite::{Connection, LoadExtensionGuard};

/// Loads the library, once, through a connection that is closed again.
fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let connection = Connection::open_in_memory().expect("memory");
        let entry = Some("sqlite3_onejournal_init");
        unsafe {
            let _enabled = LoadExtensionGuard::new(&connection).expect("enabled");
            connection.load_extension(library(), entry).expect("loaded");
        }
    });
}

fn text(connection: &Connection, function: &str) -> Option<String> {
    let sql = format!("SELECT {function}()");
    connection.query_row(&sql, [], |row| row.get(0)).expect(function)
}

fn last_error() -> Option<String> {
    text(&Connection::open_in_memory().expect("memory"), "onejournal_last_error")
}

/// What is in the database's directory, but for the database.
fn beside(place: &Place) -> Vec<std::ffi::OsString> {
    let found = std::fs::read_dir(&place.root).expect("directory");
    let names = found.map(|entry| entry.expect("entry").file_name());
    names.filter(|name| name != "a.db").collect()
}

/// It is not opened, the reason is known, and nothing is made beside it.
fn refused(place: &Place, more: &str, why: &str) {
    let before = beside(place);
    let error = place.try_open("a.db", more).expect_err(more);
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
    let told = last_error().expect("told why");
    assert!(told.contains(why), "{told}");
    assert_eq!(beside(place), before);
}

#[test]
fn every_connection_has_the_functions() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    for connection in [Connection::open_in_memory().expect("memory"), place.wal("a.db")] {
        assert_eq!(
            text(&connection, "onejournal_version").as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        assert!(text(&connection, "onejournal_stat").expect("JSON").contains("\"commits\":"));
    }
}

/// A program that does not know whether another part of it has loaded the extension loads it again.
#[test]
fn regression_the_extension_can_be_loaded_again_by_a_statement() {
    onejournal_testing::own_process!();
    load();
    for _ in 0..2 {
        let connection = Connection::open_in_memory().expect("memory");
        let path = library().display().to_string();
        for _ in 0..2 {
            let _enabled = unsafe { LoadExtensionGuard::new(&connection).expect("enabled") };
            let sql = "SELECT load_extension(?1, 'sqlite3_onejournal_init')";
            connection.query_row(sql, [&path], |_| Ok(())).expect("loaded again");
        }
        assert!(text(&connection, "onejournal_stat").is_some());
    }
}

#[test]
fn errors_in_a_uri_are_explained() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let root = place.root.display();
    refused(&place, "&lgo=/tmp", "parameter lgo is not known");
    refused(&place, &format!("&log={root}/no/such/log"), &format!("no directory {root}/no/such"));
    let nvram = format!("nvram={root}/none");
    refused(&place, &format!("&{nvram}"), &format!("{nvram}: there is no directory"));
    refused(&place, "&recover=please", "recover=please is not known");
    refused(&place, "&durability=process", "durability=process without an NVRAM directory");
    // A database that opens makes it forgotten, and so does one that the extension has no part in.
    assert_eq!(count(&place.wal("a.db")), 0);
    assert_eq!(last_error(), None);
    refused(&place, "&durability=maybe", "durability=maybe is not known");
    assert!(Connection::open("/nonexistent/a.db").is_err());
    place.try_open("none/a.db", "").expect_err("no directory");
    assert_eq!(last_error(), None);
}

/// Ordinary memory is durable in name only, which has to be asked for.
#[test]
fn a_log_on_nvram_that_is_none_leaves_nothing() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let nvram = place.memory.join("nvram");
    let connection = place.try_open("a.db", &format!("&nvram={}", nvram.display())).expect("open");
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").expect_err("no NVRAM");
    let told = text(&connection, "onejournal_last_error").expect("told why");
    assert!(told.contains(&nvram.display().to_string()), "{told}");
    drop(connection);
    assert!(!place.path(".onejournal").exists());
    assert_eq!(std::fs::read_dir(&nvram).expect("directory").count(), 0);
    // Asked for as it should be, it works.
    let more = format!("&nvram={}&durability=process", nvram.display());
    let connection = place.try_open("a.db", &more).expect("open");
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").expect("written");
}
