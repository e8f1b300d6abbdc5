//! The shared memory of a log is removed while programs commit: each later commit succeeds, most of
//! them without a sync of the WAL, and none is lost.

use std::process::Stdio;
use std::time::Duration;

use onejournal_testing::own_process;
use rusqlite::Connection;

use crate::common::{Place, count, is_sound, load, rows_of, set, stat};

const ROWS: i64 = 400;

fn remove_memory(place: &Place) {
    onejournal_testing::lose_memory(&place.memory);
}

fn insert(connection: &Connection, id: i64) {
    let sql = "INSERT INTO t VALUES (?1, hex(randomblob(500)))";
    connection.execute(sql, [id]).expect("a commit");
}

fn real_syncs(connection: &Connection) -> u64 {
    stat(connection)["real_syncs"].as_u64().expect("a number")
}

/// The WAL loses what was not synced: here, half of its bytes.
fn lose_wal(place: &Place) {
    let wal = std::fs::OpenOptions::new().write(true).open(place.path("a.db-wal")).expect("WAL");
    wal.set_len(wal.metadata().expect("length").len() / 2).expect("cut");
}

/// Commits to two databases while the memory is removed, and ends without closing anything.
#[test]
#[ignore = "a process of the test below"]
fn program() {
    load();
    let place = Place::of_environment();
    let connection = place.wal("a.db");
    let mut rows = 0;
    let mut syncs = 0;
    for round in 0..4 {
        if round > 0 {
            remove_memory(&place);
            syncs = real_syncs(&connection);
        }
        for _ in 0..ROWS / 4 {
            insert(&connection, rows);
            rows += 1;
        }
    }
    // The log knows the WAL as before.
    assert_eq!(real_syncs(&connection), syncs);
    // Another connection, and a database that is new to the log.
    assert_eq!(count(&place.open("a.db")), rows);
    remove_memory(&place);
    insert(&place.wal("b.db"), 0);
    insert(&connection, rows);
    std::process::exit(0);
}

#[test]
fn commits_go_on_in_new_memory() {
    own_process!();
    load();
    let place = Place::new(false);
    let mut command = onejournal_testing::again(module_path!(), "program");
    place.tell(&mut command);
    assert!(command.status().expect("a process").success());
    place.reboot();
    lose_wal(&place);
    let connection = place.open("a.db");
    is_sound(&connection);
    assert_eq!(count(&connection), ROWS + 1);
}

#[test]
fn transactions_of_rollback_modes_go_on_in_new_memory() {
    own_process!();
    load();
    let place = Place::new(false);
    let open = |name: &str| {
        let connection = place.open(name);
        set(&connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
        connection
    };
    let connection = open("a.db");
    let transactions = || stat(&connection)["transactions"].as_u64().expect("a number");
    for id in 0..50 {
        let before = transactions();
        if id % 10 == 5 {
            remove_memory(&place);
            insert(&open(&format!("{id}.db")), 0);
        }
        insert(&connection, id);
        // Each of them is a record still.
        assert!(transactions() > before + u64::from(id % 10 == 5), "row {id}");
    }
    drop(connection);
    let plain = Connection::open(place.path("a.db")).expect("plain");
    is_sound(&plain);
    assert_eq!(count(&plain), 50);
}

/// Commits rows until it is killed.
#[test]
#[ignore = "a process of the test below"]
fn writer() {
    load();
    let place = Place::of_environment();
    let first: i64 = std::env::var("FIRST").expect("FIRST").parse().expect("a number");
    let connection = place.wal("a.db");
    for id in first.. {
        insert(&connection, id);
        println!("\nrow {id}");
        // SQLite's lock is not fair.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processes_go_on_in_new_memory() {
    own_process!();
    load();
    let place = Place::new(false);
    drop(place.wal("a.db"));
    let mut writers: Vec<_> = [1_000_000, 2_000_000]
        .map(|first: i64| {
            let mut command = onejournal_testing::again(module_path!(), "writer");
            place.tell(&mut command);
            command.env("FIRST", first.to_string()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a process");
            let rows = rows_of(&mut child);
            (child, rows, first)
        })
        .into();
    for round in 0..6 {
        for (_, rows, last) in &mut writers {
            for _ in 0..20 {
                *last = rows.recv().expect("it goes on");
            }
        }
        remove_memory(&place);
        // One that opens the database for each transaction.
        insert(&place.open("a.db"), round);
    }
    for (child, rows, last) in &mut writers {
        child.kill().and_then(|()| child.wait()).expect("ours");
        *last = rows.iter().last().unwrap_or(*last);
    }
    place.reboot();
    let connection = place.open("a.db");
    is_sound(&connection);
    for (_, _, last) in &writers {
        let sql = "SELECT count(*) FROM t WHERE id BETWEEN ?1 / 1000000 * 1000000 AND ?1";
        let found: i64 = connection.query_row(sql, [last], |row| row.get(0)).expect("count");
        assert_eq!(found, last % 1_000_000 + 1);
    }
}
