//! What a commit costs: `commit_cost LIBRARY DIR [NVRAM] [--only one,many] [--rounds N] [--variant NAME]`, LIBRARY being
//! the loadable extension. One row a transaction in WAL mode; plain SQLite with synchronous=FULL and with OFF,
//! and the extension with its log beside the database and, if given, with lanes in NVRAM (a directory; a
//! tmpfs stands for one). The variants follow each other in short rounds; printed are medians and the least of the
//! rounds, medians of their ratios, and what the device under DIR was asked for. Then eight processes write 64 databases at once.

mod disk;
mod many;
mod one;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

type Failed = Box<dyn std::error::Error>;

fn open(path: &Path, more: &str, level: &str) -> Result<Connection, Failed> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{}?{more}", path.display()), flags)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={level};
         CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)"
    ))?;
    Ok(connection)
}

fn load(library: &Path) -> Result<(), Failed> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: the library is this crate's.
    unsafe {
        let _guard = rusqlite::LoadExtensionGuard::new(&connection)?;
        connection.load_extension(library, Some("sqlite3_onejournal_init"))?;
    }
    Ok(())
}

/// One-row transactions.
fn commit(connection: &Connection, count: usize) -> Result<(), Failed> {
    let mut insert = connection.prepare_cached("INSERT INTO t(v) VALUES (?1)")?;
    for number in 0..count {
        insert.execute([format!("a row of about a hundred bytes, number {number:060}")])?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the command line says.
pub struct Arguments {
    library: PathBuf,
    directory: PathBuf,
    nvram: Option<PathBuf>,
    rounds: usize,
    /// Parts to run; empty: all.
    only: String,
    /// The one variant of one writer to run, for a profiler; empty: all.
    variant: String,
}

impl Arguments {
    fn parse() -> Result<Arguments, Failed> {
        let usage = "usage: commit_cost LIBRARY DIR [NVRAM] [--only one,many] [--rounds N] [--variant NAME]";
        let (mut paths, mut rounds) = (Vec::new(), 9);
        let (mut only, mut variant) = (String::new(), String::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--only" => only = words.next().ok_or(usage)?,
                "--variant" => variant = words.next().ok_or(usage)?,
                "--rounds" => rounds = words.next().ok_or(usage)?.parse()?,
                _ => paths.push(PathBuf::from(word)),
            }
        }
        let mut paths = paths.into_iter();
        let (library, directory) = (paths.next().ok_or(usage)?, paths.next().ok_or(usage)?);
        Ok(Arguments { library, directory, nvram: paths.next(), rounds, only, variant })
    }

    /// The URI's parameters for the extension; the log's shared memory lies where the caller removes it.
    fn parameters(&self) -> String {
        let memory = |nvram: &PathBuf| format!("&memory={}", nvram.join("memory").display());
        format!("vfs=onejournal{}", self.nvram.as_ref().map_or_else(String::new, memory))
    }

    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.split(',').any(|word| word == part)
    }
}

fn main() -> Result<(), Failed> {
    let arguments = Arguments::parse()?;
    if let Ok(part) = std::env::var("PART") {
        return many::part(&arguments, &part);
    }
    std::fs::create_dir_all(&arguments.directory)?;
    if let Some(nvram) = &arguments.nvram {
        std::fs::create_dir_all(nvram)?;
    }
    load(&arguments.library)?;
    if arguments.has("one") {
        one::one_writer(&arguments)?;
    }
    if arguments.has("many") {
        many::many(&arguments)?;
    }
    Ok(())
}
