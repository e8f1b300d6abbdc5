//! Syncs of a database after its commits: when they happen, and what is left when one fails.

use crate::common;

use std::sync::{Arc, Mutex};

use common::crash_vfs::{self, Recorder};
use common::load;
use common::world::{World, cut};
use common::{Place, count, is_sound, stat};
use onejournal_sqlite::background;
use rusqlite::Connection;

const SYNC_BYTES: u64 = 5_000;
const PERIOD_BYTES_MAX: u64 = 100_000;

/// What happens is recorded for the process.
fn set_up() {
    crash_vfs::register();
    load();
    background::take_over(SYNC_BYTES, PERIOD_BYTES_MAX);
}

const TABLE: &str = "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)";

fn insert(connection: &Connection, count: usize) -> rusqlite::Result<()> {
    for _ in 0..count {
        connection.execute("INSERT INTO t(v) VALUES (randomblob(1000))", [])?;
    }
    Ok(())
}

fn syncs(connection: &Connection) -> [u64; 2] {
    let found = stat(connection);
    ["database_syncs", "background_syncs"].map(|name| found[name].as_u64().expect(name))
}

/// Whose sync fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fails {
    /// A sync in the background; no commit waits for it.
    Behind,
    /// That of a commit, when the log is long.
    Overdue,
    /// That before a journal.
    Journal,
    /// That before a WAL.
    Wal,
    /// That of the last connection, when it is closed.
    Close,
}

const ALL: [Fails; 5] = [Fails::Behind, Fails::Overdue, Fails::Journal, Fails::Wal, Fails::Close];

/// How many cuts after a failed sync leave something that was acknowledged out.
fn losses(fails: Fails) -> usize {
    let world = World::new(true);
    let open = || world.try_open("onejournal").expect("open");
    let mut connection = open();
    connection.execute_batch(TABLE).expect("table");
    let (cuts, rows) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let hook = {
        let (home, cuts, rows) = (world.home.path().to_owned(), cuts.clone(), rows.clone());
        let mut random = fastrand::Rng::with_seed(5);
        Box::new(move |recorder: &Recorder| {
            let acknowledged = *rows.lock().expect("rows");
            let left = cut(&home, true, recorder, &mut random);
            cuts.lock().expect("cuts").push((acknowledged, left));
        })
    };
    if fails != Fails::Behind {
        background::take_over(u64::MAX, u64::MAX);
    }
    Recorder::begin(&world.data(), hook);
    let work = |connection: &Connection, count| {
        for _ in 0..count {
            insert(connection, 1)?;
            *rows.lock().expect("rows") += 1;
        }
        Ok::<(), rusqlite::Error>(())
    };
    work(&connection, 8).expect("before");
    Recorder::fail(&world.data().join("a.db"));
    let told = match fails {
        Fails::Behind => {
            background::step();
            work(&connection, 2).expect("meanwhile");
            background::step();
            work(&connection, 1)
        }
        Fails::Overdue => {
            background::take_over(u64::MAX, 5_000);
            work(&connection, 1)
        }
        Fails::Journal => {
            connection.execute_batch("PRAGMA synchronous=OFF").expect("level");
            let told = work(&connection, 1);
            connection.execute_batch("PRAGMA synchronous=FULL").expect("level");
            told
        }
        Fails::Wal => {
            let told = connection.execute_batch("PRAGMA journal_mode=WAL; SELECT * FROM t");
            connection.execute_batch("PRAGMA journal_mode=DELETE").expect("mode");
            told
        }
        Fails::Close => {
            drop(connection);
            connection = open();
            Ok(())
        }
    };
    background::take_over(SYNC_BYTES, PERIOD_BYTES_MAX);
    if !fault::is_any() && fails != Fails::Close {
        let told = told.expect_err("the sync's error").to_string();
        assert!(told.contains("disk I/O error"), "{told}");
    }
    // From here on what the disk lacks is written again.
    work(&connection, 8).expect("behind");
    background::step();
    background::step();
    work(&connection, 3).expect("behind a sync");
    drop(connection);
    assert!(!Recorder::end().is_failing(), "no sync failed");
    let cuts = std::mem::take(&mut *cuts.lock().expect("cuts"));
    assert!(cuts.len() > 20, "{} cuts", cuts.len());
    let mut losses = 0;
    for (number, (acknowledged, home)) in cuts.into_iter().enumerate() {
        let world = World { home, is_nvram: true };
        let found = world.try_open("onejournal").and_then(|connection| {
            let check: String = connection.query_row("PRAGMA integrity_check", [], |r| r.get(0))?;
            let rows: i64 = connection.query_row("SELECT count(*) FROM t", [], |r| r.get(0))?;
            Ok(check == "ok" && (acknowledged..=acknowledged + 1).contains(&rows))
        });
        if !matches!(found, Ok(true)) {
            println!("{fails:?}, cut {number}: {found:?}");
            losses += 1;
        }
    }
    losses
}

#[test]
fn a_failed_sync_is_told_and_nothing_is_lost() {
    onejournal_testing::own_process!();
    set_up();
    let losses = ALL.map(|fails| (fails, losses(fails)));
    assert!(losses.iter().all(|(_, count)| *count == 0), "{losses:?}");
}

#[test]
fn the_faults_are_found() {
    onejournal_testing::own_process!();
    use onejournal_sqlite::Fault;
    set_up();
    for fails in ALL {
        let found = fault::with(Fault::IgnoresSyncError, || losses(fails));
        assert!(found > 0, "{fails:?}");
    }
}

/// The log's pages cannot be written over what others wrote.
#[test]
fn a_failed_sync_behind_the_writes_of_others_is_refused() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = place.open("a.db");
    connection.execute_batch(TABLE).expect("table");
    insert(&connection, 2).expect("before");
    insert(&Connection::open(place.path("a.db")).expect("plain"), 1).expect("others");
    Recorder::begin(&place.root, Box::new(|_| {}));
    Recorder::fail(&place.path("a.db"));
    for _ in 0..3 {
        insert(&connection, 1).expect_err("the database may lack something");
    }
    Recorder::end();
    drop(connection);
    let found =
        place.open("a.db").query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    assert!(found.is_err_and(|e| e.to_string().contains("unable to open")));
    let again = place.try_open("a.db", "&recover=discard").expect("open");
    assert_eq!(count(&again), 3);
    insert(&again, 1).expect("again");
    is_sound(&again);
}

/// With `locking_mode=EXCLUSIVE` no connection locks the database again, so none replays, and every
/// write fails.
#[test]
fn a_failed_sync_stops_a_connection_that_keeps_its_lock() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = place.open("a.db");
    connection.execute_batch(TABLE).expect("table");
    connection.execute_batch("PRAGMA locking_mode=EXCLUSIVE").expect("mode");
    Recorder::begin(&place.root, Box::new(|_| {}));
    insert(&connection, 8).expect("before");
    Recorder::fail(&place.path("a.db"));
    background::step();
    background::step();
    for _ in 0..3 {
        insert(&connection, 1).expect_err("the database may lack something");
    }
    Recorder::end();
    drop(connection);
    let again = place.open("a.db");
    assert_eq!(count(&again), 8);
    insert(&again, 1).expect("behind replay");
    is_sound(&again);
}

#[test]
fn committers_wait_for_a_sync_only_when_the_log_is_long() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = place.open("a.db");
    connection.execute_batch(TABLE).expect("table");
    insert(&connection, 1).expect("a period");
    let before = syncs(&connection);
    for _ in 0..100 {
        insert(&connection, 1).expect("insert");
        background::step();
    }
    let after = syncs(&connection);
    assert_eq!(after[0], before[0], "nobody waited");
    assert!(after[1] - before[1] > 10, "{before:?}, {after:?}");
    // A job that has begun does not go on.
    insert(&connection, 150).expect("insert");
    let late = syncs(&connection);
    assert!((1..=3).contains(&(late[0] - after[0])), "{after:?}, {late:?}");
    drop(connection);
    let plain = Connection::open(place.path("a.db")).expect("plain");
    assert_eq!(count(&plain), 251);
    is_sound(&plain);
}
