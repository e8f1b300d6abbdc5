//! WAL mode: moments at which the power or a sync fails. Each of them once lost or refused
//! something.

use crate::common;

use std::sync::{Arc, Mutex};

use common::crash_vfs::{Event, Recorder};
use common::world::{World, cut_nothing, cut_wal};
use common::{Place, count, is_sound, set_up};
use onejournal_sqlite::Fault;
use rusqlite::{Connection, OpenFlags, ffi};

fn open(world: &World, page_bytes: usize) -> Connection {
    let connection = world.try_open("onejournal").expect("open");
    let setup = format!(
        "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;
         PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;
         CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)"
    );
    connection.execute_batch(&setup).expect("setup");
    connection
}

/// Puts a row there: `bytes` of which the last is `last`, the others are those of the row.
fn put(connection: &Connection, id: i64, bytes: usize, last: u8) -> rusqlite::Result<()> {
    let mut random = fastrand::Rng::with_seed(id as u64);
    let mut value: Vec<u8> = (1..bytes).map(|_| random.u8(..)).collect();
    value.push(last);
    connection.execute("REPLACE INTO t VALUES (?1, ?2)", (id, value)).map(|_| ())
}

type Rows = Vec<(i64, Vec<u8>)>;

fn rows(connection: &Connection) -> Rows {
    let mut statement = connection.prepare("SELECT id, v FROM t ORDER BY id").expect("select");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

/// Busy, frames of the WAL, and how many of them are in the database.
fn checkpoint(connection: &Connection, how: &str) -> rusqlite::Result<[i64; 3]> {
    let sql = format!("PRAGMA wal_checkpoint({how})");
    connection.query_row(&sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
}

/// The rows that are there after a cut.
fn recovered(home: tempfile::TempDir) -> Result<Rows, String> {
    recovered_in(World { home, is_nvram: true })
}

fn recovered_in(world: World) -> Result<Rows, String> {
    let connection = world.try_open("onejournal").map_err(|e| e.to_string())?;
    let check: Result<String, _> =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    match check {
        Ok(check) if check == "ok" => Ok(rows(&connection)),
        wrong => Err(format!("{wrong:?}")),
    }
}

/// Cuts before each change from now on, once `T` says something, with what it says. They take all
/// of the WAL that is not durable.
struct Cuts<T> {
    now: Arc<Mutex<T>>,
    cuts: Arc<Mutex<Vec<(T, tempfile::TempDir)>>>,
}

impl<T: Clone + Default + PartialEq + Send + 'static> Cuts<T> {
    fn begin(world: &World, now: T) -> Cuts<T> {
        let cuts = Cuts { now: Arc::new(Mutex::new(now)), cuts: Arc::default() };
        let (now, all) = (cuts.now.clone(), cuts.cuts.clone());
        let (home, is_nvram) = (world.home.path().to_owned(), world.is_nvram);
        let hook = move |recorder: &Recorder| {
            let now = now.lock().expect("now");
            if *now != T::default() {
                let left = cut_wal(&home, is_nvram, recorder);
                all.lock().expect("cuts").push((now.clone(), left));
            }
        };
        Recorder::begin(&world.data(), Box::new(hook));
        cuts
    }

    fn now(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.now.lock().expect("now"));
    }

    /// One more, and no more.
    fn end(self) -> Vec<(T, tempfile::TempDir)> {
        Recorder::point();
        Recorder::end();
        std::mem::take(&mut *self.cuts.lock().expect("cuts"))
    }
}

#[test]
fn regression_the_database_shrinks_and_grows_again_in_one_generation() {
    onejournal_testing::own_process!();
    set_up();
    let world = World::new(true);
    let (first, second) = (open(&world, 4096), open(&world, 4096));
    for id in 0..20 {
        put(&first, id, 3000, 1).expect("put");
    }
    checkpoint(&first, "RESTART").expect("checkpoint");
    put(&first, 0, 3000, 2).expect("a generation begins");
    Recorder::begin(&world.data(), Box::new(|_| {}));
    for id in 10..20 {
        put(&first, id, 3000, 3).expect("put");
    }
    let size = || std::fs::metadata(world.data().join("a.db")).expect("database").len();
    let before = size();
    first.execute_batch("DELETE FROM t WHERE id >= 10; PRAGMA incremental_vacuum").expect("less");
    second.execute_batch("BEGIN; SELECT * FROM t").expect("a mark");
    let [_, frames, home] = checkpoint(&first, "PASSIVE").expect("checkpoint");
    assert!(frames == home && size() < before, "{frames} frames, {home} home, {} bytes", size());
    for id in 10..20 {
        put(&second, id, 3000, 4).expect("put");
    }
    second.execute_batch("COMMIT").expect("the database grows");
    let wanted = rows(&second);
    let recorder = Recorder::end();
    let found = recovered(cut_wal(world.home.path(), true, &recorder));
    assert!(found.expect("recovered") == wanted);
}

/// The disk may show the WAL as it was before it was emptied.
#[test]
fn regression_a_generation_begins_in_a_wal_that_was_emptied() {
    onejournal_testing::own_process!();
    set_up();
    let world = World::new(true);
    let connection = open(&world, 32768);
    put(&connection, 0, 100, 1).expect("put");
    checkpoint(&connection, "TRUNCATE").expect("checkpoint");
    let cuts = Cuts::begin(&world, Vec::new());
    // The WAL itself is made durable, and then there are records.
    put(&connection, 1, 1_100_000, 1).expect("large");
    for last in 1..6 {
        put(&connection, 0, 100, last).expect("put");
        put(&connection, 2, 3000, last).expect("put");
    }
    let _ = checkpoint(&connection, "TRUNCATE").expect("checkpoint");
    cuts.now(|now| now.push(rows(&connection)));
    cuts.now(|now| {
        let mut next = now[0].clone();
        next[0].1[99] = 9;
        now.push(next);
    });
    put(&connection, 0, 100, 9).expect("a generation begins");
    assert!(rows(&connection) == cuts.now.lock().expect("now")[1]);
    for (number, (wanted, home)) in cuts.end().into_iter().enumerate() {
        let found = recovered(home).unwrap_or_else(|e| panic!("cut {number}: {e}"));
        assert!(wanted.contains(&found), "cut {number}: rows that nobody left");
    }
}

/// While the log fails, commits are syncs and the WAL goes on. At every operation the power may be
/// cut. Afterwards it begins again, and commits are records.
#[test]
fn the_wal_does_not_begin_again_while_the_log_fails() {
    onejournal_testing::own_process!();
    set_up();
    for fault in [Fault::LogTakesNothing, Fault::LogSyncsNothing] {
        for how in ["PASSIVE", "RESTART", "TRUNCATE"] {
            for is_nvram in [true, false] {
                go_on_without_log(fault, how, &World::new(is_nvram));
            }
        }
    }
}

#[test]
fn canary_a_wal_that_begins_again_while_the_log_fails() {
    onejournal_testing::own_process!();
    set_up();
    let world = World::new(true);
    let connection = open(&world, 4096);
    put(&connection, 0, 100, 1).expect("put");
    put(&connection, 0, 100, 2).expect("put");
    fault::with(Fault::RestartsWithoutLog, || {
        put(&connection, 0, 100, 3).expect("it is synced");
        let _ = checkpoint(&connection, "PASSIVE").expect("checkpoint");
        put(&connection, 0, 100, 4).expect_err("no generation begins");
    });
}

fn go_on_without_log(fault: Fault, how: &str, world: &World) {
    let connection = open(world, 4096);
    let put = |last| put(&connection, 0, 100, last).expect("put");
    (1..9).for_each(put);
    let cuts = Cuts::begin(world, Vec::new());
    fault::with(fault, || {
        for last in 9..14 {
            let mut next = rows(&connection);
            next[0].1[99] = last;
            cuts.now(|now| *now = vec![rows(&connection), next.clone()]);
            put(last);
            cuts.now(|now| *now = vec![next]);
            // The database has what the log does not know. The WAL could begin again.
            let _ = checkpoint(&connection, how);
        }
    });
    cuts.now(|now| *now = Vec::new());
    let wal_header = || {
        std::fs::read(world.data().join("a.db-wal")).expect("a WAL").get(..32).map(<[u8]>::to_vec)
    };
    let before = wal_header();
    for last in 14..17 {
        let _ = checkpoint(&connection, how).expect("checkpoint");
        put(last);
    }
    assert_ne!(wal_header(), before, "the WAL began again");
    cuts.now(|now| *now = vec![rows(&connection)]);
    for (number, (wanted, home)) in cuts.end().into_iter().enumerate() {
        let when = format!("{fault:?}, {how}, NVRAM {}, cut {number}", world.is_nvram);
        let found = recovered_in(World { home, is_nvram: world.is_nvram });
        let found = found.unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!(wanted.contains(&found), "{when}: rows that nobody left");
    }
}

/// A database whose only process with the extension has left, and which was changed without it
/// since.
fn left_and_changed(place: &Place) {
    let plain = Connection::open(place.path("a.db")).expect("plain");
    plain.execute_batch("INSERT INTO t(v) VALUES ('plain')").expect("insert");
    drop(plain);
    place.reboot();
    let connection = place.open("a.db");
    assert_eq!(count(&connection), 3);
    is_sound(&connection);
}

#[test]
fn regression_a_wal_that_is_emptied_by_the_last_connection() {
    onejournal_testing::own_process!();
    set_up();
    let place = Place::new(false);
    let connection = place.wal("a.db");
    connection.execute_batch("PRAGMA journal_size_limit=0").expect("limit");
    for number in 0..2 {
        connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
    }
    let mut is_kept: std::ffi::c_int = 1;
    let (name, operation) = (c"main".as_ptr(), ffi::SQLITE_FCNTL_PERSIST_WAL);
    let argument: *mut std::ffi::c_int = &mut is_kept;
    // SAFETY: the connection is open, and the control takes a number.
    let rc =
        unsafe { ffi::sqlite3_file_control(connection.handle(), name, operation, argument.cast()) };
    assert_eq!(rc, ffi::SQLITE_OK);
    drop(connection);
    assert_eq!(std::fs::metadata(place.path("a.db-wal")).expect("WAL").len(), 0);
    left_and_changed(&place);
}

/// While others stay, what is logged is made durable in the WAL itself, and the log knows that
/// durably.
#[test]
fn regression_the_last_to_leave_is_a_writer_or_a_reader() {
    onejournal_testing::own_process!();
    set_up();
    for (is_reader, is_torn) in [(false, false), (true, false), (true, true)] {
        let place = Place::new(false);
        let connection = place.wal("a.db");
        for number in 0..2 {
            connection.execute("INSERT INTO t(v) VALUES (?1)", [number]).expect("insert");
        }
        // A reader closes no WAL.
        let other = match is_reader {
            false => Connection::open(place.path("a.db")).expect("plain"),
            true => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(place.uri("a.db", ""), flags).expect("reader")
            }
        };
        assert_eq!(count(&other), 2);
        if is_torn {
            tear_note(&place);
        }
        drop(connection);
        drop(other);
        left_and_changed(&place);
    }
}

/// Leaves the log as a process does that dies between a record and the stream header. The record is
/// one that was logged before.
fn tear_note(place: &Place) {
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(place.path(".onejournal"), &options).expect("log");
    let names = log.stream_names().expect("names");
    let stream = log.stream(names[0].as_str()).expect("stream");
    let last = stream.read_from(stream.head()).expect("reader").last();
    stream.append(&last.expect("a record").expect("read").payload).expect("append");
}

/// Rows that were acknowledged.
fn all_are_there(cuts: Vec<(Rows, tempfile::TempDir)>) {
    assert!(cuts.len() > 10, "{} cuts", cuts.len());
    for (number, (acknowledged, home)) in cuts.into_iter().enumerate() {
        let found = recovered(home).unwrap_or_else(|e| panic!("cut {number}: {e}"));
        let missing = acknowledged.iter().find(|row| !found.contains(row));
        assert!(missing.is_none(), "cut {number}: row {} is lost", missing.expect("one").0);
    }
}

/// The kernel tells it once and counts the pages as clean.
#[test]
fn regression_a_sync_that_failed_is_not_made_good_by_the_next() {
    onejournal_testing::own_process!();
    set_up();
    for (has_checkpoint, fails_again) in [(false, false), (false, true), (true, false)] {
        let world = World::new(true);
        let connection = open(&world, 32768);
        put(&connection, 0, 100, 1).expect("put");
        let cuts = Cuts::begin(&world, rows(&connection));
        let wal = world.data().join("a.db-wal");
        let put = |id, bytes| {
            put(&connection, id, bytes, 1)?;
            cuts.now(|now| *now = rows(&connection));
            Ok::<(), rusqlite::Error>(())
        };
        for id in 1..5 {
            put(id, 3000).expect("it is logged");
        }
        Recorder::fail(&wal);
        put(5, 1_100_000).expect_err("the WAL's sync");
        if has_checkpoint {
            let brought = checkpoint(&connection, "PASSIVE");
            brought.expect_err("the disk may lack frames for good");
        }
        if fails_again {
            Recorder::fail(&wal);
            put(6, 100).expect_err("the WAL's sync");
        }
        for id in 6..9 {
            put(id, 3000).expect("behind it");
        }
        put(9, 1_100_000).expect("the WAL is durable");
        put(10, 100).expect("it is logged");
        checkpoint(&connection, "RESTART").expect("checkpoint");
        put(11, 100).expect("another generation");
        all_are_there(cuts.end());
    }
}

/// In the first transaction of a generation too, and when the generation is not the log's.
#[test]
fn regression_a_sync_that_failed_before_the_wal_was_ever_durable() {
    onejournal_testing::own_process!();
    set_up();
    for is_plain in [false, true] {
        for failing in 0..3 {
            let world = World::new(true);
            let connection = open(&world, 32768);
            put(&connection, 0, 100, 1).expect("put");
            checkpoint(&connection, "TRUNCATE").expect("checkpoint");
            let cuts = Cuts::begin(&world, rows(&connection));
            let put = |id, bytes| {
                put(&connection, id, bytes, 1)?;
                cuts.now(|now| *now = rows(&connection));
                Ok::<(), rusqlite::Error>(())
            };
            if is_plain {
                let plain = world.try_open("crash").expect("plain");
                let sql = "PRAGMA synchronous=NORMAL; INSERT INTO t VALUES (1, x'01')";
                plain.execute_batch(sql).expect("plain");
            }
            // The header's, if there is one, and the commit's.
            for id in 2..2 + failing {
                Recorder::fail(&world.data().join("a.db-wal"));
                put(id, 3000).expect_err("the WAL's sync");
            }
            for id in 5..20 {
                put(id, 3000).expect("behind it");
            }
            all_are_there(cuts.end());
        }
    }
}

/// Recovery fails to sync the frames in the WAL, so the next one writes them again before its sync.
#[test]
fn regression_a_sync_that_failed_in_recovery_is_not_made_good_by_the_next() {
    onejournal_testing::own_process!();
    set_up();
    let world = World::new(true);
    let connection = open(&world, 4096);
    for id in 0..5 {
        put(&connection, id, 3000, 1).expect("it is logged");
    }
    let wanted = rows(&connection);
    // A restart that takes nothing.
    Recorder::begin(&world.data(), Box::new(|_| {}));
    let left = cut_wal(world.home.path(), true, &Recorder::end());
    let world = World { home: left, is_nvram: true };
    let rows_of = || world.try_open("onejournal").map(|connection| rows(&connection));
    Recorder::begin(&world.data(), Box::new(|_| {}));
    Recorder::fail(&world.data().join("a.db-wal"));
    let count = "SELECT count(*) FROM t";
    let opened = world.try_open("onejournal");
    let read = opened.and_then(|it| it.query_row(count, [], |row| row.get::<_, i64>(0)));
    read.expect_err("the WAL's sync");
    assert!(!Recorder::end().is_failing());
    Recorder::begin(&world.data(), Box::new(|_| {}));
    assert!(rows_of().expect("recovered") == wanted);
    let events = Recorder::end().events;
    let of_wal: Vec<Event> =
        events.iter().filter(|(name, _)| name == "a.db-wal").map(|(_, event)| *event).collect();
    let synced = of_wal.iter().position(|event| *event == Event::Sync).expect("a sync");
    let is_write = |event: &Event| *event == Event::Write;
    assert!(synced > 0 && of_wal[..synced].iter().all(is_write), "{of_wal:?}");
}

/// Frames of a commit with `synchronous=NORMAL` follow the logged ones. A checkpoint copies them
/// all, and then SQLite removes or empties the WAL.
#[test]
fn regression_a_wal_goes_with_frames_that_the_log_lacks() {
    onejournal_testing::own_process!();
    set_up();
    for is_emptied in [false, true] {
        let world = World::new(true);
        let (full, normal) = (open(&world, 4096), open(&world, 4096));
        normal.execute_batch("PRAGMA synchronous=NORMAL").expect("setup");
        for id in 0..5 {
            put(&full, id, 3000, 1).expect("it is logged");
        }
        let before = rows(&full);
        put(&normal, 2, 3000, 2).expect("it is not");
        let wanted = rows(&full);
        let cuts: Arc<Mutex<Vec<tempfile::TempDir>>> = Arc::default();
        let hook = {
            let (cuts, home) = (cuts.clone(), world.home.path().to_owned());
            move |recorder: &Recorder| {
                let all = [cut_wal(&home, true, recorder), cut_nothing(&home, true, recorder)];
                cuts.lock().expect("cuts").extend(all);
            }
        };
        Recorder::begin(&world.data(), Box::new(hook));
        match is_emptied {
            true => assert_eq!(checkpoint(&full, "TRUNCATE").expect("checkpoint")[0], 0),
            false => drop((full, normal)),
        }
        Recorder::point();
        Recorder::end();
        for left in std::mem::take(&mut *cuts.lock().expect("cuts")) {
            let found = recovered(left).expect("recovered");
            assert!(found == wanted || found == before);
        }
    }
}
