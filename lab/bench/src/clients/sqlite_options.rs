//! How clients open a database: the part of their command line that systems extend.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;
use rusqlite::{Connection, LoadExtensionGuard, OpenFlags};
use rustix::fs::{XattrFlags, setxattr};

/// The entry point of the extension. From the file's name, SQLite would derive another one.
const ENTRY: &str = "sqlite3_onejournal_init";

/// How a database is reached
#[derive(Args, Debug, Clone)]
pub struct SqliteAccess {
    /// A SQLite extension to load first
    #[arg(long)]
    extension: Option<PathBuf>,
    /// Parameters of the database's URI
    #[arg(long, default_value = "")]
    query: String,
}

impl SqliteAccess {
    /// Opens it as it is; it is made if it is not there.
    pub fn open(&self, path: &Path) -> Result<Connection, Box<dyn Error>> {
        if let Some(library) = &self.extension {
            load(library, &Connection::open_in_memory()?)?;
        }
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let uri = format!("file:{}?{}", path.display(), self.query);
        let database = Connection::open_with_flags(uri, flags)?;
        // Again, for its SQL functions: they are the connection's, the VFS is the process's.
        if let Some(library) = &self.extension {
            load(library, &database)?;
        }
        Ok(database)
    }
}

/// How a database is opened
#[derive(Args, Debug, Clone)]
pub struct SqliteOptions {
    /// SQLite's journal mode
    #[arg(long, default_value = "DELETE")]
    pub journal_mode: String,
    /// OFF, NORMAL, FULL or EXTRA
    #[arg(long, default_value = "FULL")]
    pub synchronous: String,
    /// FAST'14's file-adaptive journaling on a OneJournal volume with `data=journal`: the database
    /// and a WAL are ordered
    #[arg(long)]
    file_adaptive: bool,
    #[command(flatten)]
    access: SqliteAccess,
}

/// Levels in the order of SQLite's numbers.
const SYNCHRONOUS: [&str; 4] = ["OFF", "NORMAL", "FULL", "EXTRA"];

impl SqliteOptions {
    /// Opens it; it is made if it is not there.
    pub fn open(&self, path: &Path) -> Result<Connection, Box<dyn Error>> {
        let database = self.access.open(path)?;
        let mode: String =
            database.pragma_update_and_check(None, "journal_mode", &self.journal_mode, |row| {
                row.get(0)
            })?;
        if !mode.eq_ignore_ascii_case(&self.journal_mode) {
            return Err(format!("SQLite has no journal mode {}", self.journal_mode).into());
        }
        // SQLite takes any word for a level.
        database.pragma_update(None, "synchronous", &self.synchronous)?;
        if self.file_adaptive {
            set_ordered(path)?;
            if self.journal_mode.eq_ignore_ascii_case("WAL") {
                // The first read makes the file.
                database.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
                let mut wal = path.as_os_str().to_owned();
                wal.push("-wal");
                set_ordered(Path::new(&wal))?;
            }
        }
        let level: usize = database.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        match SYNCHRONOUS.get(level) {
            Some(name) if name.eq_ignore_ascii_case(&self.synchronous) => Ok(database),
            _ => Err(format!("synchronous is one of {}", SYNCHRONOUS.join(", ")).into()),
        }
    }
}

/// A SQLite that sets the mode would do it with the file that it has just opened.
fn set_ordered(path: &Path) -> Result<(), Box<dyn Error>> {
    let set = setxattr(path, "user.onejournal.data", b"ordered", XattrFlags::empty());
    Ok(set.map_err(|errno| format!("{}: no data mode: {errno}", path.display()))?)
}

/// Loads the extension for the whole process.
fn load(library: &Path, connection: &Connection) -> Result<(), Box<dyn Error>> {
    // SAFETY: the library is the extension of this repository, built with this program; it follows
    // SQLite's rules for loadable extensions, and nothing else is loaded while the guard lasts.
    unsafe {
        let _guard = LoadExtensionGuard::new(connection)?;
        connection.load_extension(library, Some(ENTRY))?;
    }
    Ok(())
}
