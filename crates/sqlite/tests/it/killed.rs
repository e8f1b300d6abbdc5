//! A process that commits in a rollback mode is killed before each of its writes, and in the middle
//! of each page. The next process finds whole transactions, and every acknowledged one, without a
//! restart of the machine and with one.

use crate::common;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::crash_vfs::{self, Recorder};
use common::{Place, load, set, stat};
use onejournal_sqlite::background;
use onejournal_testing::{test_name, tier};
use rusqlite::Connection;

const TRANSACTIONS: i64 = 6;
const SIGKILL: i32 = 9;

unsafe extern "C" {
    fn kill(process: i32, signal: i32) -> i32;
}

/// The database before: `n` and every row of `t` are of transaction 0.
fn begin(place: &Place) -> Connection {
    let connection = place.open("a.db");
    for sql in [
        "PRAGMA page_size=512",
        "PRAGMA auto_vacuum=FULL",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n, v)",
        "CREATE TABLE meta(n)",
        "INSERT INTO meta VALUES (0)",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 12)
         INSERT INTO t SELECT x, 0, zeroblob(200) FROM c",
    ] {
        set(&connection, sql);
    }
    connection
}

/// The process that is killed before change KILL. It prints each transaction that was acknowledged.
#[test]
#[ignore = "a process of the tests below"]
fn victim() {
    crash_vfs::register();
    load();
    let place = Place::of_environment();
    let when: u64 = std::env::var("KILL").expect("KILL").parse().expect("number");
    let hook = move |recorder: &Recorder| {
        if recorder.op_count == when {
            // SAFETY: it ends this process.
            unsafe { kill(std::process::id().cast_signed(), SIGKILL) };
        }
    };
    Recorder::begin(&place.root, Box::new(hook));
    Recorder::tear(256);
    // The database is synced after some of the transactions.
    background::take_over(600, 1 << 20);
    let connection = place.open("a.db");
    for n in 1..=TRANSACTIONS {
        // Every row changes; the database grows, and gets shorter.
        let rows = match n % 3 {
            0 => "DELETE FROM t WHERE id > 8",
            _ => "INSERT INTO t SELECT NULL, n, v FROM t WHERE id < 8",
        };
        let sql = format!("BEGIN; {rows}; UPDATE t SET n = {n}; UPDATE meta SET n = {n}; COMMIT");
        connection.execute_batch(&sql).expect("transaction");
        println!("\nrow {n}");
        background::step();
    }
}

/// Whether it was killed, and how many transactions it said were committed.
fn run_victim(place: &Place, when: u64) -> (bool, i64) {
    let mut command = onejournal_testing::again(module_path!(), "victim");
    place.tell(&mut command);
    command.env("KILL", when.to_string());
    let output = command.stderr(Stdio::null()).output().expect("victim");
    let is_killed = output.status.signal() == Some(SIGKILL);
    assert!(is_killed || output.status.success(), "{:?}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().filter_map(|line| line.strip_prefix("row ")?.parse().ok()).max();
    (is_killed, said.unwrap_or(0))
}

/// What is wrong with the database, `said` transactions of which were acknowledged.
fn look(connection: &Connection, said: i64) -> Result<(), String> {
    let ask = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).map_err(|e| e.to_string())
    };
    let n: i64 = ask("SELECT CAST(n AS TEXT) FROM meta")?.parse().expect("number");
    let rows = ask("SELECT count(*) || ' ' || min(n) || ' ' || max(n) FROM t")?;
    let check = ask("PRAGMA integrity_check")?;
    let is_whole = rows.ends_with(&format!(" {n} {n}"));
    match check == "ok" && is_whole && (said..=said + 1).contains(&n) {
        true => Ok(()),
        false => Err(format!("{check}; transaction {n}, rows {rows}; {said} were acknowledged")),
    }
}

/// A place in memory: a killed process needs no disk.
fn quick_place(is_nvram: bool) -> Place {
    let mut place = Place::new(is_nvram);
    let root = tempfile::tempdir_in("/dev/shm").expect("directory");
    place.root = root.path().to_owned();
    place.kept.push(root);
    place
}

/// Kills before each change that `is_taken` takes; how often a transaction had to be finished.
fn enumerate(is_taken: impl Fn(u64) -> bool) -> Result<u64, String> {
    load();
    let mut finished = 0;
    for when in (1..).filter(|when| is_taken(*when)) {
        let is_rebooted = when % 3 == 0;
        let place = quick_place(when % 2 == 0);
        let witness = begin(&place);
        // Either it is open all the time, or comes later.
        let witness = (!is_rebooted).then_some(witness);
        let (is_killed, said) = run_victim(&place, when);
        if is_rebooted {
            place.reboot();
        }
        let connection = witness.unwrap_or_else(|| place.open("a.db"));
        let before = stat(&connection)["recoveries"].as_u64();
        look(&connection, said).map_err(|e| format!("killed before change {when}: {e}"))?;
        let after = stat(&connection)["recoveries"].as_u64();
        finished += u64::from(before != after && !is_rebooted);
        set(&connection, "INSERT INTO t(id, n) VALUES (1000, 0)");
        set(&connection, "DELETE FROM t WHERE id = 1000");
        drop(connection);
        let plain = Connection::open(place.path("a.db")).expect("plain");
        look(&plain, said).map_err(|e| format!("killed before change {when}, closed: {e}"))?;
        if !is_killed {
            assert_eq!(said, TRANSACTIONS);
            break;
        }
    }
    Ok(finished)
}

#[test]
fn whole_transactions_are_found() {
    onejournal_testing::own_process!();
    for seed in tier::seeds_of_states(test_name!(), 1) {
        let is_taken = |when| tier::takes(seed, when as usize);
        let finished = enumerate(is_taken).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("{finished} transactions were finished by another process");
        assert!(finished > tier::state_count(20) as u64, "{finished}");
    }
}

#[test]
fn the_fault_is_found() {
    onejournal_testing::own_process!();
    let found = fault::with(onejournal_sqlite::Fault::SkipsReplay, || enumerate(|_| true));
    println!("{found:?}");
    assert!(found.is_err());
}
