//! Commits of a process that has no descriptor left: the log cannot get memory, and the WAL is
//! synced instead.

use std::fs::File;

use crate::common;

use common::{Place, count, is_sound, load, stat};
use onejournal_sqlite::Fault;
use rusqlite::Connection;

const ROWS: i64 = 40;

/// Commits rows that need more memory of the log than it has. Returns the first error.
fn commit_without_descriptors(connection: &Connection) -> rusqlite::Result<()> {
    let held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let done = (0..ROWS).try_for_each(|_| {
        connection.execute("INSERT INTO t(v) VALUES (randomblob(100000))", []).map(drop)
    });
    drop(held);
    done
}

#[test]
fn commits_sync_when_no_descriptor_is_free() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let connection = place.wal("a.db");
    connection.execute_batch("PRAGMA wal_autocheckpoint=0").expect("setting");
    let real_syncs = || stat(&connection)["real_syncs"].as_u64().expect("a number");
    let before = real_syncs();
    commit_without_descriptors(&connection).expect("they are synced");
    assert!(real_syncs() > before, "the log had no memory for all of them");
    assert!(common::told().iter().any(|text| text.contains("because the log fails")));
    // With descriptors, commits are records again.
    for _ in 0..2 {
        connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    }
    let synced = real_syncs();
    connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    assert_eq!(real_syncs(), synced);
    // The power fails: of the WAL all is there that was synced.
    let after = Place::new(false);
    std::fs::remove_dir_all(&after.root).expect("empty");
    common::copy_tree(&place.root, &after.root);
    std::fs::remove_file(after.path("a.db-shm")).expect("index");
    let recovered = after.open("a.db");
    assert_eq!(count(&recovered), ROWS + 3);
    is_sound(&recovered);
}

#[test]
fn canary_commits_that_fail_with_the_log_are_found_out() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let connection = place.wal("a.db");
    connection.execute_batch("PRAGMA wal_autocheckpoint=0").expect("setting");
    let done = fault::with(Fault::FailsWithLog, || commit_without_descriptors(&connection));
    done.expect_err("a commit failed");
}
