//! The example program works, and saves the syncs that its head says it saves.

#[path = "../../examples/commits.rs"]
#[allow(dead_code)]
mod commits;
use crate::common;

use rusqlite::Connection;

#[test]
fn the_example_saves_syncs_and_leaves_a_plain_database() {
    onejournal_testing::own_process!();
    let dir = tempfile::tempdir().expect("directory");
    let saved = commits::commit_rows(&common::library(), dir.path()).expect("it works");
    // The first commits make the WAL durable, and the log begins.
    assert!(saved.commits >= 98, "{} commits", saved.commits);
    assert!(saved.real_syncs < 10, "{} syncs of the WAL", saved.real_syncs);
    let plain = Connection::open(dir.path().join("app.db")).expect("open");
    let count = plain.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, u32>(0));
    assert_eq!(count.expect("count"), 100);
}
