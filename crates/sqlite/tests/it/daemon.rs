//! The extension with its log behind a daemon, which is killed and started again.

use crate::common;

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use common::{Place, count, is_sound, load, rows_of, stat, told};

/// What this program does as another process.
#[test]
#[ignore = "a process of the tests below"]
fn role() {
    let place = Place::of_environment();
    match std::env::var("ROLE").expect("ROLE").as_str() {
        "daemon" => serve(&place),
        "reader" => read(&place),
        me => write(&place, me.parse().expect("a number")),
    }
}

/// What a reader says that was told that the log is not there.
const WITHOUT_LOG: i64 = -1;

/// Says how many rows there are, until it is killed: SQLite would write when it closes.
fn read(place: &Place) {
    load();
    let connection = place.try_open("a.db", &log_of(place)).expect("open");
    let row_count = count(&connection);
    let is_told = told().iter().any(|text| text.contains("socket, which is not there"));
    println!("\nrow {}", if is_told { WITHOUT_LOG } else { row_count });
    let _ = std::io::stdin().read(&mut [0]);
}

fn serve(place: &Place) {
    let options = log::Options {
        nvram: place.is_nvram.then(|| place.memory.join("nvram")),
        durability: place.is_nvram.then_some(device::Durability::Process),
        memory: place.memory.clone(),
        ..log::Options::default()
    };
    let server = log::ServerOptions::at(place.path("socket"));
    let _server = log::Server::start(place.path("log"), &options, &server).expect("serve");
    println!("\nrow 0");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Until it is killed: says which rows were committed.
fn write(place: &Place, me: i64) {
    load();
    let connection = place.try_open("a.db", &log_of(place)).expect("open");
    let setup = "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=50";
    connection.execute_batch(setup).expect("setup");
    for id in me * 1_000_000.. {
        connection
            .execute("INSERT INTO t VALUES (?1, hex(randomblob(200)))", [id])
            .expect("insert");
        println!("\nrow {id}");
        // SQLite's lock is not fair.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn log_of(place: &Place) -> String {
    format!("&log={}", place.path("socket").display())
}

/// A process, and the rows it says.
struct Other(Child, Receiver<i64>);

impl Other {
    /// Waits for its first row.
    fn start(place: &Place, role: &str) -> Other {
        let other = Other::start_silent(place, role);
        other.next();
        other
    }

    fn start_silent(place: &Place, role: &str) -> Other {
        let mut command = onejournal_testing::again(module_path!(), "role");
        place.tell(&mut command);
        command.env("ROLE", role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let rows = rows_of(&mut child);
        Other(child, rows)
    }

    /// The next row that it says.
    fn next(&self) -> i64 {
        self.1.recv_timeout(Duration::from_secs(120)).expect("it goes on")
    }

    /// Kills it; the rows that it had said.
    fn kill(mut self) -> Vec<i64> {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
        self.1.iter().collect()
    }
}

#[test]
fn commits_go_on_when_the_daemon_is_killed_and_started_again() {
    onejournal_testing::own_process!();
    load();
    for (is_nvram, mode) in [(false, "WAL"), (true, "WAL"), (false, "DELETE"), (true, "DELETE")] {
        let place = Place::new(is_nvram);
        let mut daemon = Other::start(&place, "daemon");
        let connection = place.try_open("a.db", &log_of(&place)).expect("open");
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v)"
            ))
            .expect("table");
        let mut acknowledged = Vec::new();
        for round in 0..2 {
            let writers = [1, 2].map(|n| Other::start(&place, &format!("{}", 1 + round * 2 + n)));
            std::thread::sleep(Duration::from_millis(200));
            drop(daemon.kill());
            std::thread::sleep(Duration::from_millis(100));
            daemon = Other::start(&place, "daemon");
            // More than can have been on its way.
            for writer in &writers {
                acknowledged.extend(writer.1.try_iter());
                acknowledged.extend((0..20).map(|_| writer.next()));
            }
            for writer in writers {
                acknowledged.extend(writer.kill());
            }
            is_sound(&connection);
            let missing = acknowledged.iter().filter(|id| {
                let sql = "SELECT count(*) FROM t WHERE id = ?1";
                connection.query_row(sql, [id], |row| row.get::<_, i64>(0)).expect("row") == 0
            });
            assert_eq!(missing.count(), 0, "of {} rows, {mode}", acknowledged.len());
        }
        assert!(!place.root.join(".onejournal").exists(), "another log was made");
        drop(connection);
        let plain = rusqlite::Connection::open(place.path("a.db")).expect("plain");
        assert!(count(&plain) >= acknowledged.len() as i64);
        drop(daemon.kill());
    }
}

/// All is lost that was not synced: of the WAL all but two transactions, each with one frame.
fn lose_wal(place: &Place) {
    let wal = std::fs::File::options().write(true).open(place.path("a.db-wal"));
    wal.and_then(|wal| wal.set_len(32 + 2 * (24 + 4096))).expect("WAL");
}

#[test]
fn commits_that_only_the_daemon_has_survive_a_reboot() {
    onejournal_testing::own_process!();
    load();
    for is_nvram in [false, true] {
        let place = Place::new(is_nvram);
        let daemon = Other::start(&place, "daemon");
        let connection = place.try_open("a.db", &log_of(&place)).expect("open");
        let table = "PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
        connection.execute_batch(table).expect("table");
        drop(connection);
        let writer = Other::start(&place, "1");
        let mut acknowledged: Vec<i64> = (0..30).map(|_| writer.next()).collect();
        acknowledged.extend(writer.kill());
        let last = acknowledged[acknowledged.len() - 1];
        drop(daemon.kill());
        lose_wal(&place);
        place.reboot();
        let daemon = Other::start(&place, "daemon");
        let connection = place.try_open("a.db", &log_of(&place)).expect("open");
        is_sound(&connection);
        let sql = "SELECT max(id) FROM t";
        let found: i64 = connection.query_row(sql, [], |row| row.get(0)).expect("max");
        assert!(found >= last, "{found}, {last} was acknowledged");
        assert!(stat(&connection)["databases"].to_string().contains("socket"));
        drop(connection);
        drop(daemon.kill());
    }
}

/// A daemon that serves another log does not have the last commits.
#[test]
fn regression_another_log_at_the_same_socket_is_told() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let daemon = Other::start(&place, "daemon");
    let connection = place.try_open("a.db", &log_of(&place)).expect("open");
    let table = "PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(table).expect("table");
    drop(connection);
    let writer = Other::start(&place, "1");
    let acknowledged: Vec<i64> = (0..30).map(|_| writer.next()).collect();
    drop(writer.kill());
    drop(daemon.kill());
    lose_wal(&place);
    place.reboot();
    let (log, former) = (place.path("log"), place.path("former"));
    std::fs::rename(&log, &former).expect("moved");
    let daemon = Other::start(&place, "daemon");
    let reader = Other::start_silent(&place, "reader");
    assert_eq!(reader.next(), WITHOUT_LOG);
    drop(reader.kill());
    drop(daemon.kill());
    std::fs::remove_dir_all(&log).expect("removed");
    std::fs::rename(&former, &log).expect("moved back");
    let daemon = Other::start(&place, "daemon");
    let reader = Other::start_silent(&place, "reader");
    assert!(reader.next() >= acknowledged.len() as i64, "the rows are found again");
    drop((reader.kill(), daemon.kill()));
}

#[test]
fn a_database_is_not_opened_without_its_daemon() {
    onejournal_testing::own_process!();
    load();
    let place = Place::new(false);
    let error = place.try_open("a.db", &log_of(&place)).expect_err("no daemon");
    assert!(!place.path("socket").exists(), "{error}: no log was made instead");
    let _listener = std::os::unix::net::UnixListener::bind(place.path("other")).expect("socket");
    let other = format!("&log={}", place.path("other").display());
    place.try_open("a.db", &other).expect_err("a socket by another name");
}
