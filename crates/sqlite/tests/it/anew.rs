//! A database that was deleted and made again is another file: it can be opened and written, and
//! what the log held of the old one stays in its stream, which is named.

use crate::common;

use common::crash_vfs::{self, Recorder};
use common::{Place, copy_tree, count, is_sound, load};
use rusqlite::Connection;

/// How many records the streams of files of this name hold, the largest number first.
fn kept(place: &Place) -> Vec<usize> {
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(place.path(".onejournal"), &options).expect("log");
    let names = log.stream_names().expect("names");
    let names = names.iter().filter(|name| name.as_str().starts_with("db-a.db-"));
    let counts = names.filter(|name| !name.as_str().ends_with(".doubt")).map(|name| {
        let stream = log.stream(name.as_str()).expect("stream");
        let records = stream.read_from(stream.head()).expect("reader");
        records.collect::<Result<Vec<_>, _>>().expect("records").len()
    });
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_by_key(|count| std::cmp::Reverse(*count));
    counts
}

fn was_told(place: &Place, what: &str) -> bool {
    let about = place.root.display().to_string();
    let told = common::told();
    told.iter().any(|text| text.contains(&about) && text.contains(what))
}

/// The new database is one like any other.
fn check_new(place: &Place, old: usize, may_restart: bool) {
    let connection = place.open("a.db");
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t(v) VALUES ('new')";
    connection.execute_batch(sql).expect("written");
    assert_eq!(count(&connection), 1);
    drop(connection);
    assert!(was_told(place, "commits of another file of this name"));
    for _ in 0..2 {
        assert_eq!(count(&place.open("a.db")), 1);
        let kept = kept(place);
        assert!(kept.len() == 2 && kept[0] == old && kept[1] < old, "{kept:?}");
        if may_restart {
            place.reboot();
        }
    }
    is_sound(&place.open("a.db"));
}

fn remove(place: &Place, names: &[&str]) {
    for name in names {
        if let Err(e) = std::fs::remove_file(place.path(name)) {
            assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{name}");
        }
    }
}

const ALL: [&str; 4] = ["a.db", "a.db-journal", "a.db-wal", "a.db-shm"];

/// One after the other: what happens is recorded for the process.
#[test]
fn a_deleted_database_comes_back_as_a_new_one() {
    onejournal_testing::own_process!();
    crash_vfs::register();
    load();
    for is_restarted in [false, true] {
        after_a_failed_closing_sync(is_restarted);
    }
    for left in [&[][..], &["a.db-wal"], &["a.db-wal", "a.db-shm"]] {
        after_a_crash_in_wal_mode(left);
    }
    for mode in ["delete", "wal"] {
        after_a_killed_process(mode);
    }
}

fn after_a_failed_closing_sync(is_restarted: bool) {
    let place = Place::new(false);
    let connection = place.open("a.db");
    let table = "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(table).expect("table");
    for _ in 0..3 {
        connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    }
    Recorder::begin(&place.root, Box::new(|_| {}));
    Recorder::fail(&place.path("a.db"));
    drop(connection);
    assert!(!Recorder::end().is_failing(), "the closing sync failed");
    // Where it is still there, it is mended.
    let copy = Place::new(false);
    std::fs::remove_dir_all(&copy.root).expect("empty");
    copy_tree(&place.root, &copy.root);
    assert_eq!(count(&copy.open("a.db")), 3);
    remove(&place, &ALL);
    if is_restarted {
        place.reboot();
    }
    // The period's beginning, and three transactions.
    check_new(&place, 4, true);
}

/// Files that were not deleted with the database do not bring it back.
fn after_a_crash_in_wal_mode(left: &[&str]) {
    let before = Place::new(false);
    let connection = before.wal("a.db");
    connection
        .execute_batch("INSERT INTO t(v) VALUES (1); INSERT INTO t(v) VALUES (2)")
        .expect("rows");
    let after = Place::new(false);
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&before.root, &after.root);
    drop(connection);
    remove(&after, &ALL.into_iter().filter(|name| !left.contains(name)).collect::<Vec<_>>());
    if left.is_empty() {
        // Who only looks changes nothing. (SQLite removes the WAL of an empty database.)
        let plain = Connection::open(after.path("a.db")).expect("made anew by somebody else");
        plain.execute_batch("PRAGMA user_version").expect("empty");
    }
    check_new(&after, 4, true);
}

/// The machine runs on, and knows what the process had done.
fn after_a_killed_process(mode: &str) {
    let place = Place::new(false);
    let connection = place.wal("a.db");
    connection.query_row(&format!("PRAGMA journal_mode={mode}"), [], |_| Ok(())).expect("mode");
    for number in 0..2 {
        connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
    }
    // Closes nothing.
    std::mem::forget(connection);
    remove(&place, &ALL);
    // WAL mode: the generation's beginning, the table, two rows. Rollback mode: the generation's
    // end, the period's beginning, two rows.
    check_new(&place, 4, false);
}
