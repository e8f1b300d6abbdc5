//! A SQLite database whose transactions are counted, inside the database and by the judge.
//!
//! A transaction adds a row, changes an old one, and updates the count of both, so that a half
//! transaction is noticed.

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use onejournal_sqlite::sqlite3_onejournal_init;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::scenario::Database;

const NAME: &str = "db";
/// Longest that a statement waits for other connections.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// An open database.
pub struct Client {
    connection: Connection,
    owner: usize,
    is_shrinking: bool,
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

/// Registers the extension's VFS with SQLite.
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

/// Where a database is.
#[derive(Clone, Copy)]
pub struct DatabasePlace<'p> {
    pub dir: &'p Path,
    /// The log that the URI names.
    pub log: Option<&'p Path>,
    /// The actor that the tables belong to.
    pub owner: usize,
}

impl<'p> DatabasePlace<'p> {
    /// A database with one owner, in a log that the URI does not name.
    pub fn of(dir: &'p Path) -> DatabasePlace<'p> {
        DatabasePlace { dir, log: None, owner: 0 }
    }
}

fn connect(place: DatabasePlace<'_>, how: &Database) -> rusqlite::Result<Connection> {
    load_extension();
    let mut uri = format!("file:{}?vfs={}", place.dir.join(NAME).display(), how.vfs);
    if let Some(log) = place.log {
        uri += &format!("&log={}", log.display());
    }
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    let Database { synchronous, cache_pages, .. } = how;
    let pragma = format!(
        "pragma synchronous={synchronous}; pragma wal_autocheckpoint=40; \
         pragma cache_size={cache_pages}"
    );
    connection.execute_batch(&pragma)?;
    Ok(connection)
}

fn text(error: rusqlite::Error) -> String {
    format!("SQLite: {error}")
}

impl Client {
    /// Makes the tables of an owner, with no transactions.
    pub fn make(place: DatabasePlace<'_>, how: &Database) -> Result<(), String> {
        let connection = connect(place, how).map_err(text)?;
        if how.is_shrinking {
            connection.execute_batch("pragma auto_vacuum=full").map_err(text)?;
        }
        let pragma = format!("pragma journal_mode={}", how.journal_mode);
        let mode: String = connection.query_row(&pragma, [], |row| row.get(0)).map_err(text)?;
        if mode != how.journal_mode {
            return Err(format!("journal_mode={} becomes {mode}", how.journal_mode));
        }
        let owner = place.owner;
        connection
            .execute_batch(&format!(
                "begin immediate;
                 create table t{owner}(k integer primary key, changes integer not null, v blob);
                 create table total{owner}(rows integer, changes integer);
                 insert into total{owner} values(0, 0);
                 commit"
            ))
            .map_err(text)
    }

    /// Opens it.
    pub fn open(place: DatabasePlace<'_>, how: &Database) -> Result<Client, String> {
        let connection = connect(place, how).map_err(text)?;
        let pragma = format!("pragma journal_mode={}", how.journal_mode);
        connection.query_row(&pragma, [], |_| Ok(())).map_err(text)?;
        Ok(Client { connection, owner: place.owner, is_shrinking: how.is_shrinking })
    }

    /// Commits the transaction of this number.
    pub fn commit(&mut self, number: u64) -> Result<(), String> {
        let mut rng = fastrand::Rng::with_seed(number);
        let (size, changed) = ([10, 500, 9000][rng.usize(..3)], rng.u64(1..=number));
        // One in a while needs more pages than a small cache has.
        let size = if rng.u8(..12) == 0 { 100_000 } else { size };
        let owner = self.owner;
        let more = match number % 4 {
            1 if self.is_shrinking => format!(
                "drop table if exists more{owner}; create table more{owner}(v);
                 insert into more{owner} values(zeroblob(30000));"
            ),
            3 if self.is_shrinking => format!("drop table if exists more{owner};"),
            _ => String::new(),
        };
        let batch = format!(
            "begin immediate;
             {more}
             insert into t{owner} values({number}, 0, randomblob({size}));
             update t{owner} set changes = changes + 1 where k = {changed};
             update total{owner} set rows = rows + 1, changes = changes + 1;
             commit"
        );
        self.connection.execute_batch(&batch).map_err(text)
    }

    /// The number of transactions in the database. Checks that each is whole and the database is
    /// not damaged.
    pub fn count(&self) -> Result<u64, String> {
        let sound: String = self
            .connection
            .query_row("pragma integrity_check", [], |row| row.get(0))
            .map_err(text)?;
        if sound != "ok" {
            return Err(sound);
        }
        let owner = self.owner;
        let counts = format!(
            "select rows, changes, (select count(*) from t{owner}), \
             (select sum(changes) from t{owner}),
             (select max(k) from t{owner}) from total{owner}"
        );
        let counts: [Option<u64>; 5] = self
            .connection
            .query_row(&counts, [], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
            })
            .map_err(text)?;
        let counts = counts.map(Option::unwrap_or_default);
        if counts.iter().all(|count| *count == counts[0]) {
            Ok(counts[0])
        } else {
            Err(format!("a part of a transaction: {counts:?}"))
        }
    }

    /// Closes it.
    pub fn close(self) -> Result<(), String> {
        self.connection.close().map_err(|(_, error)| text(error))
    }
}

/// The number of the owner's transactions in a database, which is checked. Reads a copy, without
/// the extension, because recovering what a crash left writes to the database.
pub fn count(place: DatabasePlace<'_>, how: &Database) -> Result<u64, String> {
    let copy = tempfile::Builder::new().prefix("onejournal-judge-").tempdir_in("/dev/shm");
    let copy = copy.map_err(|e| e.to_string())?;
    let dir = place.dir;
    let context = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
    for file in fs::read_dir(dir).map_err(|e| context(&e))? {
        let file = file.map_err(|e| context(&e))?;
        if file.file_type().map_err(|e| context(&e))?.is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).map_err(|e| context(&e))?;
        }
    }
    let place = DatabasePlace { dir: copy.path(), log: None, ..place };
    let client = Client::open(place, &Database { vfs: "unix", ..*how })?;
    client.count().map_err(|e| context(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_and_half_of_one_is_noticed() {
        let how = Database {
            journal_mode: "wal",
            synchronous: "full",
            vfs: "unix",
            is_durable: true,
            cache_pages: 10,
            is_shrinking: false,
        };
        let dir = tempfile::tempdir().unwrap();
        let place = DatabasePlace::of(dir.path());
        Client::make(place, &how).unwrap();
        assert_eq!(count(place, &how), Ok(0));
        let mut client = Client::open(place, &how).unwrap();
        (1..=3).for_each(|number| client.commit(number).unwrap());
        assert_eq!(count(place, &how), Ok(3));
        client.connection.execute_batch("delete from t0 where k = 2").unwrap();
        assert!(count(place, &how).unwrap_err().contains("a part of a transaction"));
    }
}
