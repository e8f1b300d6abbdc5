//! Transactions of the rollback modes as a program sees them, without crashes: what is written and
//! synced, and that the database is what it would be without the extension.

use crate::common;

use common::crash_vfs::{Event, Recorder};
use common::{Place, copy_tree, count, is_sound, set, set_up, stat};
use onejournal_testing::{test_name, tier};
use rusqlite::{Connection, ffi};

/// A database in a rollback mode with a table.
fn rollback(place: &Place, name: &str, mode: &str) -> Connection {
    let connection = place.open(name);
    set(&connection, &format!("PRAGMA journal_mode={mode}"));
    set(&connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    connection
}

/// The number of rows, as SQLite without the extension finds them in a sound database.
fn plain_count(place: &Place, name: &str) -> i64 {
    let plain = Connection::open(place.path(name)).expect("plain");
    is_sound(&plain);
    count(&plain)
}

/// What `f` does to the files.
fn events(place: &Place, f: impl FnOnce()) -> Vec<(String, Event)> {
    Recorder::begin(&place.root, Box::new(|_| {}));
    f();
    Recorder::end().events
}

fn number(connection: &Connection, name: &str) -> u64 {
    stat(connection)[name].as_u64().expect(name)
}

fn records(connection: &Connection, place: &Place) -> u64 {
    let path = place.path("a.db").display().to_string();
    let found = stat(connection);
    let databases = found["databases"].as_array().expect("list");
    let mine = databases.iter().find(|database| database["path"] == *path).expect("mine");
    mine["stream"]["record_count"].as_u64().expect("count")
}

fn insert(connection: &Connection, count: usize) {
    for number in 0..count {
        connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
    }
}

#[test]
fn a_transaction_is_one_record_and_there_is_no_journal() {
    onejournal_testing::own_process!();
    set_up();
    let modes = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY"];
    let cases =
        modes.iter().flat_map(|mode| ["FULL", "NORMAL", "EXTRA"].map(|level| (mode, level)));
    for (mode, level) in cases {
        for locking in ["NORMAL", "EXCLUSIVE"] {
            let case = format!("{mode}, {level}, {locking}");
            let place = Place::new(false);
            let connection = rollback(&place, "a.db", mode);
            set(&connection, &format!("PRAGMA synchronous={level}"));
            set(&connection, &format!("PRAGMA locking_mode={locking}"));
            // The period begins.
            let begun = events(&place, || insert(&connection, 1));
            assert!(begun.contains(&("a.db".into(), Event::Sync)), "{case}: {begun:?}");
            let names = ["transactions", "database_syncs"];
            let before = names.map(|name| number(&connection, name));
            let before_records = records(&connection, &place);
            let done = events(&place, || insert(&connection, 50));
            let after = names.map(|name| number(&connection, name));
            assert_eq!((after[0] - before[0], after[1] - before[1]), (50, 0), "{case}");
            assert_eq!(records(&connection, &place) - before_records, 50, "{case}");
            let is_page =
                |(name, event): &(String, Event)| name == "a.db" && *event == Event::Write;
            assert!(done.iter().all(is_page), "{case}: {done:?}");
            drop(connection);
            assert_eq!(plain_count(&place, "a.db"), 51, "{case}");
        }
    }
}

/// Without a journal SQLite's own answer to a killed process would be a broken database.
#[test]
fn synchronous_off_has_its_journal() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = rollback(&place, "a.db", "DELETE");
    insert(&connection, 1);
    for (level, has_journal) in [("OFF", true), ("FULL", true), ("FULL", false), ("0", true)] {
        set(&connection, &format!("PRAGMA synchronous={level}"));
        let done = events(&place, || insert(&connection, 1));
        let found = done.contains(&("a.db-journal".into(), Event::Create));
        // It is believed to sync again when it has.
        assert_eq!(found, has_journal, "{level}: {done:?}");
    }
}

/// With locking_mode=EXCLUSIVE no lock is taken between the PRAGMA and the next transaction.
#[test]
fn regression_synchronous_off_under_a_kept_lock_has_its_journal() {
    onejournal_testing::own_process!();
    set_up();
    for level in ["OFF", "no", "'false'", "0", "00", "7", "8", "16", "256"] {
        let place = Place::new(false);
        let connection = rollback(&place, "a.db", "DELETE");
        set(&connection, "PRAGMA locking_mode=EXCLUSIVE");
        insert(&connection, 2);
        set(&connection, &format!("PRAGMA synchronous={level}"));
        assert_has_journal(level, &events(&place, || insert(&connection, 1)));
        drop(connection);
        assert_eq!(plain_count(&place, "a.db"), 3, "{level}");
    }
}

/// SQLite has begun with its journal in memory, and would end without one.
#[test]
fn synchronous_off_is_refused_while_a_statement_writes() {
    onejournal_testing::own_process!();
    set_up();
    for locking in ["NORMAL", "EXCLUSIVE"] {
        let place = Place::new(false);
        let connection = rollback(&place, "a.db", "DELETE");
        set(&connection, &format!("PRAGMA locking_mode={locking}"));
        insert(&connection, 2);
        let before = records(&connection, &place);
        let returning = "INSERT INTO t(v) VALUES (1), (2) RETURNING id";
        let mut statement = connection.prepare(returning).expect("statement");
        let mut rows = statement.query([]).expect("begin");
        assert!(rows.next().expect("a row").is_some());
        let refused = connection.execute_batch("PRAGMA synchronous=OFF").expect_err("it writes");
        assert!(refused.to_string().contains("inside a transaction"), "{refused}");
        while rows.next().expect("rows").is_some() {}
        assert_eq!(records(&connection, &place) - before, 1, "{locking}");
        set(&connection, "PRAGMA synchronous=OFF");
        assert_has_journal(locking, &events(&place, || insert(&connection, 1)));
    }
}

/// The journal is written before the database is.
fn assert_has_journal(case: &str, done: &[(String, Event)]) {
    let first = |name: &str| {
        let is_it = |found: &&(String, Event)| found.0 == name && found.1 == Event::Write;
        done.iter().position(|found| is_it(&found))
    };
    let (journal, database) = (first("a.db-journal"), first("a.db"));
    assert!(journal.is_some() && journal < database, "{case}: {done:?}");
}

/// SQLite refuses the PRAGMA in a transaction, and goes on to commit without a journal.
#[test]
fn synchronous_off_within_a_transaction_changes_nothing_of_it() {
    onejournal_testing::own_process!();
    set_up();
    for locking in ["NORMAL", "EXCLUSIVE"] {
        let place = Place::new(false);
        let connection = rollback(&place, "a.db", "DELETE");
        set(&connection, &format!("PRAGMA locking_mode={locking}"));
        insert(&connection, 2);
        let before = records(&connection, &place);
        connection.execute_batch("BEGIN; INSERT INTO t(v) VALUES (1)").expect("begin");
        connection.execute_batch("PRAGMA synchronous=OFF").expect_err("in a transaction");
        let done = events(&place, || set(&connection, "COMMIT"));
        assert_eq!(records(&connection, &place) - before, 1, "{locking}: {done:?}");
        assert!(done.iter().all(|(name, _)| name == "a.db"), "{locking}: {done:?}");
    }
}

/// A connection fails to write the pages of a transaction that is in the log. The next connection
/// writes them.
#[test]
fn regression_a_connection_works_again_when_another_finished_its_transaction() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let first = rollback(&place, "a.db", "DELETE");
    let second = place.open("a.db");
    insert(&first, 2);
    let value = |connection: &Connection| {
        connection.query_row("SELECT v FROM t WHERE id = 1", [], |row| row.get::<_, i64>(0))
    };
    Recorder::begin(&place.root, Box::new(|_| {}));
    Recorder::refuse(&place.path("a.db"));
    first.execute("UPDATE t SET v = 7 WHERE id = 1", []).expect_err("it is not all written");
    Recorder::end();
    assert_eq!(value(&second), Ok(7));
    assert_eq!(value(&first), Ok(7));
    insert(&first, 1);
    assert_eq!(count(&second), 3);
    is_sound(&second);
}

/// A transaction that does not go into the log has a journal. The journal is durable before the
/// database is touched, and its removal is durable, too.
#[test]
fn a_large_transaction_has_a_journal_that_is_synced() {
    onejournal_testing::own_process!();
    set_up();
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        let place = Place::new(false);
        let connection = rollback(&place, "a.db", mode);
        set(&connection, "PRAGMA cache_size=-40000");
        insert(&connection, 2);
        let done = events(&place, || {
            connection.execute("INSERT INTO t(v) VALUES (randomblob(9000000))", []).expect("large");
        });
        let at = |name: &str, event| {
            let is_it = |found: &(String, Event)| found.0 == name && found.1 == event;
            done.iter().position(is_it).unwrap_or_else(|| panic!("{name} {event:?}: {done:?}"))
        };
        let journal_synced = at("a.db-journal", Event::Sync);
        assert!(at("a.db-journal", Event::Write) < journal_synced, "{done:?}");
        assert!(journal_synced < at("a.db", Event::Write), "{done:?}");
        let last = &done[done.len() - 1];
        let is_final = matches!(last.1, Event::Sync) || mode == "PERSIST";
        assert!(is_final && last.0 == "a.db-journal", "{mode}: {last:?}");
        insert(&connection, 2);
        drop(connection);
        assert_eq!(plain_count(&place, "a.db"), 5);
    }
}

/// After 4 MiB of records the database is synced by a thread, and the log given back.
#[test]
fn the_log_is_bounded_by_background_syncs_without_waiting() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = rollback(&place, "a.db", "DELETE");
    // The period begins.
    insert(&connection, 1);
    let counts = || ["database_syncs", "background_syncs"].map(|name| number(&connection, name));
    let before = counts();
    let live = || {
        let path = place.path("a.db").display().to_string();
        let found = stat(&connection);
        let databases = found["databases"].as_array().expect("list");
        let stream = &databases.iter().find(|it| it["path"] == *path).expect("mine")["stream"];
        stream["appended"].as_u64().expect("end") - stream["head"].as_u64().expect("head")
    };
    // As long as it takes until a sync is done and a commit has given back what is before it.
    let mut most = 0;
    while live() >= most {
        most = live();
        connection.execute("INSERT INTO t(v) VALUES (randomblob(100000))", []).expect("insert");
    }
    let after = counts();
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?}, {after:?}");
    assert!((4 << 20..64 << 20).contains(&most), "{most}");
}

/// Bytes by which a database's file is to grow (`SQLITE_FCNTL_CHUNK_SIZE`).
fn set_chunk(connection: &Connection, bytes: std::ffi::c_int) {
    let mut bytes = bytes;
    let argument: *mut std::ffi::c_int = &mut bytes;
    let operation = ffi::SQLITE_FCNTL_CHUNK_SIZE;
    // SAFETY: an open connection, and the argument of this control.
    let rc = unsafe {
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), operation, argument.cast())
    };
    assert_eq!(rc, ffi::SQLITE_OK);
}

const CHUNK_BYTES: u64 = 1 << 20;

#[test]
fn regression_a_database_grows_in_the_chunks_that_were_set() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = rollback(&place, "a.db", "DELETE");
    set_chunk(&connection, CHUNK_BYTES as i32);
    insert(&connection, 1);
    let file_bytes = || std::fs::metadata(place.path("a.db")).expect("database").len();
    for chunks in 1..4 {
        let before = number(&connection, "transactions");
        connection.execute("INSERT INTO t(v) VALUES (zeroblob(900 * 1024))", []).expect("insert");
        assert_eq!(number(&connection, "transactions") - before, 1, "a record");
        assert_eq!(file_bytes(), chunks * CHUNK_BYTES);
    }
    is_sound(&connection);
}

/// A file that grows in chunks keeps old pages after the database's end. A transaction that takes
/// such a page and does not write it leaves zeros there: the next record of that page says how it
/// differs from them.
#[test]
fn regression_old_pages_after_the_databases_end_are_zeros_in_its_records() {
    onejournal_testing::own_process!();
    set_up();
    let (place, after) = (Place::new(false), Place::new(false));
    let connection = place.open("a.db");
    set(&connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    set_chunk(&connection, CHUNK_BYTES as i32);
    // The size leaves little of the blob in the page of its row, so the last page of the database
    // is one of the last blob.
    let blob = "CAST(printf('%.*c', 196900, 'x') AS BLOB)";
    let insert_blobs = || {
        for id in [1, 2, 4] {
            set(&connection, &format!("INSERT INTO t VALUES ({id}, {blob})"));
        }
    };
    insert_blobs();
    set(&connection, "DELETE FROM t");
    set(&connection, "VACUUM");
    let pages = connection.query_row("PRAGMA page_count", [], |row| row.get::<_, u64>(0));
    let file_bytes = std::fs::metadata(place.path("a.db")).expect("database").len();
    assert!(pages.expect("count") < 10 && file_bytes == CHUNK_BYTES, "old pages are in the file");
    let before = number(&connection, "transactions");
    set(&connection, "BEGIN");
    insert_blobs();
    set(&connection, "DELETE FROM t WHERE id = 2");
    set(&connection, "COMMIT");
    set(&connection, &format!("INSERT INTO t VALUES (3, {blob})"));
    assert_eq!(number(&connection, "transactions") - before, 2, "records");
    // The machine stops.
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&place.root, &after.root);
    let recovered = after.open("a.db");
    assert_eq!(count(&recovered), 3);
    is_sound(&recovered);
    let sum = "SELECT count(*) FROM t WHERE v = ".to_owned() + blob;
    assert_eq!(recovered.query_row(&sum, [], |row| row.get(0)), Ok(3));
}

#[test]
fn two_databases_in_one_transaction_have_a_super_journal() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let first = rollback(&place, "a.db", "DELETE");
    drop(rollback(&place, "b.db", "DELETE"));
    first.execute("ATTACH ?1 AS other", [place.uri("b.db", "")]).expect("attach");
    insert(&first, 1);
    let done = events(&place, || {
        set(&first, "BEGIN");
        set(&first, "INSERT INTO t(v) VALUES (1)");
        set(&first, "INSERT INTO other.t(v) VALUES (2)");
        set(&first, "COMMIT");
    });
    for name in ["a.db-journal", "b.db-journal"] {
        assert!(done.contains(&(name.into(), Event::Create)), "{done:?}");
    }
    let done = events(&place, || set(&first, "INSERT INTO other.t(v) VALUES (3)"));
    assert!(done.iter().all(|(name, _)| name == "b.db"), "{done:?}");
    drop(first);
    for (name, rows) in [("a.db", 2), ("b.db", 2)] {
        assert_eq!(plain_count(&place, name), rows, "{name}");
    }
}

#[test]
fn programs_with_and_without_the_extension_and_both_modes_take_turns() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let ours = rollback(&place, "a.db", "DELETE");
    let plain = Connection::open(place.path("a.db")).expect("plain");
    plain.busy_timeout(std::time::Duration::from_secs(5)).expect("timeout");
    for round in 0..10 {
        let before = number(&ours, "database_syncs");
        insert(&ours, 2);
        insert(&plain, 1);
        insert(&ours, 2);
        assert_eq!(number(&ours, "database_syncs") - before, if round == 0 { 2 } else { 1 });
    }
    for (mode, other) in [("WAL", &plain), ("DELETE", &ours), ("WAL", &ours), ("TRUNCATE", &ours)] {
        // SQLite refuses while another connection has the WAL open.
        let asked = format!("PRAGMA journal_mode={mode}");
        let found = other.query_row(&asked, [], |row| row.get::<_, String>(0)).unwrap_or_default();
        if found.eq_ignore_ascii_case(mode) {
            insert(&ours, 3);
            insert(&plain, 3);
        }
        is_sound(&ours);
        is_sound(&plain);
        assert_eq!(count(&ours), count(&plain), "{mode}");
    }
    assert!(count(&ours) >= 50 + 6);
}

/// Any statements in any order leave what they leave without the extension.
#[test]
fn the_database_is_what_it_would_be() {
    onejournal_testing::own_process!();
    set_up();
    for seed in tier::seeds(test_name!(), 30) {
        let mut random = fastrand::Rng::with_seed(seed);
        let place = Place::new(random.bool());
        let ours = place.open("a.db");
        let plain = Connection::open(place.path("plain.db")).expect("plain");
        let modes = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"];
        let both = |sql: &str| {
            let done = [&ours, &plain].map(|connection| {
                let mut statement = connection.prepare(sql).map_err(|e| e.to_string())?;
                let mut rows = statement.query([]).map_err(|e| e.to_string())?;
                let mut text = String::new();
                while let Some(row) = rows.next().map_err(|e| e.to_string())? {
                    text.push_str(&format!("{:?} ", row.get_ref(0)));
                }
                Ok::<String, String>(text)
            });
            assert_eq!(done[0], done[1], "seed {seed}: {sql}");
        };
        let vacuum = ["NONE", "FULL", "INCREMENTAL"][random.usize(..3)];
        both(&format!("PRAGMA auto_vacuum={vacuum}"));
        both("CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
        both("CREATE INDEX i ON t(v)");
        for _ in 0..150 {
            let id = random.u32(..40);
            let size = [10, 500, 20_000][random.usize(..3)];
            let sql = match random.u32(..24) {
                0 => format!("PRAGMA journal_mode={}", modes[random.usize(..5)]),
                1 => format!("PRAGMA cache_size={}", [2, 100, 1000][random.usize(..3)]),
                // In a transaction that SAVEPOINT began, only the extension refuses it (rule 8).
                2 if ours.is_autocommit() => {
                    format!("PRAGMA synchronous={}", ["OFF", "NORMAL", "FULL"][random.usize(..3)])
                }
                3 => format!("PRAGMA page_size={}", [512, 1024, 4096][random.usize(..3)]),
                4 if random.bool() => "VACUUM".into(),
                5 => "PRAGMA incremental_vacuum(2)".into(),
                6 => format!("PRAGMA locking_mode={}", ["NORMAL", "EXCLUSIVE"][random.usize(..2)]),
                7 | 8 => "BEGIN".into(),
                9 | 10 => "COMMIT".into(),
                11 => "ROLLBACK".into(),
                12 => "SAVEPOINT s".into(),
                13 => "ROLLBACK TO s".into(),
                14 => "RELEASE s".into(),
                15 => format!("DELETE FROM t WHERE id > {id}"),
                16 => format!("UPDATE t SET v = v || 'x' WHERE id < {id}"),
                17 => format!("PRAGMA mmap_size={}", [0, 1 << 20][random.usize(..2)]),
                _ => format!("REPLACE INTO t VALUES ({id}, hex(zeroblob({size})) || {id})"),
            };
            both(&sql);
        }
        while !ours.is_autocommit() {
            both("COMMIT");
        }
        both("SELECT count(*) || ' ' || total(length(v)) FROM t");
        both("PRAGMA integrity_check");
        drop(ours);
        let closed = Connection::open(place.path("a.db")).expect("closed");
        is_sound(&closed);
        let sum = "SELECT group_concat(id || v) FROM (SELECT * FROM t ORDER BY id)";
        let of = |connection: &Connection| {
            connection.query_row(sum, [], |row| row.get::<_, Option<String>>(0)).expect("sum")
        };
        assert!(of(&closed) == of(&plain), "seed {seed}");
    }
}

#[test]
fn a_backup_into_a_database_with_larger_pages() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let source = Connection::open_in_memory().expect("source");
    set(&source, "PRAGMA page_size=1024");
    set(&source, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    insert(&source, 300);
    let mut target = rollback(&place, "a.db", "DELETE");
    insert(&target, 3);
    rusqlite::backup::Backup::new(&source, &mut target)
        .and_then(|backup| backup.run_to_completion(5, std::time::Duration::ZERO, None))
        .expect("backup");
    assert_eq!(count(&target), 300);
    is_sound(&target);
    insert(&target, 1);
    drop(target);
    assert_eq!(plain_count(&place, "a.db"), 301);
}
