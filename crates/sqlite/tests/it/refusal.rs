//! A database or WAL that was changed after a crash without the extension is refused, and not a
//! byte of it is overwritten.

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Place, copy_tree, count, is_sound, load};
use rusqlite::Connection;

const FRAME_BYTES: usize = 4096 + 24;

/// A database after a power cut: one old transaction in the database, ten more that were synced, of
/// whose frames the WAL on the disk has only so many.
fn crashed(frames: usize) -> Place {
    load();
    let (before, after) = (Place::new(false), Place::new(false));
    let connection = before.wal("a.db");
    connection
        .execute_batch(
            "CREATE TABLE u(v); INSERT INTO u VALUES ('old'); INSERT INTO t(v) VALUES ('old');
             PRAGMA wal_checkpoint(RESTART)",
        )
        .expect("old");
    std::fs::copy(before.path("a.db"), before.path("old.db")).expect("a copy");
    // With another generation the database differs from the copy.
    connection
        .execute_batch("UPDATE u SET v = 'older'; PRAGMA wal_checkpoint(RESTART)")
        .expect("older");
    for number in 0..10 {
        let sql = "INSERT INTO t(v) VALUES (?1 || hex(randomblob(900)))";
        connection.execute(sql, [number]).expect("insert");
    }
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&before.root, &after.root);
    std::fs::remove_file(after.path("a.db-shm")).expect("shared memory");
    let mut wal = std::fs::read(after.path("a.db-wal")).expect("WAL");
    assert!(wal.len() > 32 + 12 * FRAME_BYTES, "{} bytes", wal.len());
    wal[32 + frames * FRAME_BYTES..].fill(0);
    std::fs::write(after.path("a.db-wal"), wal).expect("WAL");
    after
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_file() && !path.to_string_lossy().ends_with("-shm") {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path).expect("read"));
        }
    }
    files
}

/// Opening is refused, twice, and nothing changes; with `recover=discard` the database is as it is.
fn refused(place: &Place, why: &str) {
    let before = files(&place.root);
    for _ in 0..2 {
        let error = place.try_open("a.db", "").expect_err("refused");
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
        let path = place.path("a.db").display().to_string();
        let told = common::told();
        let last = told.iter().rfind(|text| text.contains(&path)).expect("told why");
        assert!(last.contains(why) && last.contains("recover=discard"), "{last}");
    }
    assert!(files(&place.root) == before, "something was overwritten");
    let connection = place.try_open("a.db", "&recover=discard").expect("discarded");
    is_sound(&connection);
    drop(connection);
    place.reboot();
    is_sound(&place.open("a.db"));
}

#[test]
fn without_changes_everything_is_recovered() {
    onejournal_testing::own_process!();
    for frames in 0..12 {
        let place = crashed(frames);
        let connection = place.open("a.db");
        assert_eq!(count(&connection), 11, "{frames} frames were there");
        is_sound(&connection);
        drop(connection);
        place.reboot();
        assert_eq!(count(&place.open("a.db")), 11);
    }
}

#[test]
fn a_record_that_is_none_of_the_extension() {
    onejournal_testing::own_process!();
    let place = crashed(3);
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(place.path(".onejournal"), &options).expect("log");
    let stream = common::stream_of(&log, "a.db");
    let end = stream.append(b"somebody else's record").expect("append");
    stream.sync(end).expect("sync");
    drop(stream);
    log.close().expect("closed");
    refused(&place, "a record of the log");
}

/// Without the frames that were synced, the database is not as it was at any moment.
#[test]
fn a_wal_that_is_gone_or_empty() {
    onejournal_testing::own_process!();
    for is_empty in [false, true] {
        let place = crashed(3);
        // An older database than the log knows.
        std::fs::copy(place.path("old.db"), place.path("a.db")).expect("an older one");
        match is_empty {
            true => std::fs::write(place.path("a.db-wal"), []).expect("write"),
            false => std::fs::remove_file(place.path("a.db-wal")).expect("remove"),
        }
        refused(&place, "gone or empty");
    }
}

#[test]
fn a_database_that_was_used_and_closed() {
    onejournal_testing::own_process!();
    // Also a row of the length of the logged ones, whose bytes the log would write over.
    for (frames, row) in [(3, "'foreign'"), (0, "'f' || hex(randomblob(900))"), (2, "'0'")] {
        let place = crashed(frames);
        let plain = Connection::open(place.path("a.db")).expect("plain");
        plain.execute_batch(&format!("INSERT INTO t(v) VALUES ({row})")).expect("insert");
        drop(plain);
        refused(&place, "its pages are of no moment in the log");
    }
}

/// A backup job, a shell: it opens the database after the power cut, copies what the WAL has, and
/// removes the WAL. Nothing of what the log has is lost.
#[test]
fn a_reader_without_the_extension_loses_nothing() {
    onejournal_testing::own_process!();
    for frames in 0..12 {
        let place = crashed(frames);
        let plain = Connection::open(place.path("a.db")).expect("plain");
        assert!(count(&plain) <= 11);
        drop(plain);
        assert!(!place.path("a.db-wal").exists());
        let connection = place.open("a.db");
        assert_eq!(count(&connection), 11, "{frames} frames were there");
        is_sound(&connection);
        drop(connection);
        place.reboot();
        assert_eq!(count(&place.open("a.db")), 11);
    }
}

/// The same with a WAL that was made anew, of which the first transactions are in no record.
#[test]
fn a_reader_before_the_first_checkpoint_loses_nothing() {
    onejournal_testing::own_process!();
    load();
    for frames in [0, 2, 5] {
        let (before, after) = (Place::new(false), Place::new(false));
        let connection = before.wal("a.db");
        let durable = usize::try_from(before.wal_bytes("a.db")).expect("small");
        for number in 0..10 {
            connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
        }
        std::fs::remove_dir_all(&after.root).expect("empty");
        copy_tree(&before.root, &after.root);
        std::fs::remove_file(after.path("a.db-shm")).expect("shared memory");
        let mut wal = std::fs::read(after.path("a.db-wal")).expect("WAL");
        wal[durable + frames * FRAME_BYTES..].fill(0);
        std::fs::write(after.path("a.db-wal"), wal).expect("WAL");
        let plain = Connection::open(after.path("a.db")).expect("plain");
        assert!(count(&plain) <= 10);
        drop(plain);
        let connection = after.open("a.db");
        assert_eq!(count(&connection), 10, "{frames} frames were there");
        is_sound(&connection);
    }
}

/// A program without the extension wrote to the WAL, and was killed: its connection is never
/// closed.
fn used(place: &Place, sql: &str) {
    let connection = Connection::open(place.path("a.db")).expect("plain");
    connection.execute_batch(sql).expect("used");
    let copy = Place::new(false);
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(place.path(name), copy.path(name)).expect("copy");
    }
    drop(connection);
    for name in ["a.db", "a.db-wal"] {
        std::fs::copy(copy.path(name), place.path(name)).expect("copy");
    }
}

#[test]
fn a_wal_that_went_on_otherwise() {
    onejournal_testing::own_process!();
    let place = crashed(4);
    used(&place, "INSERT INTO t(v) VALUES ('foreign')");
    refused(&place, "of its WAL differs from the logged frame");
}

#[test]
fn a_wal_that_began_again() {
    onejournal_testing::own_process!();
    let place = crashed(4);
    let sql = "PRAGMA wal_checkpoint(RESTART); INSERT INTO t(v) VALUES ('foreign')";
    used(&place, sql);
    refused(&place, "generation that is not in the log");
}

/// After a power cut, the disk shows the WAL as it was before its last restart, which was never
/// synced: ten transactions are in the log only.
fn crashed_with_the_earlier_generation() -> Place {
    load();
    let (before, after) = (Place::new(false), Place::new(false));
    let connection = before.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('old')").expect("old");
    let earlier = std::fs::read(before.path("a.db-wal")).expect("WAL");
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").expect("restart");
    for number in 0..10 {
        connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
    }
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&before.root, &after.root);
    std::fs::remove_file(after.path("a.db-shm")).expect("shared memory");
    let now = std::fs::read(after.path("a.db-wal")).expect("WAL");
    assert!(now[16..24] != earlier[16..24], "another generation");
    std::fs::write(after.path("a.db-wal"), earlier).expect("write");
    after
}

#[test]
fn an_earlier_generation_is_known() {
    onejournal_testing::own_process!();
    let place = crashed_with_the_earlier_generation();
    let connection = place.open("a.db");
    assert_eq!(count(&connection), 11);
    is_sound(&connection);
}

/// A checkpoint that a reader holds up writes to the database and does not sync it: what counts as
/// known about the database when the WAL becomes durable itself may not be on the disk.
#[test]
fn regression_a_checkpoint_in_part_before_the_wal_is_durable() {
    onejournal_testing::own_process!();
    load();
    let (before, after) = (Place::new(false), Place::new(false));
    let connection = before.wal("a.db");
    let insert = |connection: &Connection| {
        let sql = "INSERT INTO t(v) VALUES (hex(randomblob(900)))";
        for _ in 0..5 {
            connection.execute(sql, []).expect("insert");
        }
    };
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").expect("restart");
    let database = std::fs::read(before.path("a.db")).expect("database");
    // A connection counts its changes from what it read first.
    insert(&before.open("a.db"));
    let reader = before.open("a.db");
    reader.execute_batch("BEGIN; SELECT * FROM t").expect("reader");
    // Not of page 1, which would not be checkpointed then.
    connection.execute_batch("UPDATE t SET v = 1 WHERE id = 1").expect("update");
    connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").expect("checkpoint");
    let now = std::fs::read(before.path("a.db")).expect("database");
    assert!(database[24..28] != now[24..28], "page 1 was checkpointed");
    insert(&Connection::open(before.path("a.db")).expect("plain"));
    insert(&connection);
    let wal = std::fs::read(before.path("a.db-wal")).expect("WAL");
    insert(&connection);
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&before.root, &after.root);
    std::fs::remove_file(after.path("a.db-shm")).expect("shared memory");
    std::fs::write(after.path("a.db"), database).expect("write");
    std::fs::write(after.path("a.db-wal"), wal).expect("write");
    let recovered = after.open("a.db");
    assert_eq!(count(&recovered), 20);
    is_sound(&recovered);
}

#[test]
fn an_earlier_generation_that_went_on() {
    onejournal_testing::own_process!();
    let place = crashed_with_the_earlier_generation();
    used(&place, "INSERT INTO t(v) VALUES ('foreign')");
    refused(&place, "earlier generation, and frames were added");
}

#[test]
fn a_wal_without_a_valid_header() {
    onejournal_testing::own_process!();
    let place = crashed(4);
    let mut wal = std::fs::read(place.path("a.db-wal")).expect("WAL");
    wal[16] ^= 1;
    std::fs::write(place.path("a.db-wal"), wal).expect("write");
    // SQLite takes none of its frames, so the database is as it was before the generation.
    let connection = place.open("a.db");
    assert_eq!(count(&connection), 11);
    is_sound(&connection);
}

/// A database in a rollback mode after a power cut: ten transactions are in the log, and the disk
/// has the file as it was before them.
fn crashed_without_a_journal() -> Place {
    load();
    let (before, after) = (Place::new(false), Place::new(false));
    let connection = before.open("a.db");
    connection
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES ('old')")
        .expect("old");
    let earlier = std::fs::read(before.path("a.db")).expect("database");
    for number in 0..10 {
        let sql = "INSERT INTO t(v) VALUES (?1 || hex(randomblob(900)))";
        connection.execute(sql, [number]).expect("insert");
    }
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&before.root, &after.root);
    std::fs::write(after.path("a.db"), earlier).expect("write");
    after
}

#[test]
fn without_changes_all_transactions_are_replayed() {
    onejournal_testing::own_process!();
    let place = crashed_without_a_journal();
    let connection = place.open("a.db");
    assert_eq!(count(&connection), 11);
    is_sound(&connection);
    drop(connection);
    place.reboot();
    assert_eq!(count(&place.open("a.db")), 11);
    assert_eq!(count(&Connection::open(place.path("a.db")).expect("plain")), 11);
}

#[test]
fn a_database_in_a_rollback_mode_that_was_used() {
    onejournal_testing::own_process!();
    // As many transactions as the log has, and more.
    for (count, why) in [(5, "differs from every version in the log"), (11, "change counter")] {
        let place = crashed_without_a_journal();
        let plain = Connection::open(place.path("a.db")).expect("plain");
        for _ in 0..count {
            plain.execute("INSERT INTO t(v) VALUES (hex(randomblob(950)))", []).expect("insert");
        }
        drop(plain);
        refused(&place, why);
    }
}

#[test]
fn a_database_in_a_rollback_mode_with_other_pages() {
    onejournal_testing::own_process!();
    let place = crashed_without_a_journal();
    let plain = Connection::open(place.path("a.db")).expect("plain");
    plain.execute_batch("PRAGMA page_size=1024; VACUUM").expect("vacuum");
    drop(plain);
    refused(&place, "page size");
}

#[test]
fn no_database_in_its_place() {
    onejournal_testing::own_process!();
    let place = crashed_without_a_journal();
    // An empty file would be a new database (`anew.rs`).
    let garbage = b"nothing of a database".repeat(300);
    std::fs::write(place.path("a.db"), &garbage).expect("write");
    for _ in 0..2 {
        let error = place.try_open("a.db", "").expect_err("refused");
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
        assert_eq!(std::fs::read(place.path("a.db")).expect("read"), garbage);
    }
    let path = place.path("a.db").display().to_string();
    let told = common::told();
    let last = told.iter().rfind(|text| text.contains(&path)).expect("told why");
    assert!(last.contains("no database") && last.contains("recover=discard"), "{last}");
}

#[test]
fn a_database_that_was_replaced() {
    onejournal_testing::own_process!();
    let place = crashed(4);
    let other = Connection::open(place.path("other.db")).expect("other");
    other
        .execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v); PRAGMA user_version=7")
        .expect("other");
    for number in 0..50 {
        other.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
    }
    drop(other);
    std::fs::rename(place.path("other.db"), place.path("a.db")).expect("rename");
    refused(&place, "change counter");
}

#[test]
fn a_page_of_the_database_that_was_changed() {
    onejournal_testing::own_process!();
    let place = crashed(0);
    let mut database = std::fs::read(place.path("a.db")).expect("database");
    // Free space of the table's page, which the first logged delta builds upon.
    database[4096 + 2000] ^= 1;
    std::fs::write(place.path("a.db"), &database).expect("write");
    let before = files(&place.root);
    let error = place.try_open("a.db", "").map(|connection| count(&connection));
    match error {
        Err(e) => assert_eq!(e.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen)),
        // The changed byte is where a logged run puts its own bytes.
        Ok(found) => return assert_eq!(found, 11),
    }
    assert!(files(&place.root) == before, "something was overwritten");
}

#[test]
fn read_only_opening_is_refused_until_a_writer_has_recovered() {
    onejournal_testing::own_process!();
    let place = crashed(4);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let error = Connection::open_with_flags(place.uri("a.db", ""), flags).expect_err("refused");
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
    assert_eq!(count(&place.open("a.db")), 11);
    let connection = Connection::open_with_flags(place.uri("a.db", ""), flags).expect("recovered");
    assert_eq!(count(&connection), 11);
    let place = crashed_without_a_journal();
    Connection::open_with_flags(place.uri("a.db", ""), flags).expect_err("refused too");
    assert_eq!(count(&place.open("a.db")), 11);
}
