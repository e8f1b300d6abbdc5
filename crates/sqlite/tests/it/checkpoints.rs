//! `checkpoint=background`: which commit makes a checkpoint, and that no program can tell that a
//! connection of the extension's own has the database open.

use crate::common;

use std::sync::{Arc, Mutex};

use common::crash_vfs::{self, Event, Recorder};
use common::{Place, count, is_sound, load, stat};
use onejournal_sqlite::checkpoints;
use rusqlite::{Connection, ffi};

const BACKGROUND: &str = "&checkpoint=background";

/// Only one test at a time: counters and recorded events are those of the process. Passes run in
/// `checkpoints::step`.
fn set_up() {
    crash_vfs::register();
    load();
    checkpoints::take_over();
}

fn open(place: &Place, more: &str) -> Connection {
    let connection = place.try_open("a.db", more).expect("open");
    let setup = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=10;
                 CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(setup).expect("setup");
    connection
}

/// Commits one frame each time.
fn commit(connection: &Connection, times: usize) {
    for _ in 0..times {
        connection.execute("UPDATE t SET v = 1 + coalesce(v, 0) WHERE id = 1", []).expect("commit");
    }
}

fn with_row(connection: &Connection) {
    connection.execute("REPLACE INTO t VALUES (1, 0)", []).expect("row");
}

/// Checkpoints so far: in the background, by commits.
fn made(connection: &Connection) -> [u64; 2] {
    let found = stat(connection);
    ["background_checkpoints", "commit_checkpoints"].map(|name| found[name].as_u64().expect(name))
}

fn since(connection: &Connection, before: [u64; 2]) -> [u64; 2] {
    let now = made(connection);
    [now[0] - before[0], now[1] - before[1]]
}

fn wal_frames(place: &Place) -> u64 {
    let bytes = std::fs::metadata(place.path("a.db-wal")).expect("WAL").len();
    bytes.saturating_sub(32) / (4096 + 24)
}

/// How often commits and passes sync the database, when 200 frames are committed.
fn database_syncs(more: &str) -> [usize; 2] {
    let place = Place::new(false);
    let connection = open(&place, more);
    with_row(&connection);
    Recorder::begin(&place.root, Box::new(|_| {}));
    let syncs = |recorder: &Recorder| {
        recorder.events.iter().filter(|(name, e)| name == "a.db" && *e == Event::Sync).count()
    };
    let (mut of_commits, mut of_passes) = (0, 0);
    let now = || {
        let recorder = Recorder::end();
        let found = syncs(&recorder);
        Recorder::begin(&place.root, Box::new(|_| {}));
        found
    };
    for _ in 0..200 {
        commit(&connection, 1);
        of_commits += now();
        checkpoints::step();
        of_passes += now();
    }
    Recorder::end();
    [of_commits, of_passes]
}

#[test]
fn no_commit_syncs_the_database() {
    onejournal_testing::own_process!();
    set_up();
    let [of_commits, of_passes] = database_syncs(BACKGROUND);
    assert_eq!(of_commits, 0);
    assert!(of_passes >= 10, "{of_passes}");
    // Without the parameter they do: the check can fail.
    let [of_commits, of_passes] = database_syncs("");
    assert!(of_commits >= 10 && of_passes == 0, "{of_commits} {of_passes}");
}

#[test]
fn the_wal_begins_again() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    let before = made(&connection);
    for _ in 0..100 {
        commit(&connection, 1);
        checkpoints::step();
    }
    assert!(wal_frames(&place) <= 20, "{}", wal_frames(&place));
    let [background, commits] = since(&connection, before);
    assert!(background >= 9 && commits == 0, "{background} {commits}");
}

#[test]
fn passes_that_do_not_keep_up_are_helped_by_commits() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    let before = made(&connection);
    // No pass ends: at 80 frames a commit waits and makes the checkpoint.
    commit(&connection, 400);
    assert!(wal_frames(&place) <= 90, "{}", wal_frames(&place));
    let [background, commits] = since(&connection, before);
    assert!(background >= 4 && commits >= 4, "{background} {commits}");
    drop(connection);
    is_sound(&open(&place, ""));
}

#[test]
fn the_last_connection_leaves_a_plain_database() {
    onejournal_testing::own_process!();
    set_up();
    for steps in [false, true] {
        let place = Place::new(false);
        let (one, two) = (open(&place, BACKGROUND), open(&place, BACKGROUND));
        with_row(&one);
        commit(&one, 15);
        if steps {
            checkpoints::step();
        }
        commit(&two, 15);
        drop(one);
        commit(&two, 15);
        drop(two);
        assert!(!place.path("a.db-wal").exists() && !place.path("a.db-shm").exists());
        let mut left = std::fs::read_dir(&place.memory).expect("memory");
        assert!(left.all(|entry| entry.expect("entry").file_name() == "nvram"), "shared memory");
        let plain = Connection::open(place.path("a.db")).expect("plain");
        is_sound(&plain);
        let sum: i64 = plain.query_row("SELECT v FROM t", [], |row| row.get(0)).expect("row");
        assert_eq!(sum, 45);
    }
}

#[test]
fn the_journal_mode_can_be_changed() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    for mode in ["delete", "wal", "delete"] {
        commit(&connection, 15);
        checkpoints::step();
        let sql = format!("PRAGMA journal_mode={mode}");
        let found: String = connection.query_row(&sql, [], |row| row.get(0)).expect(mode);
        assert_eq!(found, mode);
    }
    connection
        .execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")
        .expect("own");
}

#[test]
fn a_database_that_a_program_has_to_itself_is_checkpointed_by_commits() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    drop(open(&place, BACKGROUND));
    let connection = place.try_open("a.db", BACKGROUND).expect("open");
    let setup =
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=10";
    connection.execute_batch(setup).expect("setup");
    with_row(&connection);
    let before = made(&connection);
    commit(&connection, 50);
    // By SQLite's own hook.
    assert_eq!(since(&connection, before), [0, 0]);
    assert!(wal_frames(&place) <= 11, "{}", wal_frames(&place));
}

#[test]
fn no_program_finds_the_database_busy() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    connection.busy_timeout(std::time::Duration::ZERO).expect("no wait");
    with_row(&connection);
    commit(&connection, 15);
    checkpoints::step();
    // Each of these asks for a lock that another connection could have.
    for sql in ["PRAGMA wal_checkpoint(RESTART)", "PRAGMA wal_checkpoint(TRUNCATE)"] {
        let busy: i64 = connection.query_row(sql, [], |row| row.get(0)).expect(sql);
        assert_eq!(busy, 0, "{sql}");
        commit(&connection, 15);
    }
    connection.execute_batch("VACUUM").expect("vacuum");
}

#[test]
fn the_programs_own_settings_count() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    connection.execute_batch("PRAGMA wal_autocheckpoint=0").expect("off");
    let before = made(&connection);
    commit(&connection, 30);
    checkpoints::step();
    assert_eq!(since(&connection, before), [0, 0]);
    assert!(wal_frames(&place) > 30);
    connection.execute_batch("PRAGMA wal_autocheckpoint=10").expect("on");
    commit(&connection, 1);
    checkpoints::step();
    assert_eq!(since(&connection, before), [1, 0]);
    // A hook of its own.
    let calls = Arc::new(Mutex::new(0));
    unsafe extern "C" fn hook(
        calls: *mut std::ffi::c_void,
        _: *mut ffi::sqlite3,
        _: *const std::ffi::c_char,
        _: std::ffi::c_int,
    ) -> std::ffi::c_int {
        // SAFETY: the mutex below, which outlives the connection.
        *unsafe { &*calls.cast::<Mutex<i32>>() }.lock().expect("calls") += 1;
        ffi::SQLITE_OK
    }
    let place_of_calls = Arc::as_ptr(&calls).cast_mut().cast();
    // SAFETY: an open connection.
    unsafe { ffi::sqlite3_wal_hook(connection.handle(), Some(hook), place_of_calls) };
    commit(&connection, 50);
    assert_eq!(*calls.lock().expect("calls"), 50);
    assert_eq!(since(&connection, before), [1, 0]);
}

#[test]
fn after_a_pass_that_failed_nothing_is_written_until_all_have_closed() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    let before = made(&connection);
    commit(&connection, 15);
    Recorder::begin(&place.root, Box::new(|_| {}));
    Recorder::fail(&place.path("a.db"));
    common::told().clear();
    checkpoints::step();
    assert!(!Recorder::end().is_failing(), "no sync failed");
    for _ in 0..2 {
        let refused = connection.execute("UPDATE t SET v = 100 WHERE id = 1", []);
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("disk I/O error"), "{refused}");
    }
    assert_eq!((count(&connection), since(&connection, before)), (1, [1, 0]));
    let told = common::told().join("\n");
    assert!(told.contains("checkpoint in the background"), "{told}");
    drop(connection);
    assert!(place.path("a.db-wal").exists(), "the frames that may not be in the database");
    let connection = open(&place, BACKGROUND);
    commit(&connection, 15);
    let sum: i64 = connection.query_row("SELECT v FROM t", [], |row| row.get(0)).expect("row");
    assert_eq!(sum, 30);
    drop(connection);
    assert!(!place.path("a.db-wal").exists());
    is_sound(&Connection::open(place.path("a.db")).expect("plain"));
}

/// SQLite itself syncs the database only after a pass that copied all of the WAL.
#[test]
fn a_pass_that_a_commit_overtakes_syncs_the_database_too() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    let reader = open(&place, "");
    commit(&connection, 5);
    // The reader's snapshot ends before the last frames, so not all of them are copied.
    reader.execute_batch("BEGIN; SELECT * FROM t").expect("snapshot");
    let mut snapshot = reader.prepare("SELECT * FROM t").expect("read");
    assert!(snapshot.query([]).expect("rows").next().expect("a row").is_some());
    commit(&connection, 10);
    Recorder::begin(&place.root, Box::new(|_| {}));
    checkpoints::step();
    let events = Recorder::end().events;
    let of = |event| events.iter().filter(|(name, e)| name == "a.db" && *e == event).count();
    assert!(of(Event::Write) > 0 && of(Event::Sync) == 1, "{events:?}");
}

/// The own connection does not share the cache of the program's connections.
#[test]
fn a_shared_cache_is_no_obstacle() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    // SAFETY: a setting of this process, for connections that are opened later.
    let share = |is_on| unsafe { ffi::sqlite3_enable_shared_cache(is_on) };
    assert_eq!(share(1), ffi::SQLITE_OK);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    commit(&connection, 25);
    checkpoints::step();
    commit(&connection, 25);
    connection.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).expect("mode");
    drop(connection);
    assert_eq!(share(0), ffi::SQLITE_OK);
    assert!(!place.path("a.db-wal").exists());
    is_sound(&Connection::open(place.path("a.db")).expect("plain"));
}

#[test]
fn a_replaced_database_is_left_alone() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    commit(&connection, 5);
    std::fs::rename(place.path("a.db"), place.path("b.db")).expect("rename");
    std::fs::write(place.path("a.db"), b"").expect("another file");
    let before = made(&connection);
    commit(&connection, 20);
    assert_eq!(since(&connection, before)[0], 0);
    assert_eq!(std::fs::metadata(place.path("a.db")).expect("file").len(), 0);
    std::mem::forget(connection);
}

#[test]
fn an_unknown_value_is_refused() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let refused = place.try_open("a.db", "&checkpoint=never").map(drop);
    refused.expect_err("refused");
    let told = common::told().join("\n");
    assert!(
        told.contains("checkpoint=never is not known: it can be commit or background"),
        "{told}"
    );
}

#[test]
fn attached_databases_have_checkpoints_of_their_own() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = open(&place, BACKGROUND);
    with_row(&connection);
    let other = place.uri("b.db", BACKGROUND);
    connection.execute("ATTACH ?1 AS b", [other]).expect("attach");
    let setup = "PRAGMA b.journal_mode=WAL; CREATE TABLE b.u(v); PRAGMA b.wal_autocheckpoint=10";
    connection.execute_batch(setup).expect("setup");
    let before = made(&connection);
    for _ in 0..40 {
        connection.execute("INSERT INTO b.u VALUES (1)", []).expect("insert");
        checkpoints::step();
    }
    assert_eq!(since(&connection, before)[1], 0);
    assert!(since(&connection, before)[0] >= 3);
    assert_eq!(count(&connection), 1);
}
