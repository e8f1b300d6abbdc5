//! Commits rows in WAL mode through the extension, and prints how many syncs of the WAL the log
//! saved: `commits LIBRARY DIR`, where `LIBRARY` is `libonejournal_sqlite.so`.

use std::error::Error;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(library), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: commits LIBRARY DIR".into());
    };
    let saved = commit_rows(Path::new(&library), Path::new(&dir))?;
    println!(
        "{} commits became records of the log. The WAL itself was synced {} times.",
        saved.commits, saved.real_syncs
    );
    Ok(())
}

/// What the extension counted in this process.
pub struct Saved {
    /// Syncs of a WAL that became a record of the log.
    pub commits: u64,
    /// Syncs of the WAL file itself: the first two commits of a new WAL sync it.
    pub real_syncs: u64,
}

/// Makes `dir/app.db` and commits 100 rows, each in its own transaction.
pub fn commit_rows(library: &Path, dir: &Path) -> Result<Saved, Box<dyn Error>> {
    // The extension stays loaded when the connection that loaded it is closed.
    let loader = Connection::open_in_memory()?;
    // SAFETY: the library is the extension of this build, whose entry does what SQLite expects of
    // one.
    unsafe {
        loader.load_extension_enable()?;
        loader.load_extension(library, None::<&str>)?;
    }
    loader.load_extension_disable()?;

    let uri = format!("file:{}?vfs=onejournal", dir.join("app.db").display());
    let database = Connection::open_with_flags(uri, OpenFlags::default())?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute("CREATE TABLE IF NOT EXISTS events(text)", [])?;
    for number in 0..100 {
        database.execute("INSERT INTO events VALUES(?1)", [format!("event {number}")])?;
    }

    let stat: String = database.query_row("SELECT onejournal_stat()", [], |row| row.get(0))?;
    let stat: serde_json::Value = serde_json::from_str(&stat)?;
    let count = |name: &str| stat[name].as_u64().ok_or_else(|| format!("no counter {name}"));
    Ok(Saved { commits: count("commits")?, real_syncs: count("real_syncs")? })
}
