//! A database of SQLite whose transactions are counted: by itself, and by the judge from outside.
//!
//! A transaction adds a row, changes an old one and counts both, so that half of one is noticed.

use std::fs;
use std::path::Path;
use std::sync::Once;

use onejournal_sqlite::sqlite3_onejournal_init;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::scenario::Database;

const NAME: &str = "db";

/// An open database.
pub struct Client {
    connection: Connection,
}

unsafe extern "C" fn entry(
    connection: *mut ffi::sqlite3,
    message: *mut *mut std::ffi::c_char,
    table: *const ffi::sqlite3_api_routines,
) -> std::ffi::c_int {
    // SAFETY: SQLite's arguments for an extension's entry point, passed on.
    let code = unsafe { sqlite3_onejournal_init(connection.cast(), message, table.cast()) };
    // An automatic extension may not say that it is permanent, which it is.
    if code == ffi::SQLITE_OK_LOAD_PERMANENTLY { ffi::SQLITE_OK } else { code }
}

/// SQLite knows the extension's VFS from here on.
fn load_extension() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an entry point of the type that SQLite calls; it lives as long as the process.
        let code = unsafe { ffi::sqlite3_auto_extension(Some(entry)) };
        assert_eq!(code, ffi::SQLITE_OK, "there is memory for one extension");
        // Opening any connection runs it.
        Connection::open_in_memory().expect("a database in memory");
    });
}

fn connect(dir: &Path, how: &Database) -> rusqlite::Result<Connection> {
    load_extension();
    let uri = format!("file:{}?vfs={}", dir.join(NAME).display(), how.vfs);
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    let pragma = format!("pragma synchronous={}; pragma wal_autocheckpoint=40", how.synchronous);
    connection.execute_batch(&pragma)?;
    Ok(connection)
}

fn text(error: rusqlite::Error) -> String {
    format!("SQLite: {error}")
}

impl Client {
    /// Makes the database, with no transactions.
    pub fn make(dir: &Path, how: &Database) -> Result<(), String> {
        let connection = connect(dir, how).map_err(text)?;
        let pragma = format!("pragma journal_mode={}", how.journal_mode);
        let mode: String = connection.query_row(&pragma, [], |row| row.get(0)).map_err(text)?;
        if mode != how.journal_mode {
            return Err(format!("journal_mode={} becomes {mode}", how.journal_mode));
        }
        connection
            .execute_batch(
                "create table t(k integer primary key, changes integer not null, v blob);
                 create table total(rows integer, changes integer);
                 insert into total values(0, 0)",
            )
            .map_err(text)
    }

    /// Opens it.
    pub fn open(dir: &Path, how: &Database) -> Result<Client, String> {
        let connection = connect(dir, how).map_err(text)?;
        let pragma = format!("pragma journal_mode={}", how.journal_mode);
        connection.query_row(&pragma, [], |_| Ok(())).map_err(text)?;
        Ok(Client { connection })
    }

    /// Commits the transaction of this number.
    pub fn commit(&mut self, number: u64) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(number);
        let (size, changed) = ([10, 500, 9000][rng.usize(..3)], rng.u64(1..=number));
        let batch = format!(
            "begin immediate;
             insert into t values({number}, 0, randomblob({size}));
             update t set changes = changes + 1 where k = {changed};
             update total set rows = rows + 1, changes = changes + 1;
             commit"
        );
        self.connection.execute_batch(&batch).map_err(text)
    }
}

/// Whether the database in `dir` is sound, and its transactions. It is looked at in a copy: what a crash leaves is
/// brought to an end by writing.
pub fn count(dir: &Path, how: &Database) -> Result<u64, String> {
    let copy = tempfile::Builder::new().prefix("onejournal-judge-").tempdir_in("/dev/shm");
    let copy = copy.map_err(|e| e.to_string())?;
    let place = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
    for file in fs::read_dir(dir).map_err(|e| place(&e))? {
        let file = file.map_err(|e| place(&e))?;
        fs::copy(file.path(), copy.path().join(file.file_name())).map_err(|e| place(&e))?;
    }
    let connection = connect(copy.path(), &Database { vfs: "unix", ..*how }).map_err(text)?;
    let sound: String =
        connection.query_row("pragma integrity_check", [], |row| row.get(0)).map_err(text)?;
    if sound != "ok" {
        return Err(place(&sound));
    }
    let counts = "select rows, changes, (select count(*) from t), (select sum(changes) from t),
                  (select max(k) from t) from total";
    let counts: [Option<u64>; 5] = connection
        .query_row(counts, [], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
        })
        .map_err(text)?;
    let counts = counts.map(Option::unwrap_or_default);
    if counts.iter().all(|count| *count == counts[0]) {
        Ok(counts[0])
    } else {
        Err(place(&format!("a part of a transaction: {counts:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_and_half_of_one_is_noticed() {
        let how =
            Database { journal_mode: "wal", synchronous: "full", vfs: "unix", is_durable: true };
        let dir = tempfile::tempdir().unwrap();
        Client::make(dir.path(), &how).unwrap();
        assert_eq!(count(dir.path(), &how), Ok(0));
        let mut client = Client::open(dir.path(), &how).unwrap();
        (1..=3).for_each(|number| client.commit(number).unwrap());
        assert_eq!(count(dir.path(), &how), Ok(3));
        client.connection.execute_batch("delete from t where k = 2").unwrap();
        assert!(count(dir.path(), &how).unwrap_err().contains("a part of a transaction"));
    }
}
