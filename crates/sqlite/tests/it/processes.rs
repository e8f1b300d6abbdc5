//! The extension in several processes, and in the distribution's own SQLite.

use crate::common;

use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use common::{Place, count, is_sound, library, load, rows_of};
use onejournal_testing::{test_name, tier};

/// What a writer does until it is killed: says which rows were committed.
#[test]
#[ignore = "a process of writers_that_are_killed"]
fn writer() {
    load();
    let place = Place::of_environment();
    let me: i64 = std::env::var("ME").expect("ME").parse().expect("number");
    // One of three has its checkpoints made by a thread.
    let more = if me % 3 == 0 { "&checkpoint=background" } else { "" };
    let connection = place.try_open("a.db", more).expect("open");
    connection
        .execute_batch("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=50")
        .expect("setup");
    let is_wal: bool = connection
        .query_row("SELECT journal_mode = 'wal' FROM pragma_journal_mode", [], |row| row.get(0))
        .expect("mode");
    for number in 0.. {
        let id = me * 1_000_000 + number;
        connection
            .execute("INSERT INTO t VALUES (?1, hex(randomblob(200)))", [id])
            .expect("insert");
        println!("row {id}");
        if !is_wal {
            // Without a WAL the first process that asks gets SQLite's lock. The pause lets the
            // others ask.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

/// A writer, and the rows that it says.
struct Writer(std::process::Child, Receiver<i64>);

impl Writer {
    fn start(place: &Place, me: i64) -> Writer {
        let mut command = onejournal_testing::again(module_path!(), "writer");
        place.tell(&mut command);
        command.env("ME", me.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("writer");
        let rows = rows_of(&mut child);
        Writer(child, rows)
    }
}

#[test]
fn writers_that_are_killed() {
    onejournal_testing::own_process!();
    load();
    for (is_nvram, mode) in [(false, "WAL"), (true, "WAL"), (false, "DELETE"), (true, "DELETE")] {
        let place = Place::new(is_nvram);
        let first = place.wal("a.db");
        let set = format!("PRAGMA journal_mode={mode}");
        first.query_row(&set, [], |row| row.get::<_, String>(0)).expect("mode");
        drop(first);
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut acknowledged = Vec::new();
        for round in 0..4 {
            let start = |n: i64| Writer::start(&place, 1 + round * 3 + n);
            let mut writers: Vec<_> = (0..3).map(start).collect();
            // Every other time at their work, however long they take to get to it.
            for writer in writers.iter().filter(|_| round % 2 == 0) {
                let first = writer.1.recv_timeout(Duration::from_secs(120));
                acknowledged.push(first.expect("a row of each"));
            }
            std::thread::sleep(Duration::from_millis(random.u64(..500)));
            for writer in &mut writers {
                writer.0.kill().expect("kill");
            }
            for mut writer in writers {
                writer.0.wait().expect("wait");
                acknowledged.extend(writer.1);
            }
            if round % 2 == 1 {
                // The shared memory of all processes is lost, as in a restart of the machine.
                place.reboot();
            }
            let connection = place.open("a.db");
            is_sound(&connection);
            let missing = acknowledged.iter().filter(|id| {
                let sql = "SELECT count(*) FROM t WHERE id = ?1";
                connection.query_row(sql, [id], |row| row.get::<_, i64>(0)).expect("row") == 0
            });
            assert_eq!(missing.count(), 0, "of {} rows, {mode}", acknowledged.len());
        }
        println!("{mode}: {} rows", acknowledged.len());
    }
}

#[test]
fn the_distributions_sqlite3_loads_it() {
    onejournal_testing::own_process!();
    if !onejournal_testing::has_program("sqlite3") {
        return;
    }
    let place = Place::new(true);
    let script = format!(
        ".load {}\n.open '{}'\nPRAGMA journal_mode=WAL;\nCREATE TABLE t(v);\n\
         PRAGMA synchronous=FULL;\n\
         INSERT INTO t VALUES (1);\nINSERT INTO t VALUES (2);\nSELECT 'sum', sum(v) FROM t;\n",
        library().display(),
        place.uri("a.db", "")
    );
    let path = place.path("script");
    std::fs::write(&path, script).expect("script");
    let input = std::fs::File::open(&path).expect("script");
    let output = Command::new("sqlite3").arg("-batch").stdin(input).output().expect("sqlite3");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("wal\n") && text.contains("sum|3"), "{text}{errors}");
    assert!(place.root.join(".onejournal").exists(), "it has a log");
    let plain = rusqlite::Connection::open(place.path("a.db")).expect("plain");
    assert_eq!(count(&plain), 2);
}
