//! LevelDB and RocksDB: synchronous puts, with their own log files and with streams of the log
//! service.
//!
//! The programs are those of `plugins/` (`make plugins`). They measure both sides in turns
//! themselves ([`run`]), or one of them while the caller counts requests ([`Asked`]).

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{Variable, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program};
use crate::values::{ValueKind, Values};

const TIME_LIMIT: Duration = Duration::from_secs(1800);
const WORDS_BYTES: usize = 1 << 20;

/// Puts into LevelDB or RocksDB in a directory
#[derive(Debug, Clone, Args)]
pub struct FillsyncArgs {
    /// Which one
    #[arg(value_enum)]
    pub database: Database,
    /// Where the databases are made
    pub dir: PathBuf,
    /// Puts of each side, at least 500
    #[arg(long, default_value_t = 2000)]
    pub puts: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    pub value_bytes: u64,
    /// A file whose pieces are the values; otherwise they are random bytes
    #[arg(long)]
    pub values: Option<PathBuf>,
    /// The order of the keys
    #[arg(long, value_enum, default_value_t = Order::Fillrandom)]
    pub order: Order,
    /// Only with the database's own log files
    #[arg(long)]
    pub plain: bool,
    /// A directory on NVRAM, for the streams; otherwise they go through the group log in DIR
    #[arg(long, conflicts_with = "plain")]
    pub nvram: Option<PathBuf>,
    /// NAME=VALUE for the program's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// A database with a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Database {
    Leveldb,
    Rocksdb,
}

/// An order of keys, as LevelDB's own benchmark names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// New keys, ascending
    Fillseq,
    /// New keys at random
    Fillrandom,
    /// Random keys of a database that has as many as are put
    Overwrite,
}

impl Order {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fillseq => "fillseq",
            Order::Fillrandom => "fillrandom",
            Order::Overwrite => "overwrite",
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FillsyncResult {
    pub plain: PutTimes,
    pub streams: Option<PutTimes>,
}

/// The result of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PutTimes {
    pub median_us: f64,
    pub mean_us: f64,
}

/// An error when the plugins of these databases are not built.
pub fn need(databases: &[Database]) -> Result<()> {
    databases.iter().try_for_each(|database| find(*database).map(drop))
}

/// Makes a file of English words in `dir`, for [`FillsyncArgs::values`].
pub fn file_of_words(dir: &Path, seed: u64) -> Result<PathBuf> {
    let path = dir.join("words");
    let words = Values::new(ValueKind::Text, seed).next(WORDS_BYTES);
    std::fs::write(&path, words).map_err(Error::at(&path))?;
    Ok(path)
}

/// Runs the plugin's program.
pub fn run(args: &FillsyncArgs) -> Result<FillsyncResult> {
    parse(&program(args)?.run()?)
}

fn program(args: &FillsyncArgs) -> Result<Program> {
    let mut program = Variable::add(&args.environment, Program::new(find(args.database)?))
        .arg(&args.dir)
        .args(["--puts", &args.puts.to_string(), "--bytes", &args.value_bytes.to_string()])
        .args(["--order", args.order.name()]);
    if args.plain {
        program = program.arg("--plain");
    }
    for (option, path) in [("--nvram", &args.nvram), ("--values", &args.values)] {
        if let Some(path) = path {
            program = program.arg(option).arg(path);
        }
    }
    Ok(program.time_limit(TIME_LIMIT))
}

/// The plugin's program with one side, plain or with streams. Its database is open.
pub struct Asked(Child);

impl Asked {
    /// Starts it.
    pub fn start(args: &FillsyncArgs) -> Result<Asked> {
        let mut child = program(args)?.arg("--asked").start()?;
        child.wait_until_ready()?;
        Ok(Asked(child))
    }

    /// Makes all puts and closes the database and its log, which brings all records to files.
    pub fn put(&mut self) -> Result<PutTimes> {
        let line = self.0.ask("put")?;
        let numbers: Vec<f64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [median_us, mean_us] = numbers[..] else {
            return Err(unparsable("bench", "line of times", &line));
        };
        Ok(PutTimes { median_us, mean_us })
    }

    /// Removes the database.
    pub fn finish(self) -> Result<()> {
        self.0.finish().map(drop)
    }
}

/// `target/plugins`, beside the folder of the profile in which this program is.
fn find(database: Database) -> Result<PathBuf> {
    let name = match database {
        Database::Leveldb => "leveldb",
        Database::Rocksdb => "rocksdb",
    };
    let this = std::env::current_exe().map_err(Error::io("this program's path"))?;
    let target = this.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let program = target.join("plugins").join(name).join("bench");
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::other(format!("{} is missing: make plugins", program.display())))
}

/// The last line of the table; `-` stands for what was not measured.
fn parse(output: &str) -> Result<FillsyncResult> {
    let missing = || unparsable("bench", "line of times", output);
    let words: Vec<&str> = output.lines().last().unwrap_or_default().split_whitespace().collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<f64>().ok());
    let times = |median: usize, mean: usize| {
        Some(PutTimes { median_us: number(median)?, mean_us: number(mean)? })
    };
    let plain = times(1, 4).ok_or_else(missing)?;
    let streams = match words.get(2) {
        Some(&"-") => None,
        _ => Some(times(2, 5).ok_or_else(missing)?),
    };
    Ok(FillsyncResult { plain, streams })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "LevelDB, fillsync, 500 puts a side\n   bytes  plain us  ours us\n";

    #[test]
    fn lines_of_the_table() {
        let both = parse(&format!("{HEAD} 100 136.3 57.8 2.4x 249.4 77.8 3.2x\n")).unwrap();
        assert_eq!(both.plain, PutTimes { median_us: 136.3, mean_us: 249.4 });
        assert_eq!(both.streams, Some(PutTimes { median_us: 57.8, mean_us: 77.8 }));
        let plain = parse(&format!("{HEAD} 100 122.4 - - 625.9\n")).unwrap();
        assert_eq!(plain.plain, PutTimes { median_us: 122.4, mean_us: 625.9 });
        assert_eq!(plain.streams, None);
        assert!(parse(HEAD).is_err());
        assert!(parse("").is_err());
    }
}
