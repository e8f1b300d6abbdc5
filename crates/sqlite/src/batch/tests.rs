//! Background syncs of two processes, stepped by hand. In any order of the steps, the log gives
//! what was committed, over what the last sync made durable.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use log::{Log, Lsn, Options};

use super::commit::Committed;
use super::held::HeldPages;
use super::replay::{Replayed, replay};
use crate::abi::ffi::SQLITE_IOERR_FSYNC;
use crate::abi::opened::Opened;
use crate::batch::background::take_over;
use crate::database::Database;
use crate::database::opening::file_at;
use crate::failure::Failure;
use crate::format::home;
use crate::format::wal;
use crate::stream::doubt::leave_doubt;
use crate::stream::live::{Contents, read_live};
use crate::stream::stamp::Stamp;
use crate::stream::stamped::Stream;
use crate::test_load::{self, settings_in};

const PAGE_BYTES: usize = 512;

/// A directory for a database, its log and its memory.
fn directory() -> TempDir {
    let home = test_load::directory();
    // As much as is needed for a header; what the pages hold does not matter here.
    let mut header = [0; PAGE_BYTES];
    header[..16].copy_from_slice(b"SQLite format 3\0");
    header[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_be_bytes());
    header[28..32].copy_from_slice(&3_u32.to_be_bytes());
    std::fs::write(path(&home), [&header[..], &[0; 2 * PAGE_BYTES]].concat()).expect("database");
    home
}

fn path(home: &TempDir) -> PathBuf {
    home.path().join("a.db")
}

fn content(home: &TempDir) -> Vec<u8> {
    std::fs::read(path(home)).expect("database")
}

/// A process that has the database open.
struct Process {
    database: Arc<Database>,
    main: Opened,
    /// Where the log ended after its last commit.
    upto: u64,
}

impl Process {
    fn new(home: &TempDir) -> Process {
        Process::with(home, None)
    }

    fn with(home: &TempDir, recover: Option<&str>) -> Process {
        // Each commit has a sync begin, when the test says so.
        take_over(0, u64::MAX);
        let path = path(home);
        let (below, settings) = settings_in(home, &path, recover);
        let main = Opened::main(below, &path).expect("open");
        let file = file_at(&path, main.real()).expect("file");
        let database = Arc::new(Database::new(path, file, settings, below));
        assert!(database.open_log(main.real(), true).expect("log"));
        Process { database, main, upto: 0 }
    }

    /// Commits a transaction that fills page 2 with `value`.
    fn commit(&mut self, value: u8) {
        let main = self.main.real();
        let mut page = [0; PAGE_BYTES];
        main.read(0, &mut page).expect("read");
        let counter = wal::change_counter(&page) + 1;
        for at in [24, 92] {
            page[at..at + 4].copy_from_slice(&counter.to_be_bytes());
        }
        let mut held = HeldPages::default();
        assert!(held.push(0, &page) && held.push(PAGE_BYTES as u64, &[value; PAGE_BYTES]));
        let done = self.database.commit_batch(main, &held);
        let Ok(Committed { sync_upto: Some(upto), .. }) = done else { panic!("no sync is due") };
        self.upto = upto;
    }

    /// A sync begins that is due since the last commit.
    fn begin(&mut self) {
        self.database.begin_sync(self.main.real(), self.upto);
    }

    /// The file is synced, or then the log told.
    fn step(&mut self) {
        self.database.step_sync();
    }
}

/// After a power cut that leaves `durable` of the database the log has the rest.
fn assert_recovers(home: &TempDir, process: &mut Process, durable: &[u8]) {
    let newest = content(home);
    let read = process.database.with_stream(read_live).expect("read").expect("it is open");
    let Contents::Live(live) = read else { panic!("no transactions") };
    std::fs::write(path(home), durable).expect("cut");
    assert!(matches!(replay(&live.batches, process.main.real()), Ok(Replayed::Done)));
    assert!(content(home) == newest, "something is lost");
}

#[test]
fn regression_syncs_of_two_processes_overlap() {
    let home = directory();
    let (mut a, mut b) = (Process::new(&home), Process::new(&home));
    a.commit(1);
    a.begin();
    a.step();
    b.commit(2);
    b.begin();
    b.step();
    let durable = content(&home);
    a.step();
    b.step();
    a.commit(3);
    assert_recovers(&home, &mut a, &durable);
    b.commit(4);
    assert_recovers(&home, &mut b, &durable);
}

#[test]
fn regression_a_sync_ends_between_a_commit_and_the_next_sync() {
    let home = directory();
    let mut process = Process::new(&home);
    process.commit(1);
    process.begin();
    process.step();
    process.commit(2);
    process.step();
    process.begin();
    process.step();
    let durable = content(&home);
    process.step();
    process.commit(3);
    assert_recovers(&home, &mut process, &durable);
    process.commit(4);
    assert_recovers(&home, &mut process, &durable);
}

#[test]
fn transactions_without_their_beginning_are_damage() {
    let home = directory();
    let mut process = Process::new(&home);
    process.commit(1);
    let begin = process.upto;
    process.commit(2);
    let read = |upto: u64| {
        let read = process.database.with_stream(|stream| {
            stream.truncate_before(Lsn(begin))?;
            stream.append(&home::encode(upto))?;
            read_live(stream)
        });
        read.expect("read").expect("it is open")
    };
    assert!(matches!(read(begin - 1), Contents::Damaged(_)), "the database lacks the first");
    assert!(matches!(read(begin), Contents::Live(live) if live.batches.len() == 1));
}

/// The database's stream in another process, which has the lease.
fn rival(home: &TempDir, database: &Database) -> Stream {
    let options = Options {
        nvram: Some(home.path().join("nvram")),
        durability: Some(device::Durability::Process),
        memory: home.path().join("memory"),
        ..Options::default()
    };
    let log = Log::open(&database.settings.directory, &options).expect("log");
    let name = database.with_stream(|stream| Ok(stream.name().to_string()));
    let name = name.expect("read").expect("it is open");
    let stream = Stream::new(log.stream(&name).expect("stream"), Stamp::default());
    stream.acquire().expect("lease");
    stream
}

/// The database lacks something: the lease cannot be released until the log was replayed.
fn check_hot(process: &mut Process, releases: usize) {
    let database = process.database.clone();
    for _ in 0..releases {
        let released = database.release(process.main.real());
        assert!(released.is_err_and(|e| e.damage().is_ok()), "the database lacks something");
        assert!(matches!(database.is_hot(), Ok(true)));
    }
    database.finish_hot(process.main.real()).expect("replay");
    assert!(matches!(database.is_hot(), Ok(false)));
    process.commit(2);
    database.release(process.main.real()).expect("nothing is in doubt");
}

/// The next sync does not count.
#[test]
fn regression_a_failed_sync_is_told_when_the_lease_can_be_had_again() {
    crate::test_load::load();
    let home = directory();
    let mut process = Process::new(&home);
    process.commit(1);
    let database = process.database.clone();
    let rival = rival(&home, &database);
    let failure = Failure::Sqlite { code: SQLITE_IOERR_FSYNC, what: "syncing" };
    database.synced(process.upto, Err(failure));
    assert!(database.background.take_failure().is_some());
    assert!(database.is_hot().is_err(), "nobody knows yet");
    rival.release();
    check_hot(&mut process, 1);
}

#[test]
fn damage_is_given_up_when_that_is_asked_for_also_while_the_machine_runs() {
    crate::test_load::load();
    let home = directory();
    let mut process = Process::new(&home);
    process.commit(1);
    let begin = process.upto;
    process.commit(2);
    let truncated = process.database.with_stream(|stream| Ok(stream.truncate_before(Lsn(begin))?));
    truncated.expect("it is open");
    let failure = Failure::Sqlite { code: SQLITE_IOERR_FSYNC, what: "syncing" };
    process.database.synced(process.upto, Err(failure));
    let refused = process.database.finish_hot(process.main.real()).expect_err("damage");
    assert!(refused.to_string().contains("recover=discard"), "{refused}");
    let other = Process::with(&home, Some("discard"));
    other.database.finish_hot(other.main.real()).expect("given up");
    assert!(matches!(process.database.is_hot(), Ok(false)));
    process.commit(3);
}

/// It kept the lease, while another process ended that had seen a sync fail.
#[test]
fn a_failed_sync_is_known_after_its_process_has_ended() {
    let home = directory();
    let (mut process, mut other) = (Process::new(&home), Process::new(&home));
    process.commit(1);
    let rival = rival(&home, &process.database);
    let failure = Failure::Sqlite { code: SQLITE_IOERR_FSYNC, what: "syncing" };
    process.database.synced(process.upto, Err(failure));
    drop(process);
    rival.release();
    // Its own sync is good: the kernel reports an error only once.
    check_hot(&mut other, 2);
}

#[test]
fn a_failed_sync_is_heard_of_before_a_sync_of_another_process_counts() {
    let home = directory();
    let (mut process, mut other) = (Process::new(&home), Process::new(&home));
    process.commit(1);
    other.commit(2);
    let durable = content(&home);
    let left = process.database.with_log(leave_doubt);
    left.expect("left");
    other.begin();
    other.step();
    other.step();
    assert!(matches!(other.database.is_hot(), Ok(true)));
    other.database.finish_hot(other.main.real()).expect("replay");
    process.commit(3);
    assert_recovers(&home, &mut other, &durable);
}
