//! A process that was forked: it takes part in a log by itself, and what it has a copy of does
//! nothing. One test only: a fork takes a copy of the locks that other threads hold.

use crate::common;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Place, copy_tree, count, is_sound, load};
use onejournal_sqlite::checkpoints;
use rusqlite::Connection;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(process: c_int, signal: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs `f` in a forked process, and `meanwhile` here; `f` must not fail.
fn forked(f: impl FnOnce(), meanwhile: impl FnOnce()) {
    // SAFETY: the child has this thread alone, which holds no lock, and never returns from here.
    let child = unsafe { fork() };
    if child == 0 {
        let failed = catch_unwind(AssertUnwindSafe(f)).is_err();
        // SAFETY: it ends the process.
        unsafe { _exit(c_int::from(failed)) }
    }
    assert!(child > 0, "fork");
    meanwhile();
    let mut status = -1;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
}

fn insert(connection: &Connection, rows: usize) {
    for _ in 0..rows {
        let sql = "INSERT INTO t(v) VALUES (hex(randomblob(20000)))";
        connection.execute(sql, []).expect("insert");
    }
}

#[test]
fn forked_processes() {
    onejournal_testing::own_process!();
    a_forked_process_holds_nothing_of_a_parent_that_died();
    what_was_opened_before_a_fork_does_nothing_behind_it();
    a_forked_process_takes_part_by_itself();
    a_forked_process_has_checkpoints_of_its_own();
}

/// The child knows nothing of a checkpoint that has begun in the parent. Checkpoints run by hand: a
/// fork while another thread uses SQLite would copy the locks that it holds.
fn a_forked_process_has_checkpoints_of_its_own() {
    checkpoints::take_over();
    let place = Place::new(false);
    let open = |name| {
        drop(place.wal(name));
        let connection = place.try_open(name, "&checkpoint=background").expect("open");
        let setup = "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=3";
        connection.execute_batch(setup).expect("setup");
        connection
    };
    let parents = open("a.db");
    insert(&parents, 5);
    let in_child = || {
        let own = open("b.db");
        insert(&own, 5);
        checkpoints::step();
        insert(&own, 5);
        drop(own);
        assert!(!place.path("b.db-wal").exists());
    };
    forked(in_child, || insert(&parents, 5));
    checkpoints::step();
    insert(&parents, 20);
    drop(parents);
    assert!(!place.path("a.db-wal").exists());
    for (name, rows) in [("a.db", 30), ("b.db", 10)] {
        let connection = place.open(name);
        assert_eq!(count(&connection), rows, "{name}");
        is_sound(&connection);
    }
}

fn a_forked_process_takes_part_by_itself() {
    load();
    let place = Place::new(false);
    let parents = place.wal("a.db");
    let durable = usize::try_from(place.wal_bytes("a.db")).expect("small");
    insert(&parents, 1);
    let in_child = || {
        let own = place.wal("b.db");
        assert_eq!(place.wal_bytes("b.db"), durable as u64);
        insert(&own, 30);
        let clients = std::fs::read_dir(place.path(".onejournal/clients")).expect("clients");
        assert_eq!(clients.count(), 2, "one of each process");
        // Not closed: the power goes.
        std::mem::forget(own);
    };
    forked(in_child, || insert(&parents, 30));
    let after = Place::new(false);
    std::fs::remove_dir_all(&after.root).expect("empty");
    copy_tree(&place.root, &after.root);
    for name in ["a.db", "b.db"] {
        std::fs::remove_file(after.path(&format!("{name}-shm"))).expect("shared memory");
        // What came after the first two transactions was not synced.
        let wal = after.path(&format!("{name}-wal"));
        let mut bytes = std::fs::read(&wal).expect("WAL");
        bytes[durable..].fill(0);
        std::fs::write(wal, bytes).expect("WAL");
    }
    for (name, rows) in [("a.db", 31), ("b.db", 30)] {
        let connection = after.try_open(name, "").expect("recovered");
        assert_eq!(count(&connection), rows, "{name}");
        is_sound(&connection);
    }
}

fn what_was_opened_before_a_fork_does_nothing_behind_it() {
    let place = Place::new(false);
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(place.path("log"), &options).expect("log");
    let stream = log.stream("s").expect("stream");
    let first = stream.append(b"before").expect("append");
    stream.sync(first).expect("sync");
    let copies = std::cell::RefCell::new(Some((log, stream)));
    let in_child = || {
        let (log, stream) = copies.take().expect("a copy");
        let refused = |e: Option<log::LogError>| {
            let text = e.expect("refused").to_string();
            assert!(text.contains("forked"), "{text}");
        };
        refused(stream.append(b"child").err());
        refused(stream.sync(first).err());
        refused(stream.truncate_before(first).err());
        refused(log.stream("s").err());
        stream.release();
        drop(stream);
        log.close().expect("nothing");
        let own = log::Log::open(place.path("log"), &options).expect("a log of its own");
        let error = own.stream("s").expect("stream").append(b"child").expect_err("leased");
        assert!(matches!(error, log::LogError::Busy(_)), "{error}");
        own.close().expect("closed");
    };
    forked(in_child, || {});
    let (log, stream) = copies.take().expect("ours");
    let last = stream.append(b"after").expect("append");
    stream.sync(last).expect("sync");
    let records: Vec<_> =
        stream.read_from(first).expect("read").map(|r| r.expect("record").payload).collect();
    assert_eq!(records, [b"before".to_vec(), b"after".to_vec()]);
    drop(stream);
    log.close().expect("closed");
}

fn a_forked_process_holds_nothing_of_a_parent_that_died() {
    let place = Place::new(false);
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let open = || log::Log::open(place.path("log"), &options).expect("log");
    drop(open());
    // The grandchild lives until this end of the pipe is closed.
    let (mut end, hold) = std::io::pipe().expect("pipe");
    let (mut begun, begin) = std::io::pipe().expect("pipe");
    // SAFETY: as in `forked`, for both.
    let child = unsafe { fork() };
    if child == 0 {
        let log = open();
        let stream = log.stream("s").expect("stream");
        stream.append(b"leased").expect("append");
        drop(hold);
        // SAFETY: see above.
        if unsafe { fork() } > 0 {
            loop {
                std::thread::park();
            }
        }
        // Said here: a child closes what its parent holds as soon as it runs, and not before.
        std::io::Write::write_all(&mut &begin, b"!").expect("say so");
        let _ = std::io::Read::read(&mut end, &mut [0]);
        // SAFETY: it ends the process.
        unsafe { _exit(0) }
    }
    std::io::Read::read_exact(&mut begun, &mut [0]).expect("both run");
    let (log, mut status) = (open(), 0);
    let stream = log.stream("s").expect("stream");
    assert!(matches!(stream.acquire(), Err(log::LogError::Busy(_))), "its writer lives");
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { (kill(child, 9), waitpid(child, &raw mut status, 0)) }, (0, child));
    stream.acquire().expect("nobody has the lease, whoever lives of its children");
    drop(hold);
}
