//! WAL mode: moments at which the power or a sync fails, each of which once lost or refused something.

#![allow(missing_docs)]
#![cfg(not(feature = "canary"))]

mod common;

use std::sync::{Mutex, MutexGuard};

use common::crash_vfs::{self, Recorder};
use common::load;
use common::world::{World, cut_wal};
use rusqlite::Connection;

/// What happens is recorded for the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    crash_vfs::register();
    load();
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn open(world: &World, page_bytes: usize) -> Connection {
    let connection = world.try_open("onejournal").expect("open");
    let setup = format!(
        "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;
         PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;
         CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)"
    );
    connection.execute_batch(&setup).expect("setup");
    connection
}

/// Puts a row there: `bytes` of which the last is `last`, the others are those of the row.
fn put(connection: &Connection, id: i64, bytes: usize, last: u8) -> rusqlite::Result<()> {
    let mut random = fastrand::Rng::with_seed(id as u64);
    let mut value: Vec<u8> = (1..bytes).map(|_| random.u8(..)).collect();
    value.push(last);
    connection.execute("REPLACE INTO t VALUES (?1, ?2)", (id, value)).map(|_| ())
}

type Rows = Vec<(i64, Vec<u8>)>;

fn rows(connection: &Connection) -> Rows {
    let mut statement = connection.prepare("SELECT id, v FROM t ORDER BY id").expect("select");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

/// Busy, frames of the WAL, and how many of them are in the database.
fn checkpoint(connection: &Connection, how: &str) -> rusqlite::Result<[i64; 3]> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    connection.query_row(&sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
}

/// The rows that are there after a cut.
fn recovered(home: tempfile::TempDir) -> Result<Rows, String> {
    let world = World { home, is_nvram: true };
    let connection = world.try_open("onejournal").map_err(|e| e.to_string())?;
    let check: Result<String, _> =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    match check {
        Ok(check) if check == "ok" => Ok(rows(&connection)),
        wrong => Err(format!("{wrong:?}")),
    }
}

#[test]
fn regression_the_database_shrinks_and_grows_again_in_one_generation() {
    let _alone = alone();
    let world = World::new(true);
    let (first, second) = (open(&world, 4096), open(&world, 4096));
    for id in 0..20 {
        put(&first, id, 3000, 1).expect("put");
    }
    checkpoint(&first, "RESTART").expect("checkpoint");
    put(&first, 0, 3000, 2).expect("a generation begins");
    Recorder::begin(&world.data(), Box::new(|_| {}));
    for id in 10..20 {
        put(&first, id, 3000, 3).expect("put");
    }
    let size = || std::fs::metadata(world.data().join("a.db")).expect("database").len();
    let before = size();
    first.execute_batch("DELETE FROM t WHERE id >= 10; PRAGMA incremental_vacuum").expect("less");
    second.execute_batch("BEGIN; SELECT * FROM t").expect("a mark");
    let [_, frames, home] = checkpoint(&first, "PASSIVE").expect("checkpoint");
    assert!(frames == home && size() < before, "{frames} frames, {home} home, {} bytes", size());
    for id in 10..20 {
        put(&second, id, 3000, 4).expect("put");
    }
    second.execute_batch("COMMIT").expect("the database grows");
    let wanted = rows(&second);
    let recorder = Recorder::end();
    let found = recovered(cut_wal(world.home.path(), true, &recorder));
    assert!(found.expect("recovered") == wanted);
}
