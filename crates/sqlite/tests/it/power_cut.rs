//! Power cuts at any moment of random workloads: every acknowledged transaction is there
//! afterwards, none is half done, and recovery that is cut itself gives the same.
//!
//! `KEEP=1` keeps the files of a failure.

use crate::common;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use common::crash_vfs::{self, Recorder};
use common::world::{World, cut};
use common::{is_sound, load};
use onejournal_sqlite::{background, checkpoints};
use onejournal_testing::{test_name, tier};
use rusqlite::Connection;

/// What every transaction left, by its number.
#[derive(Default, Clone)]
struct Model {
    hashes: Vec<u64>,
    acknowledged: usize,
}

/// A moment at which the power went.
struct Cut {
    home: tempfile::TempDir,
    model: Model,
    id: String,
}

fn hash(connection: &Connection) -> rusqlite::Result<u64> {
    let mut all = Vec::new();
    let mut statement = connection.prepare("SELECT id, v FROM kv ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        all.extend_from_slice(&row.get::<_, i64>(0)?.to_le_bytes());
        all.extend_from_slice(row.get_ref(1)?.as_blob().expect("blob"));
    }
    Ok(u64::from(crc32c::crc32c(&all)) << 32 | all.len() as u64)
}

/// A value that is more than half of the log's pool, which takes no such record.
const REFUSED_BYTES: usize = 600_000;
/// One that a record takes, with the index's copy of it: a few of them end a period.
const LARGE_BYTES: usize = 200_000;

/// One transaction, the next in number. Whether it was committed.
fn transact(
    connection: &Connection,
    random: &mut fastrand::Rng,
    model: &Mutex<Model>,
    value_bytes: Option<usize>,
) -> rusqlite::Result<bool> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    if let Some(count) = value_bytes {
        let bytes: Vec<u8> = (0..count).map(|_| random.u8(..)).collect();
        connection.execute("REPLACE INTO kv VALUES (60, ?1)", [bytes])?;
    }
    if value_bytes == Some(REFUSED_BYTES) || random.u32(..6) == 0 {
        connection.execute_batch("SAVEPOINT s; DELETE FROM kv; ROLLBACK TO s; RELEASE s")?;
    }
    for _ in 0..random.usize(1..8) {
        let id = random.i64(..60);
        match random.u32(..10) {
            0..2 => connection.execute("DELETE FROM kv WHERE id = ?1", [id])?,
            2..4 => connection.execute("UPDATE kv SET v = v || x'00ff' WHERE id = ?1", [id])?,
            _ => {
                let len = [20, 200, 3000][random.usize(..3)];
                let bytes: Vec<u8> = (0..random.usize(..len)).map(|_| random.u8(..)).collect();
                connection.execute("REPLACE INTO kv VALUES (?1, ?2)", (id, bytes))?
            }
        };
    }
    if random.u32(..12) == 0 {
        connection.execute_batch("ROLLBACK")?;
        return Ok(false);
    }
    let next = hash(connection)?;
    let number = {
        let mut model = model.lock().expect("model");
        model.hashes.push(next);
        model.hashes.len() - 1
    };
    connection.execute("UPDATE meta SET n = ?1", [number])?;
    connection.execute_batch("COMMIT")?;
    Ok(true)
}

fn acknowledge(model: &Mutex<Model>) {
    let mut model = model.lock().expect("model");
    model.acknowledged = model.hashes.len() - 1;
}

/// What a search is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// WAL mode.
    Wal,
    /// Rollback modes, transactions being records, and changes between them and WAL.
    Rollback,
}

/// A random workload with cuts, which are returned; or what the workload itself was refused.
fn run(about: About, seed: u64) -> Result<Vec<Cut>, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    checkpoints::take_over();
    // Few transactions fill so much log that a sync begins after them, or that one of them syncs.
    match seed % 3 {
        0 => background::take_over(u64::MAX, 64 << 10),
        _ => background::take_over(8 << 10, 1 << 20),
    }
    let world = World::new(random.bool());
    let page_bytes = [512, 1024, 4096, 4096, 8192, 65536][random.usize(..6)];
    let vacuum = match about {
        About::Wal => ["NONE", "NONE", "FULL", "INCREMENTAL"][random.usize(..4)],
        About::Rollback => ["NONE", "NONE", "FULL", "INCREMENTAL"][random.usize(..4)],
    };
    let first = world.try_open("onejournal").expect("open");
    let setup = format!(
        "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={vacuum};
         PRAGMA journal_mode={}; PRAGMA synchronous=FULL;
         CREATE TABLE kv(id INTEGER PRIMARY KEY, v); CREATE INDEX kv_v ON kv(v);
         CREATE TABLE meta(n); INSERT INTO meta VALUES (0)",
        mode_of(about, &mut random)
    );
    first.execute_batch(&setup).expect("setup");
    drop(first);
    let model = Arc::new(Mutex::new(Model { hashes: vec![0], acknowledged: 0 }));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (home, is_nvram) = (world.home.path().to_owned(), world.is_nvram);
        let (model, cuts) = (model.clone(), cuts.clone());
        let mut random = fastrand::Rng::with_seed(seed ^ 1);
        let odds = if about == About::Wal { 150 } else { 80 };
        Box::new(move |recorder: &Recorder| {
            let mut cuts = cuts.lock().expect("cuts");
            if random.u32(..odds) == 0 && cuts.len() < 12 {
                let model = model.lock().expect("model").clone();
                let id = format!("{about:?}, seed {seed}, operation {}", recorder.op_count);
                let home = cut(&home, is_nvram, recorder, &mut random);
                cuts.push(Cut { home, model, id });
            }
        })
    };
    Recorder::begin(&world.data(), hook);
    let worked = (0..random.usize(1..4)).try_for_each(|_| {
        let mode = mode_of(about, &mut random);
        work(&world, about, mode, seed, &mut random, &model)
    });
    Recorder::end();
    worked.map_err(|error| format!("{about:?}, seed {seed}, without a cut: {error}"))?;
    Ok(Arc::into_inner(cuts).expect("the hook is gone").into_inner().expect("cuts"))
}

fn mode_of(about: About, random: &mut fastrand::Rng) -> &'static str {
    match about {
        About::Wal => "WAL",
        About::Rollback => ["DELETE", "DELETE", "TRUNCATE", "PERSIST", "WAL"][random.usize(..5)],
    }
}

/// Whether a connection without the extension takes part.
fn has_plain(seed: u64) -> bool {
    seed % 4 == 1
}

/// Connections come, work and go.
fn work(
    world: &World,
    about: About,
    mode: &str,
    seed: u64,
    random: &mut fastrand::Rng,
    model: &Mutex<Model>,
) -> rusqlite::Result<()> {
    let is_wal = mode == "WAL";
    let has_normal = is_wal && seed % 3 == 1;
    let cache = [2, 10, 1000, 1000][random.usize(..4)];
    let checkpoint = [3, 10, 30, 1000][random.usize(..4)];
    // Checkpoints of the first two connections, in one search of two.
    let more = if is_wal && seed.is_multiple_of(2) { "&checkpoint=background" } else { "" };
    let open = |vfs: &str, level: &str| {
        let more = if vfs == "onejournal" && level == "FULL" { more } else { "" };
        let connection = world.try_open_with(vfs, more)?;
        let setup = format!(
            "PRAGMA synchronous={level}; PRAGMA cache_size={cache};
             PRAGMA journal_mode={mode}; PRAGMA wal_autocheckpoint={checkpoint}"
        );
        connection.execute_batch(&setup)?;
        Ok::<_, rusqlite::Error>(connection)
    };
    let mut all = vec![(open("onejournal", "FULL")?, true), (open("onejournal", "FULL")?, true)];
    if has_plain(seed) {
        // FULL does not sync the removal of a rollback journal: the last transaction may be undone.
        all.push((open("crash", "EXTRA")?, true));
    }
    if has_normal {
        all.push((open("onejournal", "NORMAL")?, false));
    }
    let reader = open("onejournal", "FULL")?;
    let page_bytes: usize = reader.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let can_be_large = about == About::Rollback && page_bytes >= 4096;
    let is_heavy = random.u32(..4) == 0;
    for _ in 0..random.usize(5..40) {
        // Background syncs begin and end between transactions. A sync may end later than the next
        // transactions.
        for _ in 0..random.usize(..3) {
            background::step();
        }
        if random.u32(..3) == 0 {
            checkpoints::step();
        }
        let (connection, is_full) = &all[random.usize(..all.len())];
        let value_bytes = match random.u32(..12) {
            _ if !can_be_large || cache < 1000 => None,
            0 if !is_heavy => Some(REFUSED_BYTES),
            0..9 if is_heavy => Some(LARGE_BYTES),
            _ => None,
        };
        match random.u32(..20) {
            0 if is_wal => {
                let how = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][random.usize(..4)];
                let _ = connection.execute_batch(&format!("PRAGMA wal_checkpoint({how})"));
            }
            0 => drop(connection.execute_batch("PRAGMA incremental_vacuum(3)")),
            1 if is_wal => drop(reader.execute_batch("BEGIN; SELECT * FROM meta")),
            2 if is_wal => drop(reader.execute_batch("COMMIT")),
            3 if random.u32(..4) == 0 => {
                let size = [4096, 8192, 65536][random.usize(..3)];
                if !is_wal && random.bool() {
                    connection.execute_batch(&format!("PRAGMA page_size={size}"))?;
                }
                drop(connection.execute_batch("VACUUM"));
            }
            _ => {
                let done = transact(connection, random, model, value_bytes);
                if done? && *is_full {
                    acknowledge(model);
                }
                Recorder::point();
            }
        }
    }
    drop(reader);
    while !all.is_empty() {
        drop(all.swap_remove(random.usize(..all.len())));
    }
    Ok(())
}

/// What is wrong after a cut; the number of the last transaction.
fn verify(
    world: &World,
    about: About,
    model: &Model,
    seed: u64,
    is_nested: bool,
) -> Result<usize, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let nested: Arc<Mutex<Option<tempfile::TempDir>>> = Arc::default();
    let when = random.u64(1..40);
    let hook = {
        let (home, is_nvram) = (world.home.path().to_owned(), world.is_nvram);
        let (nested, mut random) = (nested.clone(), random.clone());
        Box::new(move |recorder: &Recorder| {
            if recorder.op_count == when {
                *nested.lock().expect("cut") = Some(cut(&home, is_nvram, recorder, &mut random));
            }
        })
    };
    Recorder::begin(&world.data(), hook);
    let read = look(world, about, model, seed);
    Recorder::end();
    let read = read?;
    let second = nested.lock().expect("cut").take();
    if let (Some(home), false) = (second, is_nested) {
        let again = World { home, is_nvram: world.is_nvram };
        let found = verify(&again, about, model, seed, true);
        let found = found
            .map_err(|e| format!("cut again before operation {when}: {e}{}", keep(again.home)))?;
        if found != read {
            return Err(format!("recovered to {read}, but cut meanwhile to {found}"));
        }
    }
    Ok(read)
}

/// With `KEEP=1` the files stay, and where.
fn keep(home: tempfile::TempDir) -> String {
    match std::env::var_os("KEEP") {
        Some(_) => format!(" ({})", home.keep().display()),
        None => String::new(),
    }
}

/// Stands for the number of a transaction when the log cannot be replayed, because a program
/// without the extension changed the database.
const REFUSED: usize = usize::MAX;

/// Whether the log's records are not for this database, because a program without the extension
/// changed it.
fn is_conflict(error: &rusqlite::Error, seed: u64) -> bool {
    has_plain(seed) && error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen)
}

fn look(world: &World, about: About, model: &Model, seed: u64) -> Result<usize, String> {
    let failed = |e: rusqlite::Error| e.to_string();
    let connection = match (world.try_open("onejournal"), about) {
        // A program without the extension may have been writing a transaction to the database, over
        // pages that are in the log only: the database has to be refused.
        (Err(error), About::Rollback) if is_conflict(&error, seed) => return Ok(REFUSED),
        // What others wrote meanwhile without the extension cannot always be told from what they
        // might have done to the database after the crash. Nothing is lost without the log then.
        (Err(error), _) if is_conflict(&error, seed) => {
            world.try_open_with("onejournal", "&recover=discard")
        }
        (opened, _) => opened,
    };
    let connection = connection.map_err(failed)?;
    let number: i64 =
        connection.query_row("SELECT n FROM meta", [], |row| row.get(0)).map_err(failed)?;
    let check: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(failed)?;
    if check != "ok" {
        return Err(check);
    }
    let number = usize::try_from(number).expect("a number");
    if number < model.acknowledged || number >= model.hashes.len() {
        let (least, most) = (model.acknowledged, model.hashes.len() - 1);
        return Err(format!("transaction {number} is the last, not {least} to {most}"));
    }
    if number > 0 && hash(&connection).map_err(failed)? != model.hashes[number] {
        return Err(format!("not what transaction {number} left"));
    }
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS more(x); DROP TABLE more")
        .map_err(failed)?;
    drop(connection);
    let plain = world.try_open("crash").map_err(failed)?;
    is_sound(&plain);
    let again = plain.query_row("SELECT n FROM meta", [], |row| row.get::<_, i64>(0));
    match again.map_err(failed)? == number as i64 {
        true => Ok(number),
        false => Err("the closed database lacks something".into()),
    }
}

/// Cuts until so many were looked at, or one is wrong.
fn search(about: About, cut_count: usize, seeds: Range<u64>) -> Result<usize, String> {
    crash_vfs::register();
    load();
    let (mut seen, mut refused) = (0, 0);
    for seed in seeds {
        for cut in run(about, seed)? {
            let is_nvram = std::fs::read_dir(cut.home.path().join("nvram"))
                .is_ok_and(|mut entries| entries.next().is_some());
            let world = World { home: cut.home, is_nvram };
            let found = verify(&world, about, &cut.model, seed, false)
                .map_err(|e| format!("{}: {e}{}", cut.id, keep(world.home)))?;
            refused += usize::from(found == REFUSED);
            seen += 1;
        }
        if seen >= cut_count {
            break;
        }
    }
    println!("{about:?}: {seen} cuts, {refused} refused");
    assert!(seen < 100 || refused * 4 < seen, "{refused} of {seen} were refused");
    Ok(seen)
}

fn all_is_well(name: &str, about: About) {
    match search(about, tier::count(150), tier::seeds_without_end(name)) {
        Ok(seen) => println!("{seen} cuts"),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_done() {
    onejournal_testing::own_process!();
    all_is_well(test_name!(), About::Wal);
}

#[test]
fn nothing_acknowledged_is_lost_when_transactions_are_records() {
    onejournal_testing::own_process!();
    all_is_well(test_name!(), About::Rollback);
}

/// The seeds are fixed, and begin with the one that finds the fault today.
#[test]
fn the_faults_are_found() {
    onejournal_testing::own_process!();
    use onejournal_sqlite::Fault;
    let faults = [
        (About::Wal, Fault::SkipsAppend, 1),
        (About::Wal, Fault::AppliesBackwards, 1),
        (About::Wal, Fault::ForgetsStale, 2),
        (About::Rollback, Fault::SkipsRecordSync, 4),
        (About::Rollback, Fault::SkipsPeriodSync, 18),
        (About::Rollback, Fault::SkipsRelease, 2),
        (About::Rollback, Fault::SkipsHomeSync, 4),
        (About::Rollback, Fault::HomeCoversLater, 35),
    ];
    for (about, fault, first_seed) in faults {
        let found = fault::with(fault, || search(about, 600, first_seed..u64::MAX));
        println!("{fault:?}: {found:?}");
        assert!(found.is_err(), "{fault:?} was not found");
    }
}
