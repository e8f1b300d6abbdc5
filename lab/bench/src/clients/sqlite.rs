//! A client of SQLite on the papers' table, `t(k INTEGER PRIMARY KEY, v TEXT)` with values of 100
//! characters ([`crate::values`]), for experiments that measure several systems in turns. It is one
//! process with one or more databases, which it uses in turns. The SQLite is the one that this
//! repository builds, with
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`.
//!
//! It prints `ready`, then reads lines and answers each of them. The next line uses the next
//! database:
//!
//! | line | answer |
//! |---|---|
//! | `insert KEY...`, `update KEY...`, `delete KEY...` | one transaction with all keys; its
//! microseconds |
//! | `checkpoint MODE` | `wal_checkpoint(MODE)`; its microseconds |
//!
//! It ends when its input ends, and closes the databases.

use std::error::Error;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rusqlite::Connection;

use super::SqliteOptions;
use crate::values::{Values, ValuesArgs};

/// Transactions read from standard input; answers with microseconds
#[derive(Args)]
pub struct SqliteArgs {
    /// The databases; made if they are not there
    #[arg(required = true)]
    databases: Vec<PathBuf>,
    #[command(flatten)]
    options: SqliteOptions,
    /// Pages of the WAL after which SQLite checkpoints; 0: never
    #[arg(long)]
    autocheckpoint: Option<u32>,
    /// Rows that are there from the start, with keys from 0
    #[arg(long, default_value_t = 0)]
    rows: u32,
    /// Size of a value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..))]
    value_bytes: u32,
    #[command(flatten)]
    values: ValuesArgs,
}

/// Serves standard input.
pub fn run(args: &SqliteArgs) -> Result<(), Box<dyn Error>> {
    let mut values = args.values.generator();
    let open_one = |path: &PathBuf| open(args, path, &mut values);
    let mut databases = args.databases.iter().map(open_one).collect::<Result<Vec<_>, _>>()?;
    let mut output = BufWriter::new(std::io::stdout().lock());
    writeln!(output, "ready")?;
    output.flush()?;
    let mut input = BufReader::new(std::io::stdin().lock());
    let (mut line, mut count) = (String::new(), 0);
    while input.read_line(&mut line)? > 0 {
        let turn = count % databases.len();
        let value_bytes = args.value_bytes as usize;
        let micros = obey(&mut databases[turn], &line, &mut || values.next(value_bytes))?;
        writeln!(output, "{micros:.1}")?;
        // Who sent many lines at once is not woken for each.
        if !input.buffer().contains(&b'\n') {
            output.flush()?;
        }
        line.clear();
        count += 1;
    }
    for database in databases {
        database.close().map_err(|(_, error)| error)?;
    }
    Ok(())
}

fn open(args: &SqliteArgs, path: &Path, values: &mut Values) -> Result<Connection, Box<dyn Error>> {
    let mut database = args.options.open(path)?;
    if let Some(pages) = args.autocheckpoint {
        database.pragma_update(None, "wal_autocheckpoint", pages)?;
    }
    database.execute("CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v TEXT)", ())?;
    let fill = database.transaction()?;
    for key in 0..args.rows {
        let value = values.next(args.value_bytes as usize);
        fill.execute("INSERT OR REPLACE INTO t VALUES(?1, ?2)", (key, value))?;
    }
    fill.commit()?;
    Ok(database)
}

/// Its time in microseconds.
fn obey(
    database: &mut Connection,
    line: &str,
    next_value: &mut dyn FnMut() -> String,
) -> Result<f64, Box<dyn Error>> {
    let mut words = line.split_whitespace();
    let operation = words.next().unwrap_or_default();
    if operation == "checkpoint" {
        let sql = format!("PRAGMA wal_checkpoint({})", words.next().unwrap_or("PASSIVE"));
        let start = Instant::now();
        database.query_row(&sql, (), |_| Ok(()))?;
        return Ok(micros_since(start));
    }
    let keys = words.map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    transaction(database, operation, &keys, next_value)
}

/// One transaction. Returns its time in microseconds. All values differ, because SQLite writes
/// nothing if nothing changes.
fn transaction(
    database: &mut Connection,
    operation: &str,
    keys: &[i64],
    next_value: &mut dyn FnMut() -> String,
) -> Result<f64, Box<dyn Error>> {
    let sql = match operation {
        "insert" => "INSERT INTO t VALUES(?1, ?2)",
        "update" => "UPDATE t SET v = ?2 WHERE k = ?1",
        "delete" => "DELETE FROM t WHERE k = ?1 AND ?2 NOTNULL",
        _ => return Err(format!("unknown operation `{operation}`").into()),
    };
    let values: Vec<String> = keys.iter().map(|_| next_value()).collect();
    let start = Instant::now();
    let transaction = (keys.len() > 1).then(|| database.unchecked_transaction()).transpose()?;
    let mut statement = database.prepare_cached(sql)?;
    for (key, value) in keys.iter().zip(&values) {
        statement.execute((key, value))?;
    }
    if let Some(transaction) = transaction {
        transaction.commit()?;
    }
    Ok(micros_since(start))
}

fn micros_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
