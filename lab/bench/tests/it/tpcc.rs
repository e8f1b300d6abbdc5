//! TPC-C on SQLite: the loaded rows, the state after a run, also after a killed one, and that the
//! check finds errors.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

fn tpcc(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onejournal-bench"));
    command.arg("tpcc").args(arguments);
    command
}

/// The output of a command that must succeed.
#[track_caller]
fn output(arguments: &[&str]) -> String {
    let output = tpcc(arguments).output().unwrap();
    let failed = format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{failed}");
    String::from_utf8(output.stdout).unwrap()
}

/// A small database of two warehouses, in a directory of its own.
struct Database {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Database {
    #[track_caller]
    fn load() -> Database {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tpcc.db");
        let database = Database { _dir: dir, path };
        output(&["load", database.text(), "--warehouses", "2", "--scale", "small"]);
        database
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn open(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    #[track_caller]
    fn number(&self, query: &str) -> i64 {
        self.open().query_row(query, (), |row| row.get(0)).unwrap()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Value {
        let printed = output(&[&["run", self.text()], arguments].concat());
        serde_json::from_str(&printed).unwrap()
    }

    #[track_caller]
    fn check(&self) {
        output(&["check", "--integrity", self.text()]);
    }

    /// The conditions that the check reports as violated.
    fn violated(&self) -> Vec<u64> {
        let output = tpcc(&["check", self.text()]).output().unwrap();
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let conditions = printed["conditions"].as_array().unwrap();
        let violated: Vec<u64> = conditions
            .iter()
            .filter(|condition| condition["violation_count"].as_u64().unwrap() > 0)
            .map(|condition| condition["condition"].as_u64().unwrap())
            .collect();
        assert_eq!(output.status.success(), violated.is_empty());
        violated
    }
}

#[test]
fn a_loaded_database_has_the_cardinalities() {
    let database = Database::load();
    for (table, count) in [
        ("warehouse", 2),
        ("district", 20),
        ("customer", 6_000),
        ("history", 6_000),
        ("orders", 6_000),
        ("new_order", 1_800),
        ("item", 10_000),
        ("stock", 20_000),
    ] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM {table}")), count, "{table}");
    }
    let lines = database.number("SELECT count(*) FROM order_line");
    assert!((58_000..62_000).contains(&lines), "{lines}");
    let names = "SELECT count(*) FROM (SELECT DISTINCT c_w_id, c_d_id, c_last FROM customer)";
    assert_eq!(database.number(names), 2_000);
    let bad_credit = database.number("SELECT count(*) FROM customer WHERE c_credit = 'BC'");
    assert!((500..700).contains(&bad_credit), "{bad_credit}");
    let once = "SELECT count(*) FROM (SELECT DISTINCT o_w_id, o_d_id, o_c_id FROM orders)";
    assert_eq!(database.number(once), 6_000);
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE o_carrier_id IS NULL"), 1_800);
    database.check();
}

#[test]
fn a_run_does_the_mix_and_leaves_the_database_consistent() {
    for mode in ["WAL", "PERSIST", "DELETE"] {
        let database = Database::load();
        let next = "SELECT sum(d_next_o_id) FROM district";
        let orders = database.number(next);
        let payments = database.number("SELECT count(*) FROM history");
        let report = database.run(&["--journal-mode", mode, "--transactions", "1000"]);
        let latencies = report["latencies"].as_array().unwrap();
        let counts: Vec<u64> =
            latencies.iter().map(|profile| profile["count"].as_u64().unwrap()).collect();
        let rollbacks = report["rollbacks"].as_u64().unwrap();
        assert_eq!(counts[0] + rollbacks, 450);
        assert_eq!(counts[1..], [430, 40, 40, 40]);
        assert!(rollbacks > 0 && rollbacks < 20, "{rollbacks}");
        let seconds = report["seconds"].as_f64().unwrap();
        let us = |profile: &Value, name: &str| profile[name].as_f64().unwrap();
        let sum_us: f64 =
            latencies.iter().map(|each| us(each, "mean_us") * us(each, "count")).sum();
        assert!(sum_us < seconds * 1e6, "{sum_us} of {seconds} s");
        for each in latencies {
            let ascending = ["p50_us", "p90_us", "p99_us", "max_us"].map(|name| us(each, name));
            assert!(ascending.is_sorted() && ascending[0] > 1.0, "{ascending:?}");
        }
        assert_eq!(report["busy_errors"], 0);
        assert_eq!(report["skipped_deliveries"], 0);
        assert_eq!(report["journal_mode"], mode);
        let per_minute = counts[0] as f64 * 60.0 / seconds;
        assert!((report["tpmC"].as_f64().unwrap() - per_minute).abs() < 1e-3);
        assert_eq!(database.number(next) - orders, i64::try_from(counts[0]).unwrap());
        assert_eq!(database.number("SELECT count(*) FROM history") - payments, 430);
        assert_eq!(database.number("SELECT sum(c_delivery_cnt) FROM customer"), 400);
        assert!(database.number("SELECT sum(s_remote_cnt) FROM stock") > 0);
        database.check();
    }
}

#[test]
fn turns_are_read_from_standard_input() {
    let database = Database::load();
    let mut client = tpcc(&["run", database.text(), "--turns"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut client.stdin.take().unwrap(), b"30\n70\n").unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("ready"));
    let counts: Vec<u64> = lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["transactions"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [30, 70]);
    database.check();
}

#[test]
fn the_same_seed_asks_for_the_same() {
    let databases = [Database::load(), Database::load(), Database::load()];
    let sums = [("1", 0), ("1", 1), ("2", 2)].map(|(seed, which)| {
        let database = &databases[which];
        database.run(&["--seed", seed, "--transactions", "200"]);
        database.number("SELECT sum(h_amount) FROM history")
    });
    assert_eq!(sums[0], sums[1]);
    assert_ne!(sums[0], sums[2]);
}

#[test]
fn commands_that_cannot_run_are_refused_with_a_reason() {
    let database = Database::load();
    for (arguments, message) in [
        (vec!["load", database.text()], "is there already"),
        (vec!["run", database.text()], "required"),
        (vec!["run", database.text(), "--seconds", "1", "--journal-mode", "paper"], "journal mode"),
        (vec!["run", database.text(), "--seconds", "1", "--synchronous", "soon"], "synchronous is"),
        (vec!["run", database.text(), "--seconds", "1", "--query", "vfs=none"], "no such vfs"),
        (vec!["check", "/dev/null"], "not a loaded TPC-C database"),
        (vec!["run", "/dev/null/none", "--seconds", "1"], "Not a directory"),
    ] {
        let output = tpcc(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(message), "{arguments:?}: {said}");
    }
}

/// A running client. It is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn len(path: &Path) -> u64 {
    path.metadata().map_or(0, |data| data.len())
}

/// Waits until the client has done some work: the database is longer than before, or its WAL is
/// long.
fn wait_for_work(database: &Database, loaded_len: u64) {
    let wal = database.path.with_extension("db-wal");
    let deadline = Instant::now() + Duration::from_secs(300);
    while len(&database.path) == loaded_len && len(&wal) < 1 << 20 {
        assert!(Instant::now() < deadline, "the client does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_run_leaves_the_database_consistent() {
    for mode in ["WAL", "PERSIST", "DELETE"] {
        let database = Database::load();
        for kill in 0..4 {
            let loaded_len = len(&database.path);
            let (seed, path) = (kill.to_string(), database.text());
            let arguments =
                ["run", path, "--journal-mode", mode, "--seconds", "600", "--seed", &seed];
            let running = Running(tpcc(&arguments).stdout(Stdio::null()).spawn().unwrap());
            wait_for_work(&database, loaded_len);
            drop(running);
            database.check();
        }
    }
}

/// Canary: each condition must find the row that violates it.
#[test]
fn the_check_sees_what_is_wrong() {
    let database = Database::load();
    database.run(&["--transactions", "300"]);
    assert_eq!(database.violated(), [0; 0]);
    let line = "ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 1";
    let waiting =
        "no_w_id = 1 AND no_d_id = 1 AND no_o_id = (SELECT max(no_o_id) - 5 FROM new_order
                   WHERE no_w_id = 1 AND no_d_id = 1)";
    let order = "o_w_id = 1 AND o_d_id = 1 AND o_id = 1";
    let customer = "c_w_id = 1 AND c_d_id = 1 AND c_id = 1";
    for (wrong, expected) in [
        ("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2".to_owned(), &[1, 8][..]),
        ("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 2 AND d_id = 3".to_owned(), &[1, 9]),
        ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3".to_owned(), &[2]),
        (format!("DELETE FROM new_order WHERE {waiting}"), &[3, 5, 11]),
        (format!("DELETE FROM order_line WHERE {line}"), &[4, 6]),
        (format!("UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE {order}"), &[4, 6]),
        (format!("UPDATE orders SET o_carrier_id = NULL WHERE {order}"), &[5, 7]),
        (format!("UPDATE order_line SET ol_delivery_d = NULL WHERE {line}"), &[7]),
        (format!("UPDATE order_line SET ol_amount = 7 WHERE {line}"), &[10, 12]),
        ("DELETE FROM history WHERE rowid = 77".to_owned(), &[8, 9, 10]),
        (format!("UPDATE customer SET c_balance = c_balance + 1 WHERE {customer}"), &[10, 12]),
        (format!("UPDATE customer SET c_ytd_payment = 0 WHERE {customer}"), &[12]),
        (format!("UPDATE customer SET c_delivery_cnt = 77 WHERE {customer}"), &[11]),
    ] {
        let copy = Database { _dir: tempfile::tempdir().unwrap(), path: PathBuf::new() };
        let copy = Database { path: copy._dir.path().join("copy.db"), ..copy };
        std::fs::copy(&database.path, &copy.path).unwrap();
        assert_eq!(copy.open().execute(&wrong, ()).unwrap().min(1), 1, "{wrong}");
        assert_eq!(copy.violated(), expected, "{wrong}");
    }
}
