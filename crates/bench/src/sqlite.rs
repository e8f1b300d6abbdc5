//! A client of SQLite as the environment built it (with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE` in this
//! repository), for who measures several file systems in turns: one process a database.
//!
//! It reads a line `insert KEY`, `update KEY` or `delete KEY`, does it as one transaction on the papers'
//! table `t(k INTEGER PRIMARY KEY, v TEXT)` with values of 100 characters, and prints the time in
//! microseconds. It ends with its input.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rusqlite::Connection;

/// One-row transactions read from standard input; answers with microseconds
#[derive(Args)]
pub struct SqliteArgs {
    /// The database; made if it is not there
    database: PathBuf,
    /// SQLite's journal mode
    #[arg(long, default_value = "DELETE")]
    journal_mode: String,
    /// Rows that are there from the start, with keys from 0
    #[arg(long, default_value_t = 1000)]
    rows: u32,
}

/// Serves standard input.
pub fn run(args: &SqliteArgs) -> Result<(), Box<dyn Error>> {
    let mut database = open(args)?;
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    for (count, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[operation, key] = &words[..] else {
            return Err(format!("`{line}` is not OPERATION KEY").into());
        };
        let micros = transaction(&mut database, operation, key.parse()?, count)?;
        writeln!(output, "{micros:.1}")?;
        output.flush()?;
    }
    Ok(())
}

fn open(args: &SqliteArgs) -> Result<Connection, Box<dyn Error>> {
    let mut database = Connection::open(&args.database)?;
    let mode: String =
        database
            .pragma_update_and_check(None, "journal_mode", &args.journal_mode, |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case(&args.journal_mode) {
        return Err(format!("SQLite has no journal mode {}", args.journal_mode).into());
    }
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute("CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v TEXT)", ())?;
    let fill = database.transaction()?;
    for key in 0..args.rows {
        fill.execute("INSERT OR REPLACE INTO t VALUES(?1, ?2)", (key, "x".repeat(100)))?;
    }
    fill.commit()?;
    Ok(database)
}

/// One transaction; its time in microseconds. No two values are alike: SQLite writes nothing when
/// nothing changes.
fn transaction(
    database: &mut Connection,
    operation: &str,
    key: i64,
    count: usize,
) -> Result<f64, Box<dyn Error>> {
    let value = format!("{count:>8} {key:>10} {}", "abcdefghij".repeat(8));
    let start = Instant::now();
    match operation {
        "insert" => database.execute("INSERT INTO t VALUES(?1, ?2)", (key, value))?,
        "update" => database.execute("UPDATE t SET v = ?2 WHERE k = ?1", (key, value))?,
        "delete" => database.execute("DELETE FROM t WHERE k = ?1", [key])?,
        _ => return Err(format!("unknown operation {operation}").into()),
    };
    Ok(start.elapsed().as_secs_f64() * 1e6)
}
