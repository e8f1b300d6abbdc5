//! Postmark: mail files are created, read, appended to and deleted.
//!
//! The paper ran it with many threads and synchronous writes, which Debian's version does not have.
//! Here it is several processes. Each has its share of the transactions and a folder of its own. A
//! library in `LD_PRELOAD` (`o_sync.c`, built by `cc` when needed) adds `O_SYNC` when a file is
//! opened for writing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{Variable, need, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program};

/// Runs Postmark in a directory
#[derive(Debug, Clone, Args)]
pub struct PostmarkArgs {
    /// Where the files are made
    pub dir: PathBuf,
    /// Files at the beginning; more if the processes might run out of them
    #[arg(long, default_value_t = 500)]
    pub files: u64,
    /// Transactions, at least 10 of each process: a read or an append, and a creation or a deletion
    #[arg(long, default_value_t = 10_000)]
    pub transactions: u64,
    /// Processes that share files and transactions
    #[arg(long, default_value_t = 10)]
    pub processes: u64,
    /// Bytes of a read or write call
    #[arg(long, default_value_t = 4096)]
    pub block_bytes: u64,
    /// Leave the writes to the page cache
    #[arg(long)]
    pub unsynced: bool,
    /// NAME=VALUE for Postmark's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<Variable>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PostmarkResult {
    pub transactions: u64,
    /// From the beginning of the first process to the end of the last one, including making and
    /// deleting the files.
    pub seconds: f64,
    pub transactions_per_second: f64,
    pub created: u64,
    pub read: u64,
    pub appended: u64,
    pub deleted: u64,
}

/// Runs all processes at once.
pub fn run(args: &PostmarkArgs) -> Result<PostmarkResult> {
    need("postmark", "postmark")?;
    let library = if args.unsynced { None } else { Some(build_o_sync()?) };
    let environment = preload(&args.environment, library.as_ref());
    let folders: Vec<PathBuf> =
        (0..args.processes).map(|index| args.dir.join(format!("postmark.{index}"))).collect();
    for folder in &folders {
        fs::create_dir(folder).map_err(Error::at(folder))?;
    }
    let start =
        || -> Result<Child> { Variable::add(&environment, Program::new("postmark")).start() };
    let mut children = folders.iter().map(|_| start()).collect::<Result<Vec<Child>>>()?;
    let begin = Instant::now();
    for (index, (child, folder)) in children.iter_mut().zip(&folders).enumerate() {
        child.send(&commands(args, index as u64, folder))?;
    }
    let outputs = children.into_iter().map(Child::finish).collect::<Result<Vec<_>>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    for folder in &folders {
        // Postmark has deleted its files: a folder that is not empty is a failure.
        fs::remove_dir(folder).map_err(Error::at(folder))?;
    }
    let mut result = PostmarkResult {
        transactions: transactions_of_each(args) * args.processes,
        seconds,
        transactions_per_second: 0.0,
        created: 0,
        read: 0,
        appended: 0,
        deleted: 0,
    };
    result.transactions_per_second = result.transactions as f64 / seconds;
    for output in &outputs {
        add_counts(&mut result, &output.join("\n"))?;
    }
    Ok(result)
}

/// The number of dots that Postmark prints; it divides its transactions by it.
const TRANSACTIONS_MIN: u64 = 10;

fn transactions_of_each(args: &PostmarkArgs) -> u64 {
    args.transactions.div_ceil(args.processes).max(TRANSACTIONS_MIN)
}

/// Files of each process. With each transaction, their number goes randomly up or down by one. Four
/// standard deviations keep it above 0.
fn files_of_each(args: &PostmarkArgs) -> u64 {
    let steps = transactions_of_each(args) as f64;
    args.files.div_ceil(args.processes).max((4.0 * steps.sqrt()).ceil() as u64)
}

/// The commands for one process.
fn commands(args: &PostmarkArgs, index: u64, folder: &Path) -> String {
    [
        format!("set number {}", files_of_each(args)),
        format!("set transactions {}", transactions_of_each(args)),
        format!("set seed {}", 7 + index),
        format!("set read {}", args.block_bytes),
        format!("set write {}", args.block_bytes),
        "set buffering false".to_owned(),
        "set report verbose".to_owned(),
        format!("set location {}", folder.display()),
        "run".to_owned(),
        "quit".to_owned(),
    ]
    .join("\n")
}

/// Adds the counts that one process reports.
fn add_counts(result: &mut PostmarkResult, output: &str) -> Result<()> {
    let count = |what: &str| -> Result<u64> {
        // For example `55 created (55 per second)`.
        let line = output.lines().find_map(|line| line.trim().split_once(&format!(" {what} (")));
        let number = line.and_then(|(number, _)| number.parse().ok());
        number.ok_or_else(|| unparsable("postmark", &format!("number of files {what}"), output))
    };
    let (created, deleted) = (count("created")?, count("deleted")?);
    if created != deleted {
        return Err(unparsable("postmark", "equal numbers of files created and deleted", output));
    }
    result.created += created;
    result.deleted += deleted;
    result.read += count("read")?;
    result.appended += count("appended")?;
    Ok(())
}

/// The environment with the library in front of the others in `LD_PRELOAD`.
fn preload(environment: &[Variable], library: Option<&TempDir>) -> Vec<Variable> {
    const NAME: &str = "LD_PRELOAD";
    let mut environment = environment.to_vec();
    if let Some(library) = library {
        let mut value = library.path().join(LIBRARY).display().to_string();
        environment.retain(|variable| {
            if variable.name == NAME {
                value = format!("{value}:{}", variable.value);
            }
            variable.name != NAME
        });
        environment.push(Variable { name: NAME.to_owned(), value });
    }
    environment
}

const LIBRARY: &str = "o_sync.so";

/// The library, in a folder that is removed with the result.
fn build_o_sync() -> Result<TempDir> {
    let dir = TempDir::new().map_err(Error::io("a temporary folder"))?;
    let source = dir.path().join("o_sync.c");
    fs::write(&source, include_str!("o_sync.c")).map_err(Error::at(&source))?;
    let library = dir.path().join(LIBRARY);
    Program::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).run()?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
pm>Creating files...Done
Time:
\t1 seconds total
Files:
\t55 created (55 per second)
\t\tCreation alone: 5 files (5 per second)
\t49 read (49 per second)
\t51 appended (51 per second)
\t55 deleted (55 per second)
";

    fn empty() -> PostmarkResult {
        PostmarkResult {
            transactions: 0,
            seconds: 0.0,
            transactions_per_second: 0.0,
            created: 0,
            read: 0,
            appended: 0,
            deleted: 0,
        }
    }

    #[test]
    fn counts_of_a_report() {
        let mut result = empty();
        add_counts(&mut result, OUTPUT).unwrap();
        add_counts(&mut result, OUTPUT).unwrap();
        let found = (result.created, result.read, result.appended, result.deleted);
        assert_eq!(found, (110, 98, 102, 110));
        assert!(add_counts(&mut empty(), &OUTPUT.replace("55 deleted", "54 deleted")).is_err());
        assert!(add_counts(&mut empty(), "pm>").is_err());
    }

    #[test]
    fn the_library_is_preloaded_before_others() {
        let dir = TempDir::new().unwrap();
        let before: Vec<Variable> =
            ["A=b", "LD_PRELOAD=x.so"].iter().map(|text| text.parse().unwrap()).collect();
        let after = preload(&before, Some(&dir));
        assert_eq!(after[0], before[0]);
        assert_eq!(after[1].value, format!("{}/o_sync.so:x.so", dir.path().display()));
        assert_eq!(preload(&before, None), before);
    }
}
