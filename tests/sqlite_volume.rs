//! The SQLite extension on a volume: no log, fewer syncs, few writes, and nothing acknowledged is
//! lost.

use crate::support;

#[allow(dead_code, missing_docs, clippy::undocumented_unsafe_blocks)]
#[path = "../crates/sqlite/tests/it/common/race.rs"]
mod race;

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use onejournal_testing::{test_name, tier};
use rusqlite::{Connection, OpenFlags, ffi};
use serde_json::Value;
use support::{Scratch, onejournal, run, text};

/// Longer than any test: nothing is committed but by a sync.
const OPTIONS: &str = "commit=300,order=history";

unsafe extern "C" fn entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    table: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite's arguments, passed on.
    let code = unsafe {
        onejournal_sqlite::sqlite3_onejournal_init(connection.cast(), message, table.cast())
    };
    // An automatic extension may not say that it is permanent, which it is.
    if code == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { code }
}

/// Puts the extension into this process.
fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an entry of the type that SQLite calls.
        let code = unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
        assert_eq!(code, ffi::SQLITE_OK);
        Connection::open_in_memory().unwrap(); // opening any connection runs it
    });
}

/// Opens a database with the VFS, the extension's or SQLite's own.
#[track_caller]
fn open(path: &Path, vfs: &str, journal_mode: &str) -> Connection {
    load();
    let uri = format!("file:{}?vfs={vfs}", path.display());
    let connection =
        Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
            .unwrap();
    let pragma = format!("pragma journal_mode={journal_mode}");
    let found: String = connection.query_row(&pragma, [], |row| row.get(0)).unwrap();
    assert_eq!(found, journal_mode);
    let more = "pragma synchronous=full; create table if not exists t(k integer primary key, v)";
    connection.execute_batch(more).unwrap();
    connection
}

fn mode_of(path: &Path) -> String {
    let ran = onejournal(["get-mode", text(path)]).good();
    ran.split('\t').next().unwrap().to_owned()
}

fn is_sound(connection: &Connection) {
    let found: String =
        connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

fn rows(connection: &Connection) -> u64 {
    connection.query_row("select count(*) from t", [], |row| row.get(0)).unwrap()
}

/// Calls of fsync that a transaction of one row takes, and flushes of the device: an fsync of the
/// directory finds all durable already.
fn syncs(scratch: &Scratch, vfs: &str, journal_mode: &str) -> (u64, u64) {
    const COUNT: u64 = 10;
    let connection = open(&scratch.path(&format!("{journal_mode}-{vfs}")), vfs, journal_mode);
    connection.execute("insert into t(v) values ('first')", []).unwrap();
    let before = scratch.stat();
    for _ in 0..COUNT {
        connection.execute("insert into t(v) values ('more')", []).unwrap();
    }
    let found = scratch.grown(&before, ["fsyncs", "device_flushes"]);
    is_sound(&connection);
    assert!(found.iter().all(|count| count % COUNT == 0), "{journal_mode}: {found:?}");
    (found[0] / COUNT, found[1] / COUNT)
}

#[test]
fn rollback_modes_take_fewer_syncs_and_there_is_no_log() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    for (journal_mode, plain, ours) in
        [("delete", 3, 1), ("truncate", 4, 1), ("persist", 4, 1), ("wal", 1, 1)]
    {
        let found = ["unix", "onejournal"].map(|vfs| syncs(&scratch, vfs, journal_mode).1);
        assert_eq!(found, [plain, ours], "{journal_mode}");
    }
    assert!(!scratch.path(".onejournal").exists());
    scratch.close_and_check();
}

#[test]
fn order_is_claimed_where_it_is_true_only() {
    for (options, mode, delete_syncs) in [
        // The change that writes the pages is durable by itself.
        ("commit=300,order=history", "auto", 0),
        ("commit=300,order=history,data=journal", "journal", 0),
        ("commit=300,order=history,data=ordered", "auto", 4),
        ("commit=300,order=sync", "auto", 4),
        ("commit=300,order=sync,data=ordered", "ordered", 4),
    ] {
        let Some(mut scratch) = Scratch::with_size("128M") else { return };
        scratch.mount(options);
        let connection = open(&scratch.path("db"), "onejournal", "wal");
        connection.execute("insert into t(v) values (1)", []).unwrap();
        let found = ["db", "db-wal"].map(|name| mode_of(&scratch.path(name)));
        assert_eq!(found, [mode, mode], "{options}");
        assert_eq!(syncs(&scratch, "onejournal", "delete").0, delete_syncs, "{options}");
        drop(connection);
        assert!(!scratch.path(".onejournal").exists());
        scratch.close_and_check();
    }
}

/// SQLite does not sync its journal here. So the extension sets an existing journal of another mode
/// to `auto`.
#[test]
fn a_journal_of_another_mode_gets_one_that_keeps_order() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let connection = open(&scratch.path("db"), "unix", "persist");
    drop(connection);
    let journal = scratch.path("db-journal");
    onejournal(["set-mode", "ordered", text(&journal)]).good();
    let connection = open(&scratch.path("db"), "onejournal", "persist");
    connection.execute("insert into t(v) values (zeroblob(3000000))", []).unwrap();
    assert_eq!(mode_of(&journal), "auto");
    drop(connection);
    scratch.close_and_check();
}

#[test]
fn a_log_that_is_there_is_not_forgotten() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let vfs = format!("onejournal&memory={}", text(memory.path()));
    let named = format!("{vfs}&log={}", text(&scratch.path("log")));
    let connection = open(&scratch.path("db"), &named, "wal");
    connection.execute("insert into t(v) values (1)", []).unwrap();
    assert!(scratch.path("log/service.json").exists());
    drop(connection);
    std::fs::rename(scratch.path("log"), scratch.path(".onejournal")).unwrap();
    let connection = open(&scratch.path("db"), &vfs, "wal");
    let stat: String =
        connection.query_row("select onejournal_stat()", [], |row| row.get(0)).unwrap();
    assert!(stat.contains(".onejournal"), "{stat}");
    drop(connection);
    scratch.close_and_check();
}

/// Adds rows of a page each in a transaction.
fn add_pages(connection: &Connection, count: u32) {
    let sql = format!(
        "begin; insert into t(v) with recursive n(i) as \
         (select 1 union all select i + 1 from n where i < {count}) \
         select randomblob(3900) from n; commit"
    );
    connection.execute_batch(&sql).unwrap();
}

/// Changes 30 pages or more in a transaction.
fn change_many(connection: &Connection) {
    add_pages(connection, 30);
}

/// So many pages that neither they nor their records are held in memory.
const MANY: u32 = 400;

#[test]
fn the_frames_of_a_transaction_are_few_writes() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    let mut found = Vec::new();
    for vfs in ["unix", "onejournal"] {
        let connection = open(&scratch.path(vfs), vfs, "wal");
        change_many(&connection);
        let before = scratch.stat();
        change_many(&connection);
        found.push(scratch.grown(&before, ["app_writes", "fsyncs"]));
        // Another connection, and after it closed SQLite without the extension, sees it all.
        let other = open(&scratch.path(vfs), vfs, "wal");
        assert_eq!(rows(&other), 60);
        drop((connection, other));
        let plain = open(&scratch.path(vfs), "unix", "wal");
        assert_eq!(rows(&plain), 60);
        is_sound(&plain);
    }
    eprintln!("writes and syncs: {found:?}");
    assert!(found[0][0] > 60 && found[0][1] == 1, "{found:?}");
    assert!(found[1][0] <= 6 && found[1][1] == 1, "{found:?}");
    scratch.close_and_check();
}

/// By a thread, through a connection of the extension's own.
#[test]
fn checkpoints_can_be_made_in_the_background() {
    let Some(mut scratch) = Scratch::with_size("128M") else { return };
    scratch.mount(OPTIONS);
    let vfs = "onejournal&checkpoint=background";
    let connection = open(&scratch.path("db"), vfs, "wal");
    connection.execute_batch("pragma wal_autocheckpoint=5").unwrap();
    for _ in 0..200 {
        connection.execute("insert into t(v) values (randomblob(3000))", []).unwrap();
    }
    let stat: String =
        connection.query_row("select onejournal_stat()", [], |row| row.get(0)).unwrap();
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert!(stat["background_checkpoints"].as_u64().unwrap() > 0, "{stat}");
    is_sound(&connection);
    drop(connection);
    assert!(!scratch.path("db-wal").exists() && !scratch.path(".onejournal").exists());
    let plain = open(&scratch.path("db"), "unix", "wal");
    assert_eq!(rows(&plain), 200);
    drop(plain);
    scratch.close_and_check();
}

/// SQLite before 3.51.3 loses rows, if neither of the two connections has the extension.
#[test]
fn a_wal_that_begins_again_during_a_checkpoint_loses_nothing() {
    onejournal_testing::own_process!();
    let sqlite = race::Sqlite::bundled();
    sqlite.stop_checkpoints();
    load();
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let between = |name: &str, vfs: [&str; 2]| {
        let path = scratch.path(name);
        let open = |vfs: &str| sqlite.open(&format!("file:{}?vfs={vfs}", path.display()));
        let [writer, checkpoint] = vfs.map(open);
        race::race(&path, writer, checkpoint, || open("stops"))
    };
    let found = between("plain", ["stops", "stops"]);
    assert!(!found.is_good() && found.has_restarted, "{found:?}");
    for (name, vfs, restarts) in [
        ("writer", ["onejournal", "stops"], false),
        ("checkpoint", ["stops", "onejournal"], true),
        ("both", ["onejournal", "onejournal"], false),
    ] {
        let found = between(name, vfs);
        assert!(found.is_good() && found.has_restarted == restarts, "{name} {found:?}");
    }
    assert!(!scratch.path(".onejournal").exists(), "the volume is used, and no log");
    for (name, vfs, fault) in [
        ("w", ["onejournal", "stops"], onejournal_sqlite::Fault::RestartsDuringCheckpoint),
        ("c", ["stops", "onejournal"], onejournal_sqlite::Fault::CopiesAfterRestart),
    ] {
        let found = fault::with(fault, || between(name, vfs));
        assert!(!found.is_good(), "{fault:?} {found:?}");
    }
    scratch.close_and_check();
}

#[test]
fn the_records_of_a_journal_file_are_few_writes() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    for journal_mode in ["delete", "truncate", "persist"] {
        let mut found = Vec::new();
        for vfs in ["unix", "onejournal"] {
            let path = scratch.path(&format!("{journal_mode}-{vfs}"));
            let connection = open(&path, vfs, journal_mode);
            add_pages(&connection, MANY);
            let before = scratch.stat();
            connection.execute_batch("update t set v = zeroblob(3900)").unwrap();
            found.extend(scratch.grown(&before, ["app_writes"]));
            drop(connection);
            let plain = open(&path, "unix", journal_mode);
            assert_eq!(rows(&plain), u64::from(MANY));
            is_sound(&plain);
        }
        eprintln!("{journal_mode}: writes {found:?}");
        // Three for each page, and one for each page of the database.
        assert!(found[0] > 4 * u64::from(MANY), "{journal_mode}: {found:?}");
        assert!(found[1] < found[0] / 3, "{journal_mode}: {found:?}");
    }
    scratch.close_and_check();
}

/// What the mount did for a transaction, on average: requests, writes, syncs, flushes of the
/// device, bytes written to the device.
fn cost(
    scratch: &Scratch,
    connection: &Connection,
    count: u64,
    mut transaction: impl FnMut(&Connection, u64),
) -> [u64; 5] {
    for number in 0..3 {
        transaction(connection, number);
    }
    let before = scratch.stat();
    for number in 0..count {
        transaction(connection, number + 3);
    }
    let names = ["requests", "app_writes", "fsyncs", "device_flushes", "device_bytes_written"];
    scratch.grown(&before, names).map(|grown| grown / count)
}

/// A row, and 1,000 updates of random rows in 8 MB.
#[test]
fn a_transaction_of_a_rollback_mode_is_few_requests() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    for journal_mode in ["delete", "truncate", "persist"] {
        for vfs in ["unix", "onejournal"] {
            let path = scratch.path(&format!("{journal_mode}-{vfs}"));
            let connection = open(&path, vfs, journal_mode);
            let row = cost(&scratch, &connection, 20, |connection, _| {
                connection.execute("insert into t(v) values ('more')", []).unwrap();
            });
            connection
                .execute_batch(
                    "create table u(k integer primary key, v); \
                     insert into u(v) with recursive n(i) as \
                     (select 1 union all select i + 1 from n where i < 4000) \
                     select randomblob(90) from n",
                )
                .unwrap();
            let mut rng = fastrand::Rng::with_seed(5);
            let updates = cost(&scratch, &connection, 5, |connection, _| {
                connection.execute_batch("begin").unwrap();
                for _ in 0..1000 {
                    let change = "update u set v = randomblob(90) where k = ?";
                    connection.execute(change, [rng.u32(1..=4000)]).unwrap();
                }
                connection.execute_batch("commit").unwrap();
            });
            eprintln!("{journal_mode} {vfs}: {row:?} {updates:?}");
            is_sound(&connection);
            if vfs == "onejournal" {
                // The header's page is read, and the size of the file is asked for. Then the
                // change.
                assert!(row[0] <= 3 && row[1..4] == [1, 0, 1], "{journal_mode}: {row:?}");
                // Some 95 pages: a part of the change for each 64 KiB.
                assert!(updates[0] <= 12 && updates[1..3] == [1, 0], "{journal_mode}: {updates:?}");
            }
        }
    }
    scratch.close_and_check();
}

#[test]
#[ignore = "a process of a_writer_that_dies_leaves_what_was_committed"]
fn dying_writer() {
    let Ok(text) = std::env::var("ONEJOURNAL_DYING_WRITER") else { return };
    let [path, journal_mode, cache_size] = text.split('|').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let connection = open(Path::new(path), "onejournal", journal_mode);
    let cache = format!("pragma cache_size={cache_size}");
    connection.execute_batch(&cache).unwrap();
    connection.execute_batch("begin; update t set v = zeroblob(3900)").unwrap();
    std::process::abort();
}

#[test]
fn a_writer_that_dies_leaves_what_was_committed() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    for journal_mode in ["delete", "truncate", "persist"] {
        // With a small cache it has written pages, with a large one none. A large transaction has
        // changed the file then.
        for (cache_size, count) in [("5", 30), ("1000", 30), ("5", MANY), ("1000", MANY)] {
            let path = scratch.path(&format!("{journal_mode}-{cache_size}-{count}"));
            let connection = open(&path, "onejournal", journal_mode);
            add_pages(&connection, count);
            let sum = "select sum(length(hex(v)) + (v = zeroblob(3900))) from t";
            let content = |connection: &Connection| -> u64 {
                connection.query_row(sum, [], |row| row.get(0)).unwrap()
            };
            let before = content(&connection);
            drop(connection);
            let bytes = std::fs::read(&path).unwrap();
            let mut command = onejournal_testing::again(module_path!(), "dying_writer");
            let writer = format!("{}|{journal_mode}|{cache_size}", path.display());
            command.env("ONEJOURNAL_DYING_WRITER", writer);
            let ran = run(&mut command);
            assert_eq!(ran.code, None, "it ended by a signal: {}", ran.err);
            let is_changed = std::fs::read(&path).unwrap() != bytes;
            assert_eq!(is_changed, (cache_size, count) == ("5", MANY), "{journal_mode} {count}");
            let journal = scratch.path(&format!("{journal_mode}-{cache_size}-{count}-journal"));
            // Records beyond a mebibyte are in a file before the pages are written.
            assert_eq!(journal.exists(), count == MANY, "{journal_mode} {cache_size} {count}");
            let plain = open(&path, "unix", journal_mode);
            assert_eq!((rows(&plain), content(&plain)), (count.into(), before), "{journal_mode}");
            is_sound(&plain);
        }
    }
    scratch.close_and_check();
}

/// Kernel and programs have read the file before; the change comes past the kernel's cache.
#[test]
fn a_change_is_seen_by_who_has_the_file_cached() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount(OPTIONS);
    let path = scratch.path("db");
    let connection = open(&path, "onejournal", "delete");
    add_pages(&connection, 30);
    let other = open(&path, "unix", "delete");
    other.execute_batch("pragma mmap_size=10000000").unwrap();
    for round in 1..=20_u64 {
        let before = std::fs::read(&path).unwrap();
        assert_eq!(rows(&other), 29 + round);
        connection
            .execute_batch("begin; update t set v = randomblob(3900) where k % 3 = 0")
            .unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "nothing before the commit");
        connection.execute_batch("insert into t(v) values (zeroblob(5000)); commit").unwrap();
        let after = std::fs::read(&path).unwrap();
        assert!(after != before && after.len() >= before.len() + 4096);
        assert_eq!(rows(&other), 30 + round);
        is_sound(&other);
        let sum = "select group_concat(k || hex(v)) from t";
        let [ours, theirs] = [&connection, &other]
            .map(|it| it.query_row(sum, [], |row| row.get::<_, String>(0)).unwrap());
        assert!(ours == theirs, "round {round}");
    }
    let bytes = std::fs::read(&path).unwrap();
    drop((connection, other));
    scratch.umount();
    scratch.mount(OPTIONS);
    assert!(std::fs::read(&path).unwrap() == bytes);
    scratch.close_and_check();
}

/// Any statements in any order, on two databases, leave what they leave without the extension, and
/// other programs see it after each commit. (`mmap_size` is tested above: SQLite itself forgets
/// mappings when it changes.)
#[test]
fn the_databases_are_what_they_would_be() {
    let Some(mut scratch) = Scratch::with_size("512M") else { return };
    scratch.mount(OPTIONS);
    drop(open(&scratch.path("load"), "onejournal", "delete"));
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    for seed in tier::seeds(test_name!(), 12) {
        let mut random = fastrand::Rng::with_seed(seed);
        let name = format!("{seed}.db");
        let (ours_at, plain_at) = (scratch.path(&name), elsewhere.path().join(&name));
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let uri = format!("file:{}?vfs=onejournal", ours_at.display());
        let ours = Connection::open_with_flags(uri, flags).unwrap();
        let plain = Connection::open_with_flags(&plain_at, flags).unwrap();
        let of = |connection: &Connection, sql: &str| -> Result<String, String> {
            let mut statement = connection.prepare(sql).map_err(|e| e.to_string())?;
            let mut rows = statement.query([]).map_err(|e| e.to_string())?;
            let mut text = String::new();
            while let Some(row) = rows.next().map_err(|e| e.to_string())? {
                text.push_str(&format!("{:?} ", row.get_ref(0)));
            }
            Ok(text)
        };
        let both = |sql: &str| {
            let done = [&ours, &plain].map(|connection| of(connection, sql));
            assert_eq!(done[0], done[1], "seed {seed}: {sql}");
        };
        let attach = |connection: &Connection, path: &Path, vfs: &str| {
            let sql = format!("attach 'file:{}-b?vfs={vfs}' as b", path.display());
            connection.execute_batch(&sql).unwrap();
        };
        let vacuum = ["none", "full", "incremental"][random.usize(..3)];
        both(&format!("pragma auto_vacuum={vacuum}"));
        both("create table t(id integer primary key, v)");
        both("create index i on t(v)");
        attach(&ours, &ours_at, "onejournal");
        attach(&plain, &plain_at, "unix");
        both("create table b.u(id integer primary key, v)");
        let modes = ["delete", "truncate", "persist", "memory", "wal", "off"];
        for _ in 0..120 {
            let id = random.u32(..40);
            let size = [10, 500, 20_000][random.usize(..3)];
            let sql = match random.u32(..30) {
                0 => format!(
                    "pragma journal_mode={}",
                    modes[random.usize(..if seed % 2 == 0 { 3 } else { 6 })]
                ),
                1 => format!("pragma cache_size={}", [2, 100, 1000][random.usize(..3)]),
                2 => format!(
                    "pragma synchronous={}",
                    ["off", "normal", "full", "extra"][random.usize(..4)]
                ),
                3 => format!("pragma page_size={}", [512, 1024, 4096, 65_536][random.usize(..4)]),
                4 if random.bool() => "vacuum".into(),
                5 => "pragma incremental_vacuum(2)".into(),
                6 => format!("pragma locking_mode={}", ["normal", "exclusive"][random.usize(..2)]),
                7 | 8 => "begin".into(),
                9 | 10 => "commit".into(),
                11 => "rollback".into(),
                12 => "savepoint s".into(),
                13 => "rollback to s".into(),
                14 => "release s".into(),
                15 => format!("delete from t where id > {id}"),
                16 => format!("update t set v = v || 'x' where id < {id}"),
                17 => "select count(*), total(length(v)) from t".into(),
                18 => format!("pragma journal_size_limit={}", [-1, 0, 5000][random.usize(..3)]),
                19 | 20 => format!("replace into b.u values ({id}, hex(zeroblob({size})))"),
                21 => format!("replace into t values ({id}, hex(zeroblob(900000)) || {id})"),
                22 => "insert into b.u(v) select v from t where length(v) < 2000".into(),
                _ => format!("replace into t values ({id}, hex(zeroblob({size})) || {id})"),
            };
            // With no journal a rollback may leave anything.
            if sql == "pragma journal_mode=off" && !ours.is_autocommit() {
                continue;
            }
            both(&sql);
            let mode = of(&ours, "pragma journal_mode").unwrap_or_default();
            if mode.contains("off") {
                both("pragma journal_mode=delete");
            }
            // Another program, which has nothing cached. With `locking_mode=EXCLUSIVE` it is not
            // let in.
            if ours.is_autocommit() && random.u8(..4) == 0 && !mode.contains("wal") {
                let sum = "select total(id), total(length(v)) from t";
                let stranger_sees = |path: &Path| {
                    let stranger = Connection::open(path).unwrap();
                    stranger.busy_timeout(Duration::ZERO).unwrap();
                    of(&stranger, sum)
                };
                match stranger_sees(&ours_at) {
                    Ok(found) => assert_eq!(Ok(found), of(&plain, sum), "seed {seed}: {sql}"),
                    Err(e) if e.contains("locked") => {}
                    // SQLite has damaged both, as below.
                    Err(e) => assert_eq!(Err(e), stranger_sees(&plain_at), "seed {seed}: {sql}"),
                }
            }
        }
        while !ours.is_autocommit() {
            both("commit");
        }
        both("pragma integrity_check");
        let sums = ["t", "b.u"].map(|table| {
            format!("select group_concat(id || v) from (select * from {table} order by id)")
        });
        for sum in &sums {
            assert!(of(&ours, sum) == of(&plain, sum), "seed {seed}: {sum}");
        }
        drop(ours);
        let closed = Connection::open(&ours_at).unwrap();
        // SQLite damages a database by itself after some rollbacks: then ours is as damaged.
        let check = "pragma integrity_check";
        assert_eq!(of(&closed, check), of(&plain, check), "seed {seed}");
        attach(&closed, &ours_at, "unix");
        for sum in &sums {
            assert!(of(&closed, sum) == of(&plain, sum), "seed {seed}: {sum}");
        }
        drop(closed);
        let is_open = |path: &Path| path.starts_with(scratch.path(""));
        let left = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
            let path = std::fs::read_link(entry.unwrap().path()).ok()?;
            is_open(&path).then_some(path)
        });
        assert_eq!(left.collect::<Vec<_>>(), [] as [std::path::PathBuf; 0], "seed {seed}");
    }
    scratch.close_and_check();
}

/// Larger than the page cache, so that frames are written, read and rewritten before the commit,
/// and with savepoints and transactions that are rolled back.
#[test]
fn transactions_that_spill_are_whole() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    for (synchronous, locking, mode) in [
        ("full", "normal", "wal"),
        ("normal", "normal", "wal"),
        ("off", "exclusive", "wal"),
        ("full", "normal", "delete"),
        ("full", "normal", "truncate"),
        ("normal", "normal", "persist"),
        ("full", "exclusive", "persist"),
    ] {
        let path = scratch.path(&format!("{synchronous}-{locking}-{mode}"));
        let connection = open(&path, "onejournal", mode);
        let pragmas = format!(
            "pragma synchronous={synchronous}; pragma locking_mode={locking}; pragma cache_size=5"
        );
        connection.execute_batch(&pragmas).unwrap();
        for round in 0..12_u32 {
            connection.execute_batch("begin immediate").unwrap();
            for key in 0..60 {
                let change = "insert or replace into t values (?, randomblob(2000))";
                connection.execute(change, [key * 7 % 60]).unwrap();
            }
            connection
                .execute_batch("savepoint s; update t set v = 'lost'; rollback to s")
                .unwrap();
            connection.execute_batch("update t set v = zeroblob(3000) where k % 3 = 0").unwrap();
            connection.execute("update t set v = ? where k = 59", [round]).unwrap();
            let end = if round % 4 == 3 { "rollback" } else { "commit" };
            connection.execute_batch(end).unwrap();
            let wanted = if round % 4 == 3 { round - 1 } else { round };
            // Who comes with a cold cache reads what is in the file.
            let other = (locking == "normal").then(|| open(&path, "unix", mode));
            let reader = other.as_ref().unwrap_or(&connection);
            let last: u32 =
                reader.query_row("select v from t where k = 59", [], |row| row.get(0)).unwrap();
            assert_eq!((rows(reader), last), (60, wanted));
            is_sound(reader);
        }
    }
    scratch.close_and_check();
}

#[test]
fn nothing_acknowledged_is_lost_when_the_daemon_is_killed() {
    let Some(mut scratch) = Scratch::with_size("128M") else { return };
    let mut rng = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    // With the extension a commit is durable in mode DELETE, too.
    let modes = ["wal", "truncate", "persist", "delete"];
    let mut promised = modes.map(|_| 0);
    scratch.mount("");
    // In each mode once, at least.
    for round in 0..tier::count(20) {
        let number = round % modes.len();
        let connection = open(&scratch.path(modes[number]), "onejournal", modes[number]);
        assert_eq!(rows(&connection), promised[number], "{} in round {round}", modes[number]);
        for _ in 0..rng.usize(1..20) {
            connection.execute_batch("begin").unwrap();
            for _ in 0..rng.usize(1..30) {
                connection.execute("insert into t(v) values (randomblob(2000))", []).unwrap();
                promised[number] += 1;
            }
            connection.execute_batch("commit").unwrap();
        }
        scratch.kill();
        drop(connection);
        scratch.mount("");
        for (mode, promised) in modes.iter().zip(promised) {
            let path = scratch.path(mode);
            if path.exists() {
                let connection = open(&path, "onejournal", mode);
                assert_eq!(rows(&connection), promised, "{mode} after round {round}");
                is_sound(&connection);
            }
        }
    }
    scratch.close_and_check();
}

/// What commits cost in a directory of this mode, whose database and WAL, or whose log, have the
/// mode, too: flushes of the device, bytes written to it, and bytes until all is home.
#[track_caller]
fn cost_in_mode(
    scratch: &Scratch,
    mode: &str,
    vfs: &str,
    (journal_mode, row_bytes): (&str, usize),
) -> [u64; 3] {
    let dir = scratch.path(&format!("{mode}-{}-{journal_mode}-{row_bytes}", &vfs[..4]));
    std::fs::create_dir(&dir).unwrap();
    onejournal(["set-mode", mode, text(&dir)]).good();
    let vfs = vfs.replace("DIR", text(&dir));
    let connection = open(&dir.join("db"), &vfs, journal_mode);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut insert = || {
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(row_bytes).collect();
        connection.execute("insert into t(v) values (?)", [value]).unwrap();
    };
    insert();
    bring_home(scratch);
    let before = scratch.stat();
    (0..COMMITS).for_each(|_| insert());
    let names = ["device_flushes", "device_bytes_written"];
    let [flushes, bytes] = scratch.grown(&before, names);
    assert_eq!(scratch.grown(&before, ["syncfs"]), [0], "another program called sync(2)");
    bring_home(scratch);
    let [until_home] = scratch.grown(&before, ["device_bytes_written"]);
    eprintln!("{vfs:.10} {journal_mode} {row_bytes} {mode}: {flushes} {bytes} {until_home}");
    is_sound(&connection);
    [flushes, bytes, until_home]
}

const COMMITS: u64 = 10;

/// A change of a mode brings home all that the journal holds.
fn bring_home(scratch: &Scratch) {
    for mode in ["writeback", "default"] {
        onejournal(["set-mode", mode, text(&scratch.dir())]).good();
    }
}

#[test]
fn mode_that_the_extension_sets_costs_the_fewest_flushes() {
    let Some(mut scratch) = Scratch::with_size("512M") else { return };
    scratch.mount(OPTIONS);
    let row = ("wal", 100);
    for (mode, commit_flushes) in [
        ("auto", 1),
        ("delta", 1),
        ("wasteless", 1),
        ("journal", 1),
        ("selective", 1),
        ("ordered", 2),
        ("writeback", 2),
    ] {
        let [flushes, ..] = cost_in_mode(&scratch, mode, "unix", row);
        assert_eq!(flushes, commit_flushes * COMMITS, "{mode}");
    }
    assert_eq!(cost_in_mode(&scratch, "ordered", "onejournal", row)[0], COMMITS);
    // Auto writes the pages of a large transaction once, delta twice.
    let large = ("wal", 300_000);
    let [set, delta] =
        ["ordered", "delta"].map(|mode| cost_in_mode(&scratch, mode, "onejournal", large)[2]);
    assert!(set * 4 < delta * 3, "{set} of {delta} bytes");
    scratch.close_and_check();
}

/// In every mode it is one flush, besides those of the thread that empties the log.
#[test]
fn commit_to_a_log_on_a_volume_writes_least_in_the_default_mode() {
    let Some(mut scratch) = Scratch::with_size("512M") else { return };
    scratch.mount(OPTIONS);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let vfs = format!("onejournal&memory={}&log=DIR/log", text(memory.path()));
    let [default, ordered] =
        ["auto", "ordered"].map(|mode| cost_in_mode(&scratch, mode, &vfs, ("delete", 100))[1]);
    // In place, each commit writes a block.
    assert!(ordered >= COMMITS * 4096, "{ordered} bytes");
    assert!(default * 2 < ordered, "{default} of {ordered} bytes");
    scratch.close_and_check();
}
