//! Opens a database that was loaded: with which VFS, journal and syncs.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;
use rusqlite::{Connection, OpenFlags};

use super::scale::Scale;
use super::transactions::STATEMENT_COUNT_MAX;

/// Where the database is, and by which VFS it is reached
#[derive(Args)]
pub struct Place {
    /// The database, or a `file:` URI of it
    pub path: String,
    /// SQLite's VFS; a URI may name it, too
    #[arg(long)]
    pub vfs: Option<String>,
    /// A SQLite extension to load before, for its VFS
    #[arg(long, value_name = "LIBRARY")]
    pub extension: Option<PathBuf>,
}

/// What a run has to know of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Warehouses.
    pub warehouse_count: u32,
    /// Cardinalities.
    pub scale: Scale,
    /// NURand's C of last names.
    pub c_last: u32,
}

impl Place {
    /// Opens it.
    pub fn open(&self) -> Result<Connection, Box<dyn Error>> {
        if let Some(library) = &self.extension {
            load_extension(library)?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        let database = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, vfs.as_str()),
            None => Connection::open_with_flags(&self.path, flags),
        };
        let database = database.map_err(|error| format!("{}: {error}", self.path))?;
        database.set_prepared_statement_cache_capacity(STATEMENT_COUNT_MAX);
        Ok(database)
    }
}

/// Loads an extension that stays loaded (its VFS does), through a connection that is closed again.
fn load_extension(library: &Path) -> Result<(), Box<dyn Error>> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: the caller of this program names the library, which is one of SQLite's extensions; no SQL of others
    // runs on this connection while it may load.
    unsafe {
        let _guard = rusqlite::LoadExtensionGuard::new(&connection)?;
        connection.load_extension(library, None::<&str>)?;
    }
    Ok(())
}

/// Reads what the load noted.
pub fn loaded(database: &Connection) -> Result<Loaded, Box<dyn Error>> {
    let query = "SELECT warehouse_count, scale, c_last FROM loaded";
    let row = database
        .query_row(query, (), |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)));
    let (warehouse_count, name, c_last) =
        row.map_err(|error| format!("not a loaded TPC-C database: {error}"))?;
    let scale = Scale::from_name(&name).ok_or_else(|| format!("unknown scale `{name}`"))?;
    Ok(Loaded { warehouse_count, scale, c_last })
}

/// Sets the journal mode, which SQLite may refuse, and when it syncs.
pub fn set_journal(
    database: &Connection,
    mode: &str,
    synchronous: &str,
) -> Result<(), Box<dyn Error>> {
    let set: String =
        database.pragma_update_and_check(None, "journal_mode", mode, |row| row.get(0))?;
    if !set.eq_ignore_ascii_case(mode) {
        return Err(format!("SQLite has no journal mode {mode} here, only {set}").into());
    }
    database.pragma_update(None, "synchronous", synchronous)?;
    let levels = ["OFF", "NORMAL", "FULL", "EXTRA"];
    let level: usize = database.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    match levels.get(level) {
        Some(name) if name.eq_ignore_ascii_case(synchronous) => Ok(()),
        _ => Err(format!("synchronous is one of {}", levels.join(", ")).into()),
    }
}
