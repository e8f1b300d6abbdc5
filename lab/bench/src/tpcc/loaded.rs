//! Facts of the load that a run needs. The database stores them.

use std::error::Error;
use std::path::Path;

use rusqlite::Connection;

use super::scale::Scale;

/// How a database was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Warehouses.
    pub warehouse_count: u32,
    /// Cardinalities.
    pub scale: Scale,
    /// NURand's C of last names.
    pub c_last: u32,
}

impl Loaded {
    /// Reads it.
    pub fn of(database: &Connection) -> Result<Loaded, Box<dyn Error>> {
        let query = "SELECT warehouse_count, scale, c_last FROM loaded";
        let row = database
            .query_row(query, (), |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)));
        let (warehouse_count, name, c_last) =
            row.map_err(|error| format!("not a loaded TPC-C database: {error}"))?;
        let scale = Scale::from_name(&name).ok_or_else(|| format!("unknown scale `{name}`"))?;
        Ok(Loaded { warehouse_count, scale, c_last })
    }
}

/// If the file does not exist, SQLite would make it.
pub fn must_be_there(path: &Path) -> Result<(), Box<dyn Error>> {
    match path.metadata() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}
