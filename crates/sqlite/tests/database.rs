//! The extension as a program uses it, without crashes.

mod common;

use common::{Place, count, is_sound, load, stat};
use rusqlite::Connection;

#[test]
fn commits_become_records_and_the_closed_database_is_plain() {
    load();
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
