//! A database that gets another owner, and a database of a user that root opens in between: it
//! works for its owner, with its log and all rows, or an error says what to do, and that helps.
//!
//! It takes root, who can act as other users.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{is_root, lose_memory};
use rusqlite::Connection;

use crate::common::actor::{act, give, permit, public_place, said};
use crate::common::{Place, count, is_sound, load, stat};

const ROOT: u32 = 0;
/// The user of the service.
const SERVICE: u32 = 65_533;
/// A user without a part in it.
const NOBODY: u32 = 65_534;
const ROWS: i64 = 10;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    /// It leaves its WAL, and the shared memory of the log.
    Kill,
}

/// What a process found.
#[derive(Debug)]
struct Found {
    /// The rows that were there.
    rows: Option<i64>,
    /// Commits that were records.
    commits: i64,
    /// All that it said.
    said: String,
}

/// One process of a database: says how many rows it has, commits more, and ends.
#[test]
#[ignore = "a process of the tests below"]
fn user_of_a_database() {
    load();
    let place = Place::of_environment();
    let parameters = std::env::var("PARAMETERS").unwrap_or_default();
    let connection = match place.try_open("a.db", &parameters) {
        Ok(connection) => connection,
        Err(e) => return println!("\nnot opened: {e}"),
    };
    let table = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
                 CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
    if let Err(e) = connection.execute_batch(table) {
        return println!("\nnot written: {e}");
    }
    let rows = count(&connection);
    for _ in 0..ROWS {
        connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    }
    is_sound(&connection);
    println!("\nrows {rows}\ncommits {}", stat(&connection)["commits"]);
    if std::env::var("END").expect("END") == "Kill" {
        // Nothing is closed.
        std::process::exit(0);
    }
}

fn run(place: &Place, uid: u32, end: End, parameters: &str) -> Found {
    let more = [("END", &*format!("{end:?}")), ("PARAMETERS", parameters)];
    let said = said(&act(place, uid, "owners::user_of_a_database", &more));
    let number = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    let (rows, commits) = (number("rows "), number("commits ").unwrap_or(0));
    Found { rows, commits, said }
}

/// It has so many rows, and the next commits are records.
fn works(place: &Place, uid: u32, end: End, parameters: &str, rows: i64) {
    let found = run(place, uid, end, parameters);
    assert!(found.rows == Some(rows) && found.commits > 0, "{rows} rows: {}", found.said);
}

/// All files of the place belong to this user.
fn all_belong_to(directory: &Path, uid: u32) {
    for entry in std::fs::read_dir(directory).expect("directory") {
        let path = entry.expect("entry").path();
        let found = path.symlink_metadata().expect("there");
        assert_eq!((found.uid(), found.gid()), (uid, uid), "{}", path.display());
        if found.is_dir() {
            all_belong_to(&path, uid);
        }
    }
}

/// The log beside the database, and one in another directory.
fn logs(place: &Place) -> [String; 2] {
    [String::new(), format!("&log={}", place.path("log").display())]
}

/// The command of a migration was run by root, then everything was given to the service.
#[test]
fn a_database_that_root_made_is_its_new_owners() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    for end in [End::Close, End::Kill] {
        for log in [0, 1] {
            let place = public_place();
            let log = &logs(&place)[log];
            works(&place, ROOT, end, log, 0);
            give(&place.root, SERVICE);
            works(&place, SERVICE, end, log, ROWS);
            // What the service committed does not depend on memory that is root's.
            lose_memory(&place.memory);
            works(&place, ROOT, end, log, 2 * ROWS);
            works(&place, SERVICE, end, log, 3 * ROWS);
            all_belong_to(&place.root, SERVICE);
            // And back.
            give(&place.root, ROOT);
            works(&place, ROOT, end, log, 4 * ROWS);
            works(&place, ROOT, end, log, 5 * ROWS);
        }
    }
}

#[test]
fn memory_of_another_user_is_left_alone() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    let content = |directory: &Path| {
        let entries = std::fs::read_dir(directory).expect("directory").flatten();
        let mut files: Vec<_> =
            entries.map(|it| (it.file_name(), std::fs::read(it.path()).expect("file"))).collect();
        files.sort();
        files
    };
    let place = public_place();
    works(&place, ROOT, End::Kill, "", 0);
    let memory = |place: &Place| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&place.memory).expect("memory").flatten();
        let is_ours = |path: &PathBuf| !path.ends_with("nvram");
        entries.map(|entry| entry.path()).filter(is_ours).collect()
    };
    let [old] = &memory(&place)[..] else { panic!("one directory") };
    give(old, NOBODY);
    let before = content(old);
    works(&place, ROOT, End::Kill, "", ROWS);
    assert_eq!(content(old), before);
    assert_eq!(memory(&place).len(), 2, "and a new one");
}

/// Root has the database open while it is given away, and after that.
#[test]
fn root_and_the_new_owner_use_a_database_together() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = public_place();
    let connection = place.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES (1)").expect("insert");
    give(&place.root, SERVICE);
    // It cannot see what root's process has in its memory.
    let refused = run(&place, SERVICE, End::Close, "");
    let is_told = ["a process uses it with the shared memory /", " of user 0: end that process"];
    let is_told = is_told.into_iter().all(|text| refused.said.contains(text));
    assert!(refused.rows.is_none() && is_told, "{}", refused.said);
    drop(connection);
    works(&place, SERVICE, End::Close, "", 1);
    // Root's memory that was left is no memory of the owner's log, for root either.
    give(&place.root, ROOT);
    works(&place, ROOT, End::Kill, "", 1 + ROWS);
    give(&place.root, SERVICE);
    let connection = place.open("a.db");
    works(&place, SERVICE, End::Kill, "", 1 + 2 * ROWS);
    connection.execute_batch("INSERT INTO t(v) VALUES (1)").expect("insert");
    assert_eq!(count(&connection), 2 + 3 * ROWS);
}

/// Does what the errors say until the database works. Returns how many there were.
fn do_what_is_said(place: &Place, parameters: &str, rows: i64) -> usize {
    for nth in 0..8 {
        let found = run(place, SERVICE, End::Close, parameters);
        if found.rows == Some(rows) && found.commits > 0 {
            return nth;
        }
        let (_, command) = found.said.split_once("run as root: ").expect(&found.said);
        let command = command.lines().next().expect("a command");
        assert!(command.starts_with("chown -R 65533:65533 /"), "{command}");
        let mut shell = Command::new("sh");
        let done = shell.args(["-ec", command]).status().expect("sh");
        assert!(done.success(), "{command}");
    }
    panic!("it does not help");
}

#[test]
fn advice_about_another_users_files_helps() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    let give_one = |path: PathBuf| {
        if path.exists() {
            std::os::unix::fs::chown(path, Some(SERVICE), Some(SERVICE)).expect("given");
        }
    };
    // SQLite itself names its own files.
    let database = ["a.db", "a.db-wal", "a.db-shm"];
    let beside = [".onejournal", ".onejournal/lock", ".onejournal/service.json"];
    for end in [End::Close, End::Kill] {
        // The database alone, and parts of its log.
        for parts in 0..=beside.len() {
            let place = public_place();
            works(&place, ROOT, end, "", 0);
            database.iter().chain(&beside[..parts]).for_each(|name| give_one(place.path(name)));
            assert_eq!(do_what_is_said(&place, "", ROWS), 1, "{parts} parts");
        }
        // A log elsewhere.
        let place = public_place();
        let log = &logs(&place)[1];
        works(&place, ROOT, end, log, 0);
        database.iter().for_each(|name| give_one(place.path(name)));
        assert_eq!(do_what_is_said(&place, log, ROWS), 1);
        // And its directory on NVRAM.
        let place = Place { is_nvram: true, ..public_place() };
        permit(&place.memory.join("nvram"), 0o1777);
        works(&place, ROOT, end, "", 0);
        give(&place.root, SERVICE);
        assert_eq!(do_what_is_said(&place, "", ROWS), 1);
    }
}

/// The database's attribute names a log that its user may not read, and the user names none.
#[test]
fn a_log_that_is_another_users_is_not_said_to_be_gone() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    let place = public_place();
    works(&place, ROOT, End::Close, &logs(&place)[1], 0);
    give(&place.path("a.db"), SERVICE);
    let found = run(&place, SERVICE, End::Close, "");
    assert_eq!((found.rows, found.commits), (Some(ROWS), 0), "{}", found.said);
    let log = place.path("log").display().to_string();
    assert!(found.said.contains(&format!("{log}, which this user may not read")), "{}", found.said);
}

/// A directory above the log keeps the user out.
#[test]
fn a_closed_directory_above_the_log_is_named() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    let place = public_place();
    std::fs::create_dir(place.path("private")).expect("directory");
    permit(&place.path("private"), 0o700);
    let log = format!("&log={}", place.path("private/log").display());
    let found = run(&place, SERVICE, End::Close, &log);
    let private = place.path("private").display().to_string();
    let why = format!("{private} belongs to user 0, who keeps user 65533 out");
    assert!(found.rows.is_none() && found.said.contains(&why), "{}", found.said);
}

#[test]
fn files_that_root_makes_meanwhile_are_the_owners() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    for end in [End::Close, End::Kill] {
        for log in [0, 1] {
            let place = public_place();
            let new = place.memory.join("new");
            std::fs::create_dir(&new).expect("directory");
            give(&new, SERVICE);
            let place = Place { memory: new.join("a/b"), ..place };
            let log = &logs(&place)[log];
            Connection::open(place.path("a.db")).expect("plain").execute_batch("VACUUM").expect("");
            give(&place.root, SERVICE);
            // Root's process makes the log, its memory and the directory of that.
            works(&place, ROOT, end, log, 0);
            all_belong_to(&place.root, SERVICE);
            all_belong_to(&new, SERVICE);
            works(&place, SERVICE, end, log, ROWS);
            works(&place, ROOT, end, log, 2 * ROWS);
            all_belong_to(&place.root, SERVICE);
            works(&place, SERVICE, end, log, 3 * ROWS);
        }
    }
}

/// The log was moved, and a link leads to it now, which is not followed. It is not taken for a log
/// that was removed.
#[test]
fn regression_a_log_behind_a_link_is_refused_and_not_given_up() {
    load();
    let place = Place::new(false);
    let connection = place.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('logged')").expect("logged");
    drop(connection);
    let (log, moved) = (place.path(".onejournal"), place.path("moved"));
    std::fs::rename(&log, &moved).expect("moved");
    std::os::unix::fs::symlink(&moved, &log).expect("linked");
    let write = |connection: rusqlite::Connection| {
        connection.execute_batch("INSERT INTO t(v) VALUES ('lost')")
    };
    place.try_open("a.db", "").and_then(write).expect_err("a link");
    std::fs::remove_file(&log).expect("removed");
    std::fs::rename(&moved, &log).expect("moved back");
    assert_eq!(count(&place.open("a.db")), 1);
}
