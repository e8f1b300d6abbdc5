//! A program that opens the database for each request, commits once and closes it makes no more
//! syncs than without the extension, and nothing of it goes to the log.

use crate::common;

use common::crash_vfs::Recorder;
use common::{Place, set_up, stat};
use rusqlite::{Connection, OpenFlags};

const REQUESTS: u64 = 10;

fn request(connection: Connection) -> u64 {
    connection.execute_batch("PRAGMA synchronous=FULL").expect("setting");
    connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    let told = stat(&connection);
    // Without the extension there is no log.
    told["databases"][0]["log"]["group_commit_count"].as_u64().unwrap_or(0)
}

/// Syncs of files and of the log in so many requests, after the first ones.
fn syncs(place: &Place, open: impl Fn() -> Connection) -> (u64, u64) {
    for _ in 0..2 {
        request(open());
    }
    let before = request(open());
    Recorder::begin(&place.root, Box::new(|_| {}));
    let after = (0..REQUESTS).map(|_| request(open())).last().expect("some");
    (Recorder::end().sync_count, after - before)
}

#[test]
fn a_connection_for_each_request_costs_no_more_syncs_than_without_the_extension() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    for name in ["a.db", "b.db"] {
        drop(place.wal(name));
    }
    let plain = || {
        let path = format!("file:{}?vfs=crash", place.path("b.db").display());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(path, flags).expect("open")
    };
    let without = syncs(&place, plain);
    let with = syncs(&place, || place.open("a.db"));
    assert!(without.0 >= 3 * REQUESTS && without.1 == 0, "{without:?}");
    assert!(with.0 <= without.0 && with.1 == 0, "{with:?}, without {without:?}");
}
