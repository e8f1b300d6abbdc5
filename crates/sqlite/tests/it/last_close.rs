//! The last connection of the last process leaves nothing in shared memory, even if another process
//! opens the database at that moment. In a program of its own: it starts others.

use crate::common;

use common::{Place, count, is_sound, load};
use onejournal_testing::{test_name, tier};

const PROCESSES: usize = 4;

/// What is in the place's memory.
fn left(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(&place.memory).expect("memory");
    let names =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "nvram").collect()
}

#[test]
fn the_last_connection_leaves_nothing_in_memory() {
    onejournal_testing::own_process!();
    load();
    for is_nvram in [false, true] {
        let place = Place::new(is_nvram);
        let (one, other) = (place.wal("a.db"), place.wal("b.db"));
        one.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
        other.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
        assert_eq!(left(&place).len(), 1);
        drop(one);
        assert_eq!(left(&place).len(), 1, "b.db uses the log");
        other.execute("INSERT INTO t(v) VALUES (2)", []).expect("insert");
        drop(other);
        assert_eq!(left(&place), [""; 0], "is_nvram {is_nvram}");
        for (name, rows) in [("a.db", 1), ("b.db", 2)] {
            let connection = place.open(name);
            assert_eq!(count(&connection), rows);
            connection.execute("INSERT INTO t(v) VALUES (3)", []).expect("insert");
            drop(connection);
            assert_eq!(left(&place).len(), 1, "opened again and again, it lingers");
        }
    }
}

/// A process of the test below, with two threads that have the database open now and then.
#[test]
#[ignore = "a process of the test below"]
fn opens_and_closes() {
    load();
    let place = Place::of_environment();
    let seed = std::env::var("OPENER").expect("a number").parse::<u64>().expect("a number");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let place = &place;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 2 + thread);
                // One of the two has its checkpoints made by a thread, after each transaction.
                let more = ["", "&checkpoint=background"][usize::from(thread == 1)];
                for _ in 0..tier::count(25) {
                    let connection = place.try_open("a.db", more).expect("open");
                    let setup = "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=1";
                    connection.execute_batch(setup).expect("setup");
                    for _ in 0..random.usize(1..3) {
                        let sql = "INSERT INTO t(v) VALUES (hex(randomblob(100)))";
                        connection.execute(sql, []).expect("insert");
                        println!("\ninserted");
                    }
                }
            });
        }
    });
}

#[test]
fn a_process_that_opens_during_the_last_close_finds_everything() {
    onejournal_testing::own_process!();
    load();
    let seed = tier::seed_of(test_name!()) >> 32;
    for (mode, is_nvram) in [("wal", false), ("wal", true), ("delete", false)] {
        let place = Place::new(is_nvram);
        let connection = place.wal("a.db");
        connection.query_row(&format!("PRAGMA journal_mode={mode}"), [], |_| Ok(())).expect("mode");
        drop(connection);
        let start = |number: usize| {
            let mut command = onejournal_testing::again(module_path!(), "opens_and_closes");
            place.tell(&mut command);
            command.env("OPENER", (seed + number as u64).to_string());
            command.stdout(std::process::Stdio::piped()).spawn().expect("start")
        };
        let children: Vec<_> = (0..PROCESSES).map(start).collect();
        let mut rows = 0;
        for child in children {
            let output = child.wait_with_output().expect("wait");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}");
            rows += said.lines().filter(|line| *line == "inserted").count();
        }
        assert_eq!(left(&place), [""; 0], "{mode} {is_nvram}");
        let connection = place.open("a.db");
        assert_eq!(count(&connection), rows as i64, "{mode} {is_nvram}");
        is_sound(&connection);
    }
}
