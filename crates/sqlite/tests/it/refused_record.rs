//! Transactions that the log takes no record of: SQLite's rollback journal in its place, which
//! power cuts tear, and syncs of a WAL.

use crate::common;

use std::path::Path;
use std::sync::{Arc, Mutex};

use common::crash_vfs::{self, Event, Recorder};
use common::{Place, load};
use rusqlite::{Connection, OpenFlags};

const VALUE_BYTES: usize = 600_000;

/// Mostly zeros, of which SQLite's checksum of a journal's page (every 200th byte) says little.
fn old_value() -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| if at % 97 == 0 { (at % 255) as u8 + 1 } else { 0 }).collect()
}

/// More than half of the log's pool, which takes no such record.
fn new_value(random: &mut fastrand::Rng) -> Vec<u8> {
    (0..VALUE_BYTES).map(|_| random.u8(..)).collect()
}

/// One with a log of a small pool.
fn place() -> Place {
    let place = Place::new(false);
    let options = log::Options {
        pool_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        group_bytes: 1 << 20,
        memory: place.memory.clone(),
        ..log::Options::default()
    };
    log::Log::open(place.path(".onejournal"), &options).expect("log");
    place
}

/// The databases that power cuts leave, at many moments of one large transaction; in the log is
/// nothing then.
fn cuts(mode: &str, new: &[u8], random: &mut fastrand::Rng) -> Vec<tempfile::TempDir> {
    let place = place();
    let setup = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL");
    let first = place.open("a.db");
    first.execute_batch(&format!("PRAGMA page_size=4096; {setup}")).expect("setup");
    first.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("table");
    first.execute("INSERT INTO t VALUES (1, ?1)", [old_value()]).expect("insert");
    drop(first);
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (cuts, mut random) = (cuts.clone(), random.fork());
        Box::new(move |recorder: &Recorder| {
            // Each moment of the end, where SQLite goes on to the database, and many before.
            if recorder.op_count.is_multiple_of(12) || recorder.op_count > 600 {
                let target = tempfile::tempdir_in("/dev/shm").expect("directory");
                recorder.crash(target.path(), &mut random);
                cuts.lock().expect("cuts").push(target);
            }
        })
    };
    let connection = place.open("a.db");
    connection.execute_batch(&setup).expect("setup");
    Recorder::begin(&place.root, hook);
    connection.execute("UPDATE t SET v = ?1", [new]).expect("update");
    let recorder = Recorder::end();
    let is_written = |name: &str| {
        recorder.events.iter().any(|(file, event)| file == name && *event == Event::Write)
    };
    assert!(is_written("a.db-journal") && is_written("a.db"), "no journal was written");
    drop(recorder);
    Arc::into_inner(cuts).expect("the hook is gone").into_inner().expect("cuts")
}

/// Whether a database is what it was, or what the transaction left.
fn is_whole(directory: &Path, new: &[u8]) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?vfs=crash", directory.join("a.db").display());
    let failed = |e: rusqlite::Error| e.to_string();
    let connection = Connection::open_with_flags(uri, flags).map_err(failed)?;
    let check: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(failed)?;
    let value: Vec<u8> =
        connection.query_row("SELECT v FROM t", [], |row| row.get(0)).map_err(failed)?;
    match (check == "ok", value == old_value() || value == new) {
        (true, true) => Ok(()),
        (false, _) => Err(check),
        (true, false) => Err("a value that nobody wrote".into()),
    }
}

/// How many cuts leave something else.
fn failures() -> usize {
    crash_vfs::register();
    load();
    let mut failures = 0;
    for (mode, seed) in [("DELETE", 1), ("TRUNCATE", 2), ("PERSIST", 3)] {
        let mut random = fastrand::Rng::with_seed(seed);
        let new = new_value(&mut random);
        let cuts = cuts(mode, &new, &mut random);
        assert!(cuts.len() > 20, "{} cuts", cuts.len());
        for (number, cut) in cuts.iter().enumerate() {
            if let Err(e) = is_whole(cut.path(), &new) {
                println!("{mode}, cut {number}: {e}");
                failures += 1;
            }
        }
    }
    failures
}

#[test]
fn regression_a_torn_journal_behind_a_refused_batch_is_not_rolled_back() {
    onejournal_testing::own_process!();
    assert_eq!(failures(), 0);
}

#[test]
fn regression_a_wal_transaction_that_the_pool_is_too_small_for_is_committed() {
    onejournal_testing::own_process!();
    crash_vfs::register();
    load();
    let place = place();
    let connection = place.wal("b.db");
    connection
        .execute_batch("INSERT INTO t VALUES (1, 1); INSERT INTO t VALUES (2, 1)")
        .expect("small");
    let real_syncs = || common::stat(&connection)["real_syncs"].as_u64().expect("a number");
    let before = real_syncs();
    let value = new_value(&mut fastrand::Rng::with_seed(4));
    connection.execute("INSERT INTO t VALUES (3, ?1)", [&value]).expect("large");
    assert!(real_syncs() > before, "the WAL itself is durable");
    connection.execute_batch("INSERT INTO t VALUES (4, 1)").expect("small");
    assert_eq!(common::count(&connection), 4);
}

#[test]
fn the_fault_is_found() {
    onejournal_testing::own_process!();
    let failures = fault::with(onejournal_sqlite::Fault::CountsJournalEarly, failures);
    assert!(failures > 0);
}
