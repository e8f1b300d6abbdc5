//! Threads that share a cache (`cache=shared`): SQLite then has one file for all of them, and calls
//! it from two threads at once when a connection is opened and in a hook.

use crate::common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Place, count, is_sound, load, told};
use rusqlite::{Connection, ErrorCode};

const WRITERS: usize = 2;
const ROWS: usize = 600;
/// A writer uses a connection for so many rows.
const ROWS_OF_CONNECTION: usize = 40;

/// Repeats what failed because another connection to the cache was in a transaction. SQLite has no
/// busy handler for that.
fn repeated<T>(mut f: impl FnMut() -> rusqlite::Result<T>) -> T {
    loop {
        match f() {
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseLocked) => {
                std::thread::yield_now();
            }
            result => return result.unwrap_or_else(|e| panic!("{e}; told: {:?}", told())),
        }
    }
}

/// Whether anything panicked. The extension keeps a panic from SQLite, and may answer as if there
/// was none.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

fn set_up() {
    load();
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        HAS_PANICKED.store(true, Ordering::Relaxed);
        print(info);
    }));
}

/// Writers write rows while other connections come and go.
fn writes_rows(mode: &str, more: &str) {
    let place = Place::new(false);
    let more = &format!("&cache=shared{more}");
    let open = || place.try_open("a.db", more).expect("open");
    let first = open();
    let setup = format!("PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    first.execute_batch(&setup).expect("setup");
    let left = AtomicUsize::new(WRITERS);
    let write = || {
        for _ in 0..ROWS / ROWS_OF_CONNECTION {
            let connection = open();
            repeated(|| connection.execute_batch("PRAGMA wal_autocheckpoint=10"));
            for _ in 0..ROWS_OF_CONNECTION {
                repeated(|| connection.execute("INSERT INTO t(v) VALUES (zeroblob(900))", []));
            }
        }
        left.fetch_sub(1, Ordering::Relaxed);
    };
    let come_and_go = || {
        while left.load(Ordering::Relaxed) > 0 {
            drop(open());
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
        scope.spawn(come_and_go);
        for writer in writers {
            // The scope waits for the other thread.
            writer.join().inspect_err(|_| left.store(0, Ordering::Relaxed)).expect("writer");
        }
    });
    assert_eq!(count(&first), (WRITERS * ROWS) as i64);
    drop(first);
    assert!(!place.path("a.db-wal").exists());
    let plain = Connection::open(place.path("a.db")).expect("plain");
    is_sound(&plain);
    assert_eq!(count(&plain), (WRITERS * ROWS) as i64);
    assert!(!HAS_PANICKED.load(Ordering::Relaxed));
    assert!(told().is_empty(), "{:?}", told());
}

#[test]
fn threads_with_a_wal() {
    onejournal_testing::own_process!();
    set_up();
    writes_rows("WAL", "");
}

#[test]
fn threads_with_a_wal_and_checkpoints_in_the_background() {
    onejournal_testing::own_process!();
    set_up();
    writes_rows("WAL", "&checkpoint=background");
}

#[test]
fn threads_with_a_rollback_journal() {
    onejournal_testing::own_process!();
    set_up();
    writes_rows("DELETE", "");
}
